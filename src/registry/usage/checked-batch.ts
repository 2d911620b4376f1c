import { parseIpAddress } from '../../policy/ip-address.js';
import { parseIpRange } from '../../policy/ip-ranges.js';
import { dayMilliseconds, hourMilliseconds, type UsageBatch } from '../../usage/batch.js';
import { parseBatch } from '../../usage/batch-text.js';
import { identifierForm } from '../fields.js';
import { addressOf } from '../merchants/ip-allowlist.js';

/** Whether to store full IP addresses, or only the networks that contain them (/24 for IPv4, /48 for IPv6). */
export type AddressDetail = 'full' | 'network';

/** Thrown if a batch of usage counts is invalid and can never be added. The message is for the gateway's log. */
export class RefusedBatch extends Error {}

/** The latest time that a JavaScript `Date` can represent, in milliseconds since 1970. */
const latestMoment = 8_640_000_000_000_000;
/** Highest accepted count. With higher counts, a sum in the database could exceed the range of the integer column. */
const highestCount = 1_000_000_000_000;
const codeForm = /^[a-z0-9_]{1,64}$/;

/**
 * Parses a batch, checks the values that the parser does not check, and converts the batch's texts to a form that the
 * database can store.
 * @throws RefusedBatch
 */
export async function readBatch(body: string, detail: AddressDetail): Promise<UsageBatch> {
  const batch = await parseBatch(body);
  if (batch === null) throw new RefusedBatch('the message with request counts is malformed or too large');
  requireRanges(batch);
  requireNames(batch);
  return stored(batch, detail);
}

/**
 * Checks times, counts, result codes and the sequence number.
 * @throws RefusedBatch in each of these cases:
 * - a time or a count is above its maximum;
 * - an hour does not begin on the hour, or a day does not begin at midnight (UTC);
 * - a code has the wrong form;
 * - a period ends before it begins (`to` before `from`);
 * - the sequence number was acknowledged already.
 */
function requireRanges(batch: UsageBatch): void {
  const require = (isValid: boolean, what: 'code' | 'count' | 'sequence number' | 'time'): void => {
    if (isValid) return;
    throw new RefusedBatch(
      `the message with request counts has an invalid ${what}; report this as a bug of the gateway`,
    );
  };
  const moments = (...all: number[]): void => {
    require(all.every((one) => one <= latestMoment), 'time');
  };
  const counts = (...all: number[]): void => {
    require(all.every((one) => one <= highestCount), 'count');
  };
  moments(batch.from, batch.to);
  require(batch.from <= batch.to, 'time');
  require(batch.acknowledged < batch.sequence, 'sequence number');
  counts(batch.dropped.refusals, batch.dropped.rows ?? 0);
  for (const { codes, addresses } of [...batch.keys, batch.unknown]) {
    for (const one of codes) {
      moments(one.hour);
      require(one.hour % hourMilliseconds === 0, 'time');
      require(codeForm.test(one.code), 'code');
      counts(one.count, one.totalMilliseconds, one.slowestMilliseconds, one.requestBytes, one.responseBytes);
    }
    for (const { day, firstAt, lastAt, accepted, refused, asNumber } of addresses) {
      moments(day, firstAt, lastAt);
      require(day % dayMilliseconds === 0, 'time');
      counts(accepted, refused, asNumber ?? 0);
    }
  }
  for (const { agents, lastUse } of batch.keys) {
    moments(lastUse?.at ?? 0);
    for (const { day, count } of agents) {
      moments(day);
      require(day % dayMilliseconds === 0, 'time');
      counts(count);
    }
  }
  for (const { hosts, refusals } of batch.merchants) {
    for (const { day, accepted, refused } of hosts) {
      moments(day);
      require(day % dayMilliseconds === 0, 'time');
      counts(accepted, refused);
    }
    for (const { at, code } of refusals) {
      moments(at);
      require(codeForm.test(code), 'code');
    }
  }
}

/**
 * Checks the ids of keys and merchants, also in refused requests. A key without an id is valid: its lookup id (hash)
 * identifies it.
 * @throws RefusedBatch
 */
function requireNames({ keys, merchants }: UsageBatch): void {
  const isId = (id: string | null): boolean => id !== null && identifierForm.test(id);
  for (const { keyId, merchantId } of keys) {
    if (keyId !== null && !(isId(keyId) && isId(merchantId)))
      throw new RefusedBatch('the message with request counts has a key whose id or merchant id is invalid');
  }
  for (const { merchantId, refusals } of merchants) {
    if (!isId(merchantId)) throw new RefusedBatch('the message with request counts has a merchant whose id is invalid');
    if (refusals.some(({ keyId }) => keyId !== null && !isId(keyId)))
      throw new RefusedBatch('the message with request counts has a refused request with a key whose id is invalid');
  }
}

/** Returns the batch with its texts and addresses in the form that the database stores. */
function stored(batch: UsageBatch, detail: AddressDetail): UsageBatch {
  const shown = (address: string): string => (detail === 'full' ? storable(address) : networkOf(address));
  const addressOrNull = (address: string | null): string | null => (address === null ? null : shown(address));
  const listed = <Item extends { address: string | null; country: string | null }>(items: readonly Item[]): Item[] =>
    items.map((item) => ({ ...item, address: addressOrNull(item.address), country: orNull(item.country) }));
  return {
    ...batch,
    instance: storable(batch.instance),
    keys: batch.keys.map((key) => ({
      ...key,
      lookupId: orNull(key.lookupId),
      lastUse: key.lastUse && {
        ...{ at: key.lastUse.at, address: shown(key.lastUse.address), country: orNull(key.lastUse.country) },
      },
      addresses: listed(key.addresses),
      agents: key.agents.map((one) => ({ ...one, agent: orNull(one.agent) })),
    })),
    merchants: batch.merchants.map((merchant) => ({
      ...merchant,
      hosts: merchant.hosts.map((one) => ({ ...one, header: storable(one.header), host: orNull(one.host) })),
      refusals: merchant.refusals.map((one) => ({
        ...one,
        ...{ method: storable(one.method), path: storable(one.path), requestId: storable(one.requestId) },
        ...{ address: addressOrNull(one.address) },
        header: one.header && { name: storable(one.header.name), value: storable(one.header.value) },
      })),
    })),
    unknown: { codes: batch.unknown.codes, addresses: listed(batch.unknown.addresses) },
  };
}

/** Replaces each NUL and lone surrogate by U+FFFD, because PostgreSQL cannot store these characters. */
function storable(text: string): string {
  return text.replaceAll(/[\p{Cs}\u0000]/gu, '\ufffd');
}

function orNull(text: string | null): string | null {
  return text === null ? null : storable(text);
}

const ipv4Prefix = 24;
const ipv6Prefix = 48;

/** Returns the network of an address, such as `192.0.2.0/24`. Returns `invalid` for a text that is no address. */
function networkOf(text: string): string {
  const address = parseIpAddress(text);
  if (address === null) return 'invalid';
  const prefix = address.family === 4 ? ipv4Prefix : ipv6Prefix;
  const range = parseIpRange(`${address.text}/${prefix}`);
  return range === null ? 'invalid' : `${addressOf(range.family, BigInt(range.first)).text}/${prefix}`;
}

/**
 * Returns the two forms in which an address may be stored: the address itself, and the network that replaces it while
 * `registry.usage.addresses` is `network`. Returns a text that is no address unchanged.
 */
export function storedForms(text: string): string[] {
  const address = parseIpAddress(text);
  return address === null ? [text] : [address.text, networkOf(text)];
}
