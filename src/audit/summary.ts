import { addressOf, requestsIn } from './access-entry.js';
import type { AccessEntry } from './access-entry.js';
import { Tally } from './tally.js';
import type { Count } from './tally.js';

/** A key that came from an address for the first time in the log. */
export interface NewAddress {
  readonly keyId: string;
  /** The former name of keyId. */
  readonly key: string;
  readonly merchant: string | null;
  readonly address: string;
  readonly at: string;
  readonly code: string;
}

/** Requests of one span of time. */
export interface Span {
  /** ISO 8601. */
  readonly from: string;
  readonly accepted: number;
  readonly refused: number;
}

/** The lists of values with their counts. */
const countedLists = [
  'codes',
  'merchants',
  'refusedMerchants',
  'addresses',
  'refusedAddresses',
  'countries',
  'exposedKeys',
] as const;
export type CountedList = (typeof countedLists)[number];

/** What a log says on the whole. */
export interface Summary {
  readonly requests: number;
  readonly accepted: number;
  /** Lines that are no request's. */
  readonly otherLines: number;
  /** Lines that look like a request's and are no line of a chain: counted nowhere else. */
  readonly leftOutLines: number;
  readonly from: string | null;
  readonly to: string | null;
  readonly spans: readonly Span[];
  readonly spanMinutes: number;
  /** Why requests were not accepted. */
  readonly codes: readonly Count[];
  readonly merchants: readonly Count[];
  readonly refusedMerchants: readonly Count[];
  readonly addresses: readonly Count[];
  readonly refusedAddresses: readonly Count[];
  readonly countries: readonly Count[];
  readonly newAddresses: readonly NewAddress[];
  readonly newAddressCount: number;
  /** Keys that were sent over plain HTTP or through Tor, by their id, or else their fingerprint. */
  readonly exposedKeys: readonly Count[];
  /** How many values each list has, of which it names the most frequent. */
  readonly distinct: Readonly<Record<CountedList, number>>;
  /** Which of these lists lack values: those that came when no more could be remembered. */
  readonly incomplete: readonly string[];
}

/** Says which lists lack values; empty where none does. */
export function incompleteText({ incomplete }: Summary): string {
  if (incomplete.length === 0) return '';
  return `There are too many different values to remember; those that came last are missing from: ${incomplete.join(', ')}.\n`;
}

const most = 10;
const mostCodes = 30;
const limit = 100_000;
const mostNewAddresses = 50;
const minute = 60_000;
/** A chart has so many spans at most; before that, spans become longer. */
const mostSpans = 120;
const spanLengths = [1, 5, 15, 60, 360, 1440, 10_080, 43_200];

