import { Buffer } from 'node:buffer';
import { promisify } from 'node:util';
import { deflateRaw, inflateRaw } from 'node:zlib';
import {
  type AddressCount,
  type AgentCount,
  type CodeCount,
  type HostCount,
  isUsageBatch,
  type KeyUsage,
  type RefusalDetail,
  type UsageBatch,
} from './batch.js';

// A batch is a message with the request counts of a gateway. Its text is JSON, deflated, in base64. Its rows are stored
// in flat lists of numbers, because objects with names took four times the CPU time.

/**
 * Maximum length of an inflated batch, in bytes. Without this limit, a forged batch could fill the registry's memory.
 */
const maxInflatedBytes = 8 * 1024 * 1024;

/** The number of values in one row, for each kind of list. */
const width = { codes: 7, addresses: 8, agents: 3, hosts: 5, lastUse: 3 } as const;

/** The members of a batch besides its counts. */
export type BatchHead = Omit<UsageBatch, 'version' | 'keys' | 'merchants' | 'unknown'>;

/**
 * The rows of one key, or of all requests without a known key, in flat lists. A row contains the index of a text in
 * `texts`, not the text itself.
 */
export interface KeyRows {
  readonly codes: number[];
  readonly addresses: number[];
  readonly agents: number[];
  /** One row: time, address and country of the last accepted request. Empty if no request was accepted. */
  readonly lastUse: number[];
}

type Id = string | null;
type KeyEntry = readonly [keyId: Id, merchantId: Id, lookupId: Id, ...rows: ReturnType<typeof listed>];
type MerchantEntry = readonly [merchantId: string, hosts: readonly number[], refusals: readonly RefusalDetail[]];

const deflate = promisify(deflateRaw);
const inflate = promisify(inflateRaw);

function listed({ codes, addresses, agents, lastUse }: KeyRows): [number[], number[], number[], number[]] {
  return [codes, addresses, agents, lastUse];
}

/**
 * Writes a batch. Each method except `text` adds a key, a merchant or a row. Methods take times in milliseconds since
 * 1970. The batch contains these times relative to the start of the counted period.
 */
export class BatchWriter {
  readonly unknown: KeyRows = { codes: [], addresses: [], agents: [], lastUse: [] };
  readonly #from: number;
  readonly #texts: string[] = [];
  readonly #numbers = new Map<string, number>();
  readonly #keys: KeyEntry[] = [];
  readonly #merchants: MerchantEntry[] = [];

  /** @param from the start of the counted period */
  constructor(from: number) {
    this.#from = from;
  }

  /** Adds a key. @returns the key's lists, which are still empty */
  key(keyId: Id, merchantId: Id, lookupId: Id): KeyRows {
    const rows: KeyRows = { codes: [], addresses: [], agents: [], lastUse: [] };
    this.#keys.push([keyId, merchantId, lookupId, ...listed(rows)]);
    return rows;
  }

  /** Adds a merchant. @returns the merchant's list of hosts, which is still empty */
  merchant(merchantId: string, refusals: readonly RefusalDetail[]): number[] {
    const hosts: number[] = [];
    this.#merchants.push([merchantId, hosts, refusals]);
    return hosts;
  }

