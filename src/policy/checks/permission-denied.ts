import type { CredentialCheck } from './check.js';

/** The key may do this to the resource of the route (spec section 7, 403). */
export const permissionDenied: CredentialCheck<'permission_denied'> = {
  code: 'permission_denied',
  passes: (facts, credential) =>
    credential !== null && (facts.resource === null || credential.permissions.allow(facts.resource, facts.access)),
};
