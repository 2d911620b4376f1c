import path from 'node:path';
import {
  ExitListRejected,
  exitSourceOf,
  type SourceContent,
  type Validators,
} from '../../src/adapters/tor/exit-source.js';
import { readListFile, SnapshotFile } from '../../src/adapters/tor/list-files.js';
import { MaintainedTorExits, type MaintenanceOptions } from '../../src/adapters/tor/maintained-tor-exits.js';
import type { SharedExitLists } from '../../src/adapters/tor/source-lists.js';
import { compileIpRanges } from '../../src/policy/ip-ranges.js';

export const minute = 60_000;
export const hour = 60 * minute;

/** A simulated server response, or its failure. */
export type SourceResponse = SourceContent | ExitListRejected | Error;

/** A list as a server returns it. */
export function content(lines: readonly string[] | string, validators: Partial<Validators> = {}): SourceContent {
  const text = typeof lines === 'string' ? lines : `${lines.join('\n')}\n`;
  return { text, etag: null, lastModified: null, writtenAt: null, ...validators };
}

/** Generates this many distinct addresses, starting at 198.51.100.0. */
export function manyExits(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `198.51.${100 + (index >> 8)}.${index & 255}`);
}

export const unreachable = new ExitListRejected('unreachable', 'the list cannot be fetched: ECONNREFUSED');

/** The simulated network, clock and key store of a test. */
export class TestWorld {
  now = Date.parse('2026-01-01T00:00:00.000Z');
  /** Responses by URL. */
  readonly responses = new Map<string, SourceResponse>();
  /** The fetched URLs in order, each with the ETag that the request sent. */
  readonly fetched: { readonly url: string; readonly etag: string | null }[] = [];
  readonly store = new TestStore();

  open(directory: string, options: Partial<MaintenanceOptions> & { readonly from: readonly string[] }): Maintained {
    const refused: string[] = [];
    const problems: string[] = [];
    const recovered: string[] = [];
    let swaps = 0;
    const exits = new MaintainedTorExits({
      sources: options.from.map((entry) => exitSourceOf(entry, true)),
      rules: { allowReserved: true, trustedProxies: compileIpRanges([]) },
      refreshMilliseconds: hour,
      maxAgeMilliseconds: 48 * hour,
      denyWhenUnavailable: true,
      snapshot: new SnapshotFile(path.join(directory, 'snapshot.json')),
      shared: null,
      clock: { now: () => this.now },
      random: () => 0.5,
      read: (source, known) =>
        'file' in source.location ? readListFile(source.location.file) : this.#fetch(source.location.url.href, known),
      onRefused: ({ name }, { reason }) => refused.push(`${name} ${reason}`),
      onList: () => (swaps += 1),
      onProblem: (problem) => problems.push(problem),
      onRecovered: (what) => recovered.push(what),
      ...options,
    });
    return { exits, refused, problems, recovered, swaps: () => swaps };
  }

  #fetch(url: string, known: Validators | null): Promise<SourceContent> {
    this.fetched.push({ url, etag: known?.etag ?? null });
    const response = this.responses.get(url) ?? unreachable;
    return response instanceof Error ? Promise.reject(response) : Promise.resolve(response);
  }
}

/** A list under test, and its reported events. */
export interface Maintained {
  readonly exits: MaintainedTorExits;
  readonly refused: string[];
  readonly problems: string[];
  readonly recovered: string[];
  readonly swaps: () => number;
}

/** An in-memory key store shared by several gateways. */
class TestStore implements SharedExitLists {
  record: string | null = null;
  /** Whether the store is available. */
  up = true;
  /** Whether a process holds the claim, which is the right to fetch the list for all gateways. */
  claimed = false;
  /** Called when a claim is granted. A test uses it to simulate an event at that moment. */
  onClaim: () => void = () => undefined;

  read(): Promise<string | null> {
    return this.up ? Promise.resolve(this.record) : Promise.reject(new Error('down'));
  }

  claim() {
    if (!this.up) return Promise.reject(new Error('down'));
    if (this.claimed) return Promise.resolve(null);
    this.claimed = true;
    this.onClaim();
    return Promise.resolve({
      publish: (record: string): Promise<boolean> => {
        if (!this.claimed) return Promise.resolve(false);
        this.record = record;
        return Promise.resolve(true);
      },
      release: (): Promise<void> => {
        this.claimed = false;
        return Promise.resolve();
      },
    });
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
