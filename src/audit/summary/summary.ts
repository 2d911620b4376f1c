import { addressOf, requestsIn } from '../access-entry.js';
import type { CountedEntry } from '../access-entry.js';
import { DenialsOverTime, type Denials } from './denials.js';
import { silencesIn, type Silence } from './silences.js';
import { RefusalsOfMerchants, type UnusualMerchant } from './unusual-merchants.js';
import { ownText, Tally } from './tally.js';
import type { Count } from './tally.js';

/** The first use of a key from a new IP address. The key was used from another address before. */
export interface NewAddress {
  readonly keyId: string;
  /** Deprecated alias of `keyId`. */
  readonly key: string;
  readonly merchant: string | null;
  readonly address: string;
  readonly at: string;
  readonly code: string;
}

/** The number of requests in one time span. */
export interface Span {
  /** Start of the span (ISO 8601). */
  readonly from: string;
  readonly accepted: number;
  readonly refused: number;
}

/** The lists of the summary that contain values with their counts. */
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

/** The summary of a log. */
export interface Summary {
  readonly requests: number;
  readonly accepted: number;
  /** The number of lines that are not about requests. */
  readonly otherLines: number;
  /** The number of lines that are about requests, but belong to no hash chain. All other counts omit these lines. */
  readonly leftOutLines: number;
  readonly from: string | null;
  readonly to: string | null;
  readonly spans: readonly Span[];
  readonly spanMinutes: number;
  /** The longest periods without a request. */
  readonly silences: readonly Silence[];
  /** Denied requests by code, in the same time spans as `spans`. */
  readonly denials: Denials;
  /** Merchants with a much higher share of denied requests than all other merchants together. */
  readonly unusualMerchants: readonly UnusualMerchant[];
  /** The codes of requests that were not accepted. */
  readonly codes: readonly Count[];
  readonly merchants: readonly Count[];
  readonly refusedMerchants: readonly Count[];
  readonly addresses: readonly Count[];
  readonly refusedAddresses: readonly Count[];
  readonly countries: readonly Count[];
  readonly newAddresses: readonly NewAddress[];
  readonly newAddressCount: number;
  /** Keys that were sent over plain HTTP or through Tor, by id, or by fingerprint if the id is unknown. */
  readonly exposedKeys: readonly Count[];
  /** For each list, the number of distinct values in the log. The list has only the most frequent of these values. */
  readonly distinct: Readonly<Record<CountedList, number>>;
  /** The names of the lists that lack values, because the memory limit was reached. */
  readonly incomplete: readonly string[];
}

/** Returns a warning that some lists lack values; an empty text if all are complete. */
export function incompleteText({ incomplete }: Summary): string {
  if (incomplete.length === 0) return '';
  return `The log has too many distinct values, so these lists are incomplete: ${incomplete.join(', ')}. Values that first occur late in the log are not counted.\n`;
}

const most = 10;
const mostCodes = 30;
const limit = 100_000;
const mostNewAddresses = 50;
const minute = 60_000;
const mostMinutes = 1_000_000;
/** Maximum number of time spans in a chart. Longer logs use longer spans. */
const mostSpans = 120;
const spanLengths = [1, 5, 15, 60, 360, 1440, 10_080, 43_200];

/** Matches a timestamp as a gateway writes it. Its first characters are the date, hour and minute. */
const secondsForm = /^\d{4}-\d\d-\d\dT\d\d:\d\d:[0-5]\d\.\d{3}Z$/;
const minuteLength = '2026-11-20T10:00'.length;

interface MinuteCounts {
  /** Minutes since 1970. */
  readonly at: number;
  accepted: number;
  refused: number;
}

