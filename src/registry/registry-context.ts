import { ulid } from 'ulid';
import type { Pepper } from '../gateway/api-key.js';
import type { Confirmation } from './propagation.js';
import type { Clock } from '../gateway/store-ports.js';
import type { RegistryDatabase } from './registry-database.js';

/** Dependencies of the registry's routes. */
export interface RegistryContext {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  readonly random: (size: number) => Buffer;
  /**
   * Secret of the HMAC that hashes an API key to its lookup id. The database stores this id instead of the key. The
   * gateways must have the same secret. Null: lookup ids are SHA-256 hashes without a secret.
   */
  readonly pepper: Pepper | null;
  /** The resources of all configured routes. The permissions of a new key must not name other resources. */
  readonly resources: ReadonlySet<string>;
  /** Permissions whose use requires a reason (`registry.reasonFor`). */
  readonly reasonFor?: ReadonlySet<string> | undefined;
  /** Called after each committed change that gateways have to know. */
  readonly onChange: () => void;
  /** Waits until the gateways have acknowledged (confirmed) a change, or until a timeout. */
  readonly confirm: Confirmation;
}

/** Length of the random part of a ULID: 16 characters, each of which encodes five bits. */
const randomCharacters = 16;

/** Creates an id, such as `m_01J…`. Ids with the same prefix sort by creation time. */
export function newId(
  prefix: 'm' | 'key' | 'r' | 'adm' | 'tok' | 'sig' | 'apr' | 'jti' | 'ses' | 'lnk' | 'csi',
  now: number,
  random: (size: number) => Buffer,
): string {
  // Calls the random generator once for all 16 characters, because an import creates millions of ids.
  const bytes = random(randomCharacters);
  let at = 0;
  return `${prefix}_${ulid(now, () => bytes.readUInt8(at++) / 256)}`;
}
