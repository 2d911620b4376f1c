/**
 * All permissions of administrators. Each route of the admin API and of the operators' API requires one of them, unless
 * the route needs no credential. Each role of the registry is a set of permissions.
 */
export const permissions = [
  ...(['merchants:read', 'merchants:create', 'merchants:write', 'allowlists:write'] as const),
  ...(['keys:read', 'keys:create', 'keys:revoke'] as const),
  ...(['gateways:read', 'events:read', 'events:export', 'events:append'] as const),
  ...(['checkpoints:read', 'checkpoints:write', 'usage:read', 'usage:forget'] as const),
  ...(['records:import', 'records:export', 'restores:read', 'restores:write'] as const),
  ...(['wallets:read', 'wallets:write', 'wallets:fund'] as const),
  ...(['administrators:read', 'administrators:write', 'members:read', 'members:write'] as const),
  ...(['identity:read', 'tokens:own'] as const),
  ...(['approvals:read', 'approvals:decide'] as const),
  ...(['unusual:read', 'unusual:answer'] as const),
] as const;
