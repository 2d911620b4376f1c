import { permissions } from '../../config/schema/permissions.js';
import { walletPermissions } from '../../rest/services-token.js';

/** One permission of an administrator. */
export type Permission = (typeof permissions)[number];

/** Permissions of every role: see one's own identity, and list, create and revoke one's own tokens. */
const ofEverybody = ['identity:read', 'tokens:own'] as const;

const reads = [
  ...(['merchants:read', 'keys:read', 'gateways:read', 'events:read', 'checkpoints:read'] as const),
  ...(['restores:read', 'approvals:read', 'usage:read', 'unusual:read', 'members:read'] as const),
] as const;

/** A role: a named set of permissions. */
interface Role {
  readonly description: string;
  /** Whether the role is for members of one merchant, who see only that merchant. */
  readonly isOfMember: boolean;
  readonly permissions: readonly Permission[];
}

/** The table of roles. */
export const roles = {
  owner: { description: 'everything', isOfMember: false, permissions },
  operator: {
    description: 'manages merchants, keys, imports and restores, but not administrators',
    isOfMember: false,
    permissions: [
      ...reads,
      ...(['merchants:create', 'merchants:write', 'allowlists:write', 'keys:create', 'keys:revoke'] as const),
      ...(['events:export', 'checkpoints:write', 'records:import', 'records:export', 'restores:write'] as const),
      ...(['approvals:decide', 'unusual:answer', 'wallets:read', 'usage:forget'] as const),
      ...ofEverybody,
    ],
  },
  support: {
    description: 'reads merchants, keys, events and usage, revokes keys, and decides about findings of unusual use',
    isOfMember: false,
    permissions: [...reads, 'keys:revoke', 'unusual:answer', ...ofEverybody],
  },
  auditor: {
    description: 'reads everything, changes nothing',
    isOfMember: false,
    permissions: [...reads, 'events:export', 'records:export', 'wallets:read', 'administrators:read', ...ofEverybody],
  },
  treasurer: {
    description: 'manages wallets, moves money and decides on approvals; read-only access to merchants and events',
    isOfMember: false,
    permissions: [
      'merchants:read',
      'events:read',
      ...walletPermissions,
      'approvals:read',
      'approvals:decide',
      ...ofEverybody,
    ],
  },
  services: {
    description: 'for the services process: adds events about what operators do in the services',
    isOfMember: false,
    permissions: ['events:append', ...ofEverybody],
  },
  'merchant-admin': {
    description: 'manages the keys, allowlists and members of one merchant',
    isOfMember: true,
    permissions: [
      ...(['merchants:read', 'allowlists:write', 'keys:read', 'keys:create', 'keys:revoke', 'events:read'] as const),
      ...(['usage:read', 'unusual:read', 'members:read', 'members:write'] as const),
      ...ofEverybody,
    ],
  },
  'merchant-viewer': {
    description: 'reads the keys, allowlists, members, events and usage of one merchant',
    isOfMember: true,
    permissions: [
      ...(['merchants:read', 'keys:read', 'events:read', 'usage:read', 'unusual:read', 'members:read'] as const),
      ...ofEverybody,
    ],
  },
} as const satisfies Readonly<Record<string, Role>>;

/** The name of a role. */
export type RoleName = keyof typeof roles;

/** All role names, in the order of the table. */
export const roleNames = Object.keys(roles) as RoleName[];

/** Whether one of the roles includes the permission. A role that this release does not know includes no permission. */
export function permits(held: readonly string[], permission: Permission): boolean {
  return held.some((name) => isRole(name) && (roles[name].permissions as readonly Permission[]).includes(permission));
}

/** Whether this release knows a role of that name. */
export function isRole(name: string): name is RoleName {
  return Object.hasOwn(roles, name);
}
