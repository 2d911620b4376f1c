import { compilePermissions, InvalidPermission } from '../../policy/permissions.js';
import type { Problem } from '../../rest/envelope.js';
import { holdsApiKey } from '../holds-api-key.js';

/** What is wrong with permissions, by the gateway's own reading of them; null: nothing. */
export function permissionProblem(permissions: readonly string[]): Problem | null {
  try {
    compilePermissions(permissions);
    return null;
  } catch (error) {
    if (!(error instanceof InvalidPermission)) throw error;
    const why = holdsApiKey(error.entry) ? 'must not hold anything that looks like a key' : error.message;
    return { path: 'permissions', message: `permissions: ${why}` };
  }
}
