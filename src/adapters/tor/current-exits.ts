import type { TorListStatus, TorSourceStatus } from '../../gateway/ports.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { ageStart, expiryStart } from './exit-source.js';
import type { SourceList, SourceState } from './source-lists.js';
import { TorExitList } from './tor-exit-list.js';

/**
 * The current Tor exit list, merged from the lists of all sources. It is replaced atomically, and counts as unavailable
 * when all lists are too old.
 */
export class CurrentExits {
  #list = new TorExitList([]);
  /** The digests of the merged lists, as one string. */
  #joined = '';
  /** The start time for the age of the newest list, in milliseconds since 1970. */
  #expiresSince = -Infinity;

  constructor(readonly maxAgeMilliseconds: number) {}

  get list(): TorExitList {
    return this.#list;
  }

  isAvailable(now: number): boolean {
    return now - this.#expiresSince <= this.maxAgeMilliseconds;
  }

  has(address: IpAddress): boolean {
    return this.#list.has(address);
  }

  /**
   * Merges these lists into the current one.
   * @returns whether the merged list has changed
   */
  async swap(lists: readonly SourceList[]): Promise<boolean> {
    const joined = lists.map(({ digest }) => digest).join();
    const changes = joined !== this.#joined;
    if (changes) this.#list = await TorExitList.join(lists.map(({ addresses }) => addresses));
    this.#joined = joined;
    this.#expiresSince = Math.max(-Infinity, ...lists.map(expiryStart));
    return changes;
  }
}

/** The data from which a status is computed. */
interface StatusFacts {
  readonly available: boolean;
  readonly list: TorExitList;
  /** The current time, in milliseconds since 1970. */
  readonly now: number;
  readonly sources: readonly SourceFacts[];
}

interface SourceFacts {
  readonly name: string;
  readonly state: SourceState;
  readonly refusals: Readonly<Record<string, number>>;
}

/** The status of the Tor exit list, for operators. */
export function statusOf({ available, list, now, sources }: StatusFacts): TorListStatus {
  const shown = sources.map((source) => sourceStatus(source, now));
  const ages = shown.map(({ ageSeconds }) => ageSeconds).filter((age) => age !== null);
  return {
    available,
    digest: available ? list.digest : null,
    size: available ? list.size : 0,
    ageSeconds: ages.length === 0 ? null : Math.min(...ages),
    sources: shown,
  };
}

function sourceStatus({ name, state: { list, problem }, refusals }: SourceFacts, now: number): TorSourceStatus {
  return {
    source: name,
    confirmedAt: list?.confirmedAt ?? null,
    datedAt: list?.datedAt ?? null,
    datedBy: list?.datedBy ?? null,
    ageSeconds: list === null ? null : Math.max(0, Math.round((now - ageStart(list)) / 1000)),
    size: list?.addresses.length ?? 0,
    leftOut: list?.leftOut ?? 0,
    problem,
    refusals,
  };
}
