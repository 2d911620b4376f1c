import { Refusal } from '../../rest/refusal.js';
import type { Author } from '../events/author.js';
import type { Caller } from './caller.js';
import { type Permission, permits } from './roles.js';

/**
 * Thrown if the caller lacks a right, or if an invalid header is found before the right is checked.
 * `recordingRefusals` stores the refused request as an event. The response can have any status, for example 404 to hide
 * that a record exists.
 */
export class RefusedRight extends Refusal {
  /**
   * @param needs what the caller lacks, such as a permission
   * @param refusal the response
   */
  constructor(
    readonly needs: string,
    { statusCode, message, problems, code, details }: Refusal,
  ) {
    super(statusCode, message, problems, code, details);
  }
}

/** Returns the refusal of a request without the reason that this permission requires (`registry.reasonFor`). */
export function reasonRequired(permission: Permission): Refusal {
  const message = `A reason is required for ${permission}: send the header x-reason, or use --reason`;
  return new Refusal(400, message, [], 'reason_required');
}

/** The permissions whose use requires a reason (`registry.reasonFor`). */
interface Reasons {
  readonly reasonFor?: ReadonlySet<string> | undefined;
}

/** Whether the use of a permission requires a reason that the author has not given. */
export function lacksReason({ reasonFor }: Reasons, { reason }: Author, permission: Permission): boolean {
  return reason === null && reasonFor?.has(permission) === true;
}

/** Requires that the author gave a reason, if the use of this permission requires one. @throws RefusedRight */
export function requireReason(reasons: Reasons, author: Author, permission: Permission): void {
  if (lacksReason(reasons, author, permission)) throw new RefusedRight('a reason', reasonRequired(permission));
}

/**
 * Requires the right to act for other administrators or to see their data. Also requires a reason, if the use of this
 * right requires one. For routes that need this right only if the request concerns another administrator.
 * @param authorOf returns the author, or throws a 400 for an invalid reason. Called only if the caller has the right:
 *   without the right, the response is always `hidden`.
 * @param hidden the refusal if the caller lacks the right; it can hide that a record exists
 * @throws RefusedRight
 */
export function requireRightOverOthers(
  reasons: Reasons,
  { roles }: Caller,
  authorOf: () => Author,
  hidden: Refusal,
  permission: Permission = 'administrators:write',
): void {
  if (!permits(roles, permission)) throw new RefusedRight(permission, hidden);
  requireReason(reasons, authorOf(), permission);
}