/** Builds a summary from the lines of a log, one by one, in bounded memory. */
export class SummaryBuilder {
  readonly #tallies: Readonly<Record<CountedList, Tally>> = {
    codes: new Tally(1_000),
    merchants: new Tally(limit),
    refusedMerchants: new Tally(limit),
    addresses: new Tally(limit),
    refusedAddresses: new Tally(limit),
    countries: new Tally(1_000),
    exposedKeys: new Tally(limit),
  };
  readonly #minutes = new Map<number, MinuteCounts>();
  readonly #denials = new DenialsOverTime();
  readonly #refusals = new RefusalsOfMerchants();
  readonly #addressesOfKeys = new Map<string, Set<string>>();
  readonly #newAddresses: NewAddress[] = [];
  #pairs = 0;
  #newAddressCount = 0;
  #hasForgottenAddresses = false;
  #hasForgottenMinutes = false;
  #requests = 0;
  #accepted = 0;
  #otherLines = 0;
  #leftOutLines = 0;
  /** The minute of the previous line, as text. Comparing texts is faster than parsing every timestamp as a date. */
  #minute = ' ';
  #ofMinute: MinuteCounts | null = null;
  #first: string | null = null;
  #last: string | null = null;

  /**
   * Counts a line.
   * @param entry null if the line is not about a request
   * @param only if given, counts only requests with this code; one line can be about several requests
   */
  add(entry: CountedEntry | null, only?: string): void {
    if (entry === null) {
      this.#otherLines += 1;
      return;
    }
    const { code } = entry.event;
    const accepted = code === 'accepted';
    const merchant = entry.organization?.id;
    const address = addressOf(entry);
    const country = entry.client?.geo?.country_iso_code;
    const tallies = this.#tallies;
    const span = this.#spanOf(entry['@timestamp']);
    const count = accepted ? countIn(entry, only) : this.#countCodes(entry, span, only);
    this.#requests += count;
    if (accepted) this.#accepted += count;
    if (merchant !== undefined) (accepted ? tallies.merchants : tallies.refusedMerchants).add(merchant, count);
    if (address !== null) {
      tallies.addresses.add(address, count);
      if (!accepted) tallies.refusedAddresses.add(address, count);
      this.#noteAddress(entry, address);
    }
    if (country !== undefined) tallies.countries.add(country, count);
    const key = entry.gateway.key?.id ?? entry.gateway.key?.fingerprint;
    if (key !== undefined && (code === 'https_required' || code === 'tor_blocked')) tallies.exposedKeys.add(key, count);
    if (span !== null) this.#noteTime(entry['@timestamp'], span, accepted, count);
  }

  /** Counts a line in `leftOutLines` and nowhere else: the line is about requests, but belongs to no hash chain. */
  leaveOut(): void {
    this.#leftOutLines += 1;
  }

  /** Returns the summary. */
  end(): Summary {
    const spanMinutes = this.#spanMinutes();
    const spans = this.#spans(spanMinutes);
    const { codes, merchants, refusedMerchants } = this.#tallies;
    const names = codes.top(mostCodes).map(({ value }) => value);
    return {
      requests: this.#requests,
      accepted: this.#accepted,
      otherLines: this.#otherLines,
      leftOutLines: this.#leftOutLines,
      from: this.#first,
      to: this.#last,
      spans,
      spanMinutes,
      silences: silencesIn(this.#minutes.keys()),
      denials: this.#denials.end(names, spans, spanMinutes),
      unusualMerchants: this.#refusals.end(merchants, refusedMerchants),
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
    const others = {
      newAddresses: this.#hasForgottenAddresses,
      denials: this.#denials.isIncomplete,
      unusualMerchants: this.#refusals.isIncomplete,
      silences: this.#hasForgottenMinutes,
    };
    return [...full, ...Object.entries(others).flatMap(([list, isIncomplete]) => (isIncomplete ? [list] : []))];
  }

  /** Counts the codes of denied requests. @returns the number of requests in the line */
  #countCodes(entry: CountedEntry, span: MinuteCounts | null, only?: string): number {
    const { aggregate } = entry.gateway;
    if (aggregate === undefined && only === undefined) {
      this.#countCode(entry, span, entry.event.code, 1);
      return 1;
    }
    for (const [code, times] of requestsIn(entry, only)) this.#countCode(entry, span, code, times);
    return countIn(entry, only);
  }

  #countCode({ organization }: CountedEntry, span: MinuteCounts | null, code: string, times: number): void {
    this.#tallies.codes.add(code, times);
    if (span !== null) this.#denials.add(span.at, code, times);
    if (organization?.id !== undefined) this.#refusals.add(organization.id, code, times);
  }

  /** Records that a key was used from a new IP address. The first address of a key does not count as new. */
  #noteAddress(entry: CountedEntry, address: string): void {
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
      this.#addressesOfKeys.set(ownText(key), new Set([ownText(address)]));
      return;
    }
    known.add(ownText(address));
    this.#newAddressCount += 1;
    const merchant = entry.organization?.id ?? null;
    this.#newAddresses.push({ keyId: key, key, merchant, address, at: entry['@timestamp'], code: entry.event.code });
    if (this.#newAddresses.length > mostNewAddresses) this.#newAddresses.shift();
  }

  #noteTime(timestamp: string, span: MinuteCounts, accepted: boolean, count: number): void {
    if (this.#first === null || timestamp < this.#first) this.#first = timestamp;
    if (this.#last === null || timestamp > this.#last) this.#last = timestamp;
    if (accepted) span.accepted += count;
    else span.refused += count;
  }

  /** Returns the counters for the minute of a timestamp; null if the timestamp is invalid. */
  #spanOf(timestamp: string): MinuteCounts | null {
    if (timestamp.startsWith(this.#minute) && secondsForm.test(timestamp)) return this.#ofMinute;
    const time = Date.parse(timestamp);
    if (Number.isNaN(time)) return null;
    const at = Math.floor(time / minute);
    const span = this.#minutes.get(at) ?? { at, accepted: 0, refused: 0 };
    if (this.#minutes.has(at) || this.#minutes.size < mostMinutes) this.#minutes.set(at, span);
    else this.#hasForgottenMinutes = true;
    if (secondsForm.test(timestamp)) [this.#minute, this.#ofMinute] = [timestamp.slice(0, minuteLength), span];
    return span;
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

/** Returns the number of requests in a line. @param only if given, counts only requests with this code */
function countIn(entry: CountedEntry, only?: string): number {
  if (entry.gateway.aggregate === undefined && only === undefined) return 1;
  return requestsIn(entry, only).reduce((sum, [, times]) => sum + times, 0);
}
