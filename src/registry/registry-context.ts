import { ulid } from 'ulid';
import type { Pepper } from '../gateway/api-key.js';
import type { Confirmation } from './propagation.js';
import type { Clock } from '../gateway/store-ports.js';
import type { RegistryDatabase } from './registry-database.js';

/** What the registry's routes work with. */
export interface RegistryContext {
  readonly database: RegistryDatabase;
  readonly clock: Clock;
  readonly random: (size: number) => Buffer;
  /** HMAC pepper of the look-up ids, the same as the gateways'; null: plain SHA-256. */
  readonly pepper: Pepper | null;
  /** The resources of all routes: a new key's permissions name no other. */
  readonly resources: ReadonlySet<string>;
  /** Told of each change as soon as it is committed. */
  readonly onChange: () => void;
  /** Waits, for a bounded time, until gateways know of a change. */
  readonly confirm: Confirmation;
}

/** Of a ULID, each of five random bits. */
const randomCharacters = 16;

/** A new id, such as `m_01J…`, that sorts by time. */
export function newId(prefix: 'm' | 'key' | 'r', now: number, random: (size: number) => Buffer): string {
  // One call for all of it: an import makes millions.
  const bytes = random(randomCharacters);
  let at = 0;
  return `${prefix}_${ulid(now, () => bytes.readUInt8(at++) / 256)}`;
}
