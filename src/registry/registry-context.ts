import { ulid } from 'ulid';
import type { Pepper } from '../gateway/api-key.js';
import type { Confirmation } from './propagation.js';
import type { Clock } from '../gateway/store-ports.js';
import type { RegistryDatabase } from './registry-database.js';

/** What the registry's routes need. */
export interface RegistryContext {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  readonly random: (size: number) => Buffer;
  /** HMAC pepper of the lookup ids, the same as the gateways'; null for plain SHA-256. */
  readonly pepper: Pepper | null;
  /** The resources of all routes: permissions of a new key may name only these. */
  readonly resources: ReadonlySet<string>;
  /** Called after each committed change. */
  readonly onChange: () => void;
  /** Waits, for a bounded time, until gateways have acknowledged a change. */
  readonly confirm: Confirmation;
}

/** The random part of a ULID: 16 characters of five bits each. */
const randomCharacters = 16;

/** A new id, such as `m_01J…`, that sorts by time. */
export function newId(prefix: 'm' | 'key' | 'r', now: number, random: (size: number) => Buffer): string {
  // One call for all 16 bytes: an import creates millions of ids.
  const bytes = random(randomCharacters);
  let at = 0;
  return `${prefix}_${ulid(now, () => bytes.readUInt8(at++) / 256)}`;
}