/** Sums up the lines of requests, one by one, in bounded memory. */
export class Summing {
  readonly #tallies: Readonly<Record<CountedList, Tally>> = {
    codes: new Tally(1_000),
    merchants: new Tally(limit),
    refusedMerchants: new Tally(limit),
    addresses: new Tally(limit),
    refusedAddresses: new Tally(limit),
    countries: new Tally(1_000),
    exposedKeys: new Tally(limit),
  };
  readonly #minutes = new Map<number, { accepted: number; refused: number }>();
  readonly #addressesOfKeys = new Map<string, Set<string>>();
  readonly #newAddresses: NewAddress[] = [];
  #pairs = 0;
  #newAddressCount = 0;
  #hasForgottenAddresses = false;
  #requests = 0;
  #accepted = 0;
  #otherLines = 0;
  #leftOutLines = 0;
  #first: string | null = null;
  #last: string | null = null;

  /**
   * @param entry null for a line that is no request's
   * @param only of a line that several requests share, those with this code count alone
   */
  add(entry: AccessEntry | null, only?: string): void {
    if (entry === null) {
      this.#otherLines += 1;
      return;
    }
    const { code } = entry.event;
    const accepted = code === 'accepted';
    const merchant = entry.organization?.id;
    const address = addressOf(entry);
    const country = entry.client?.geo?.country_iso_code;
    const requests = requestsIn(entry, only);
    const count = requests.reduce((sum, [, times]) => sum + times, 0);
    this.#requests += count;
    const tallies = this.#tallies;
    if (accepted) this.#accepted += count;
    else for (const [one, times] of requests) tallies.codes.add(one, times);
    if (merchant !== undefined) (accepted ? tallies.merchants : tallies.refusedMerchants).add(merchant, count);
    if (address !== null) {
      tallies.addresses.add(address, count);
      if (!accepted) tallies.refusedAddresses.add(address, count);
      this.#noteAddress(entry, address);
    }
    if (country !== undefined) tallies.countries.add(country, count);
    const key = entry.gateway.key?.id ?? entry.gateway.key?.fingerprint;
    if (key !== undefined && (code === 'https_required' || code === 'tor_blocked')) tallies.exposedKeys.add(key, count);
    this.#noteTime(entry['@timestamp'], accepted, count);
  }

  /** Notes a line that looks like a request's and is no line of a chain. */
  leaveOut(): void {
    this.#leftOutLines += 1;
  }

  /** Says what the lines were. */
  end(): Summary {
    const spanMinutes = this.#spanMinutes();
    return {
      requests: this.#requests,
      accepted: this.#accepted,
      otherLines: this.#otherLines,
      leftOutLines: this.#leftOutLines,
      from: this.#first,
      to: this.#last,
      spans: this.#spans(spanMinutes),
      spanMinutes,
      ...this.#each((tally, list) => tally.top(list === 'codes' ? mostCodes : most)),
      distinct: this.#each(({ distinct }) => distinct),
      newAddresses: this.#newAddresses,
      newAddressCount: this.#newAddressCount,
      incomplete: this.#incomplete(),
    };
  }

  #each<Value>(of: (tally: Tally, list: CountedList) => Value): Record<CountedList, Value> {
    const entries = countedLists.map((list) => [list, of(this.#tallies[list], list)] as const);
    return Object.fromEntries(entries) as Record<CountedList, Value>;
  }

  #incomplete(): string[] {
    const full = countedLists.filter((list) => this.#tallies[list].others > 0);
    return [...full, ...(this.#hasForgottenAddresses ? ['newAddresses'] : [])];
  }

  /** The first address of a key is not new: the log has to begin somewhere. */
  #noteAddress(entry: AccessEntry, address: string): void {
    const key = entry.gateway.key?.id;
    if (key === undefined) return;
    const known = this.#addressesOfKeys.get(key);
    if (known?.has(address) === true) return;
    if (this.#pairs >= limit) {
      this.#hasForgottenAddresses = true;
      return;
    }
    this.#pairs += 1;
    if (known === undefined) {
      this.#addressesOfKeys.set(key, new Set([address]));
      return;
    }
    known.add(address);
    this.#newAddressCount += 1;
    const merchant = entry.organization?.id ?? null;
    this.#newAddresses.push({ keyId: key, key, merchant, address, at: entry['@timestamp'], code: entry.event.code });
    if (this.#newAddresses.length > mostNewAddresses) this.#newAddresses.shift();
  }

  #noteTime(timestamp: string, accepted: boolean, count: number): void {
    const time = Date.parse(timestamp);
    if (Number.isNaN(time)) return;
    if (this.#first === null || timestamp < this.#first) this.#first = timestamp;
    if (this.#last === null || timestamp > this.#last) this.#last = timestamp;
    const at = Math.floor(time / minute);
    const span = this.#minutes.get(at) ?? { accepted: 0, refused: 0 };
    span[accepted ? 'accepted' : 'refused'] += count;
    if (this.#minutes.size < limit * 10) this.#minutes.set(at, span);
  }

  #spanMinutes(): number {
    if (this.#first === null || this.#last === null) return 1;
    const minutes = (Date.parse(this.#last) - Date.parse(this.#first)) / minute + 1;
    return spanLengths.find((length) => minutes / length <= mostSpans) ?? Math.ceil(minutes / mostSpans);
  }

  #spans(length: number): Span[] {
    if (this.#first === null || this.#last === null) return [];
    const index = (timestamp: string): number => Math.floor(Date.parse(timestamp) / minute / length);
    const first = index(this.#first);
    const spans = Array.from({ length: index(this.#last) - first + 1 }, (_, at) => ({
      from: new Date((first + at) * length * minute).toISOString(),
      accepted: 0,
      refused: 0,
    }));
    for (const [at, { accepted, refused }] of this.#minutes) {
      const span = spans[Math.floor(at / length) - first];
      if (span === undefined) continue;
      span.accepted += accepted;
      span.refused += refused;
    }
    return spans;
  }
}
