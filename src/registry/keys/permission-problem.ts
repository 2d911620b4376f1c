import { compilePermissions, InvalidPermission } from '../../policy/permissions.js';
import type { Problem } from '../../rest/envelope.js';

/** What is wrong with permissions, by the gateway's own reading of them; null: nothing. */
export function permissionProblem(permissions: readonly string[]): Problem | null {
  try {
    compilePermissions(permissions);
    return null;
  } catch (error) {
    if (error instanceof InvalidPermission) return { path: 'permissions', message: `permissions: ${error.message}` };
    throw error;
  }
}