  code(list: number[], one: CodeCount): void {
    const { totalMilliseconds, slowestMilliseconds, requestBytes, responseBytes } = one;
    list.push(one.hour - this.#from, this.#text(one.code), one.count);
    list.push(totalMilliseconds, slowestMilliseconds, requestBytes, responseBytes);
  }

  address(list: number[], one: AddressCount): void {
    list.push(one.day - this.#from, this.#text(one.address), this.#text(one.country), one.asNumber ?? -1);
    list.push(one.accepted, one.refused, one.firstAt - this.#from, one.lastAt - this.#from);
  }

  agent(list: number[], { day, agent, count }: AgentCount): void {
    list.push(day - this.#from, this.#text(agent), count);
  }

  host(list: number[], { day, header, host, accepted, refused }: HostCount): void {
    list.push(day - this.#from, this.#text(header), this.#text(host), accepted, refused);
  }

  lastUse(list: number[], { at, address, country }: NonNullable<KeyUsage['lastUse']>): void {
    list.push(at - this.#from, this.#text(address), this.#text(country));
  }

  /** Returns the text of the batch. */
  text(head: BatchHead): Promise<string> {
    const unknown = listed(this.unknown);
    return textOf({ version: 1, ...head, texts: this.#texts, keys: this.#keys, merchants: this.#merchants, unknown });
  }

  /** Returns the index of a text in the batch's table of texts; -1 for null. Adds a new text to the table. */
  #text(text: string | null): number {
    if (text === null) return -1;
    let number = this.#numbers.get(text);
    if (number === undefined) {
      number = this.#texts.push(text) - 1;
      this.#numbers.set(text, number);
    }
    return number;
  }
}

async function textOf(wire: Wire): Promise<string> {
  return (await deflate(JSON.stringify(wire), { level: 1, memLevel: 9 })).toString('base64');
}

/** Replaces the value of `acknowledged` in the text of a batch from this process, and returns the new text. */
export async function withAcknowledged(text: string, acknowledged: number): Promise<string> {
  const inflated = await inflate(Buffer.from(text, 'base64'));
  return textOf({ ...(JSON.parse(inflated.toString('utf8')) as Wire), acknowledged });
}

/**
 * Parses the text of a batch.
 * @returns null if the text is malformed or too large
 */
export async function parseBatch(body: string): Promise<UsageBatch | null> {
  try {
    const inflated = await inflate(Buffer.from(body, 'base64'), { maxOutputLength: maxInflatedBytes });
    const batch = batchOf(JSON.parse(inflated.toString('utf8')) as Wire);
    return isUsageBatch(batch) ? batch : null;
  } catch {
    return null;
  }
}

/** The parsed JSON of a batch, assumed to have the structure that a gateway writes. */
interface Wire extends BatchHead {
  readonly version: unknown;
  readonly texts: readonly string[];
  readonly keys: readonly KeyEntry[];
  readonly merchants: readonly MerchantEntry[];
  readonly unknown: ReturnType<typeof listed>;
}

/**
 * Converts the flat rows to objects, which `parseBatch` then validates. Throws if the JSON has another structure.
 */
function batchOf({ texts, keys, merchants, unknown, ...head }: Wire): object {
  const { from } = head;
  const text = (number: number): string | null | undefined => (number === -1 ? null : texts[number]);
  const codes = (list: readonly number[]): object[] =>
    rows(
      list,
      width.codes,
      ([hour, code, count, totalMilliseconds, slowestMilliseconds, requestBytes, responseBytes]) => ({
        ...{ hour: hour + from, code: text(code), count, totalMilliseconds, slowestMilliseconds },
        ...{ requestBytes, responseBytes },
      }),
    );
  const addresses = (list: readonly number[]): object[] =>
    rows(list, width.addresses, ([day, address, country, asNumber, accepted, refused, firstAt, lastAt]) => ({
      ...{ day: day + from, address: text(address), country: text(country) },
      ...{ asNumber: asNumber === -1 ? null : asNumber, accepted, refused },
      ...{ firstAt: firstAt + from, lastAt: lastAt + from },
    }));
  return {
    ...head,
    keys: keys.map(([keyId, merchantId, lookupId, ofCodes, ofAddresses, ofAgents, ofLastUse]) => ({
      ...{ keyId, merchantId, lookupId, codes: codes(ofCodes), addresses: addresses(ofAddresses) },
      agents: rows(ofAgents, width.agents, ([day, agent, count]) => ({ day: day + from, agent: text(agent), count })),
      lastUse:
        rows(ofLastUse, width.lastUse, ([at, address, country]) => {
          return { at: at + from, address: text(address), country: text(country) };
        })[0] ?? null,
    })),
    merchants: merchants.map(([merchantId, ofHosts, refusals]) => ({
      merchantId,
      hosts: rows(ofHosts, width.hosts, ([day, header, host, accepted, refused]) => {
        return { day: day + from, header: text(header), host: text(host), accepted, refused };
      }),
      refusals,
    })),
    unknown: { codes: codes(unknown[0]), addresses: addresses(unknown[1]) },
  };
}

/** The values of a row. In lists whose rows have fewer values, the last elements are undefined. */
type Row = readonly [number, number, number, number, number, number, number, number];

/** Splits a flat list into rows. Throws if its length is not a multiple of the row width. */
function rows(list: readonly number[], width: number, rowOf: (row: Row) => object): object[] {
  if (!Array.isArray(list) || list.length % width !== 0)
    throw new TypeError('the length of a flat list is not a multiple of its row width');
  const all: object[] = [];
  for (let at = 0; at < list.length; at += width) all.push(rowOf(list.slice(at, at + width) as unknown as Row));
  return all;
}
