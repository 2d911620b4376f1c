import { closestName } from '../../config/closest-name.js';
import { compilePermissions, InvalidPermission } from '../../policy/permissions.js';
import type { Problem } from '../../rest/envelope.js';
import { holdsApiKey } from '../fields.js';

const mostResourcesNamed = 20;

/** Checks permissions with the parser that the gateway uses. @returns the problem; null if all are valid */
export function permissionProblem(permissions: readonly string[]): Problem | null {
  try {
    compilePermissions(permissions);
    return null;
  } catch (error) {
    if (!(error instanceof InvalidPermission)) throw error;
    const why = holdsApiKey(error.entry) ? 'must not contain anything that looks like an API key' : error.message;
    return { path: 'permissions', message: `permissions: ${why}` };
  }
}

/**
 * Checks that each resource in the permissions (such as `payouts` in `payouts:write`) has a route. A permission for a
 * resource without a route would have no effect.
 * @param resources the resources of all routes
 * @returns the first problem; null if all resources have routes
 */
export function resourceProblem(permissions: readonly string[], resources: ReadonlySet<string>): Problem | null {
  const named = permissions.filter((permission) => permission !== '*').map((permission) => permission.split(':', 1)[0]);
  const unknown = named.find((resource = '') => !resources.has(resource));
  if (unknown === undefined) return null;
  const known = [...resources].toSorted();
  const closest = closestName(unknown, known);
  const meant = closest === undefined ? '' : `; did you mean ${closest}?`;
  const more = known.length > mostResourcesNamed ? ', …' : '';
  return {
    path: 'permissions',
    message:
      `permissions: "${unknown}" is not a resource${meant || '.'} Resources: ${known.slice(0, mostResourcesNamed).join(', ')}${more}. ` +
      'If gateways have a route for this resource, add that route to the configuration of the registry too',
  };
}
