import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import Type from '../../typebox/typebox.js';
import { requirePermission } from '../administrators/access.js';
import { authorOf, callerOf } from '../administrators/request-author.js';
import type { Attempts } from '../administrators/attempts.js';
import { idIn } from '../fields.js';
import { revokeKey } from '../keys/key-changes.js';
import { respondToChange, type Routes } from '../routes.js';
import { decideUnusual, findUnusual, listUnusual, ruleStates } from './findings.js';
import {
  decisionBody,
  decidedSchema,
  ruleStateSchema,
  undeliveredSchema,
  unusualFindingSchema,
  unusualQuery,
} from './schema.js';
import { listUndelivered, type WebhookTarget } from './webhooks.js';

/** Dependencies of `unusualRoutes`. */
export interface UnusualRoutesOptions {
  readonly attempts: Attempts;
  /** Rules that the configuration turns off; null: all rules are off. */
  readonly off: readonly string[] | null;
  readonly targets: readonly WebhookTarget[];
  /** Permissions whose use requires a reason (`x-reason`). */
  readonly reasonFor: ReadonlySet<string>;
}

const revoking = 'keys:revoke';

/**
 * Adds the routes about unusual use of keys. They list findings (cases of unusual use), the rules that detect findings,
 * and undelivered webhooks. One route stores an administrator's decision about a finding.
 */
export function unusualRoutes({ attempts, off, targets, reasonFor }: UnusualRoutesOptions): Routes {
  return (app, context) => {
    const { database, clock, confirm } = context;

    app.get(
      '/unusual',
      {
        schema: { querystring: unusualQuery },
        config: {
          operation: { summary: 'Findings about unusual use of keys, newest first', page: unusualFindingSchema },
          access: { permission: 'unusual:read', merchant: 'list' },
        },
      },
      async (request) => {
        const { query } = request;
        const paging = pagingOf(query);
        const filter = { ...query, memberOf: callerOf(request).merchantId };
        return successPage('Findings retrieved', await listUnusual(database, filter, paging), paging);
      },
    );

    app.get(
      '/unusual/rules',
      {
        schema: { querystring: noQuery },
        config: {
          operation: {
            summary: 'The rules about unusual use, and why a rule is off',
            data: Type.Array(ruleStateSchema),
          },
          access: { permission: 'unusual:read', merchant: 'list' },
        },
      },
      async () => success('Rules retrieved', await ruleStates(database, off, clock.now())),
    );

    app.get(
      '/unusual/webhooks',
      {
        schema: { querystring: noQuery },
        config: {
          operation: { summary: 'Up to 100 webhooks that were not delivered', data: Type.Array(undeliveredSchema) },
          access: { permission: 'unusual:read' },
        },
      },
      async () => success('Webhooks retrieved', await listUndelivered(database, targets)),
    );

    app.get(
      '/unusual/:id',
      {
        schema: { params: idParams, querystring: noQuery },
        config: {
          operation: { summary: 'One finding about the use of a key', data: unusualFindingSchema },
          access: { permission: 'unusual:read', merchant: 'list' },
        },
      },
      async (request) => {
        const id = idIn(request.params, 'Finding');
        return success('Finding retrieved', await findUnusual(database, id, callerOf(request).merchantId));
      },
    );

    app.post(
      '/unusual/:id/answer',
      {
        schema: { params: idParams, body: decisionBody, querystring: noQuery },
        config: {
          operation: {
            summary:
              'Decide about a finding: fine (the use is normal), look (under investigation) or revoked (revokes the key)',
            data: decidedSchema,
          },
          access: { permission: 'unusual:answer' },
        },
      },
      async (request, reply) => {
        const id = idIn(request.params, 'Finding');
        const { answer: decision } = request.body;
        // Checks the permission before `authorOf`, which rejects an invalid `x-reason`. Otherwise a caller without the
        // permission could avoid the event about the refusal by sending an invalid reason.
        if (decision === 'revoked') await requirePermission(request, revoking, { attempts, reasonFor });
        const author = authorOf(request);
        const { keyId } = await findUnusual(database, id, null);
        if (decision !== 'revoked') {
          const finding = await decideUnusual(context, author, id, decision);
          return success('Decision recorded', { ...finding, propagation: null });
        }
        // Revokes the key first. If this process ends before the decision is stored, the client can repeat the request.
        const { key, revision } = await revokeKey(context, author, keyId);
        const finding = await decideUnusual(context, author, id, decision);
        const propagation = await confirm(revision, key.environment);
        return respondToChange(reply, 200, 'Key revoked', finding, propagation);
      },
    );
  };
}
