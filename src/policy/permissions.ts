/** The kind of access to a resource: GET and HEAD need `read`, all other methods need `write`. */
export type Access = 'read' | 'write';

/** The compiled permissions of a key. */
export interface Permissions {
  /** The permissions as they are written in the record. */
  readonly entries: readonly string[];
  allow(resource: string, access: Access): boolean;
}

/** Error for an invalid permission of a key. */
export class InvalidPermission extends Error {
  constructor(readonly entry: string) {
    super(
      `"${entry.slice(0, 64)}" is not a permission: expected * or a resource followed by :*, :read or :write, ` +
        'such as payouts:write',
    );
    this.name = 'InvalidPermission';
  }
}

const permissionForm = /^(?<resource>[a-z][a-z0-9-]{0,63}):(?<access>\*|read|write)$/;

/** The access that an HTTP method needs. */
export function accessOf(method: string): Access {
  return method === 'GET' || method === 'HEAD' ? 'read' : 'write';
}

/**
 * Compiles permissions of the forms `*`, `<resource>:*`, `<resource>:read` and `<resource>:write`. An empty list
 * permits nothing.
 * @throws InvalidPermission for the first invalid entry
 */
export function compilePermissions(entries: readonly string[]): Permissions {
  const granted: Readonly<Record<Access, Set<string>>> = { read: new Set(), write: new Set() };
  let everything = false;
  for (const entry of entries) {
    if (entry === '*') {
      everything = true;
      continue;
    }
    const parts = permissionForm.exec(entry)?.groups;
    if (parts?.resource === undefined) throw new InvalidPermission(entry);
    if (parts.access !== 'write') granted.read.add(parts.resource);
    if (parts.access !== 'read') granted.write.add(parts.resource);
  }
  return { entries, allow: (resource, access) => everything || granted[access].has(resource) };
}
