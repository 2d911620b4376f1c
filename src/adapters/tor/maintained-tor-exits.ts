import type { TorExits, TorListStatus } from '../../gateway/ports.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { CurrentExits, statusOf } from './current-exits.js';
import { agesSince, type ExitSource, expiresSince } from './exit-source.js';
import { ListFiles } from './list-files.js';
import { RecordExchange, type RecordExchangeOptions } from './record-exchange.js';
import { type SourceList, SourceLists } from './source-lists.js';
import {
  RefreshSchedule,
  type RefreshScheduleOptions,
  SourceReader,
  type SourceReaderOptions,
} from './source-reader.js';
import type { AdmissionRules, TorExitList } from './tor-exit-list.js';

/** What a list of Tor exits is kept with. */
export interface MaintenanceOptions
  extends
    Omit<SourceReaderOptions, 'lists'>,
    Omit<RecordExchangeOptions, 'lists' | 'onRefused'>,
    RefreshScheduleOptions {
  readonly sources: readonly ExitSource[];
  readonly rules: AdmissionRules;
  /** A source's list that is older, or was not confirmed for longer, counts as none. */
  readonly maxAgeMilliseconds: number;
  /** What is said of an address while there is no list: nothing (true), or that it is no exit (false). */
  readonly denyWhenUnavailable: boolean;
  /** Told of a new list in force. */
  readonly onList: (list: TorExitList) => void;
}

/** How often it is looked whether something is due: a list file that was replaced is read that much later at most. */
const tickMilliseconds = 2_000;
/** How often the record of the cluster is looked at: a replica has a new list that much later at most. */
const sharedPollMilliseconds = 10_000;

/**
 * The Tor exits, kept fresh: the last good list of each source, joined and swapped whole. A failure never empties it;
 * it only gets older, and is no list any more when it is too old.
 */
export class MaintainedTorExits implements TorExits {
  readonly #options: MaintenanceOptions;
  readonly #lists: SourceLists;
  readonly #reader: SourceReader;
  readonly #exchange: RecordExchange;
  readonly #schedule: RefreshSchedule;
  readonly #files: ListFiles;
  readonly #current: CurrentExits;
  #sharedAt = -Infinity;
  #unpublished = false;
  #work: Promise<unknown> = Promise.resolve();
  #timer: NodeJS.Timeout | null = null;

  constructor(options: MaintenanceOptions) {
    this.#options = options;
    const lists = new SourceLists(options.sources, options.rules);
    const reader = new SourceReader({ ...options, lists });
    this.#lists = lists;
    this.#reader = reader;
    this.#exchange = new RecordExchange({
      ...options,
      lists,
      onRefused: (source, refused) => {
        reader.refuse(source, refused);
      },
    });
    this.#schedule = new RefreshSchedule(options);
    this.#files = new ListFiles(options.sources);
    this.#current = new CurrentExits(options.maxAgeMilliseconds);
  }

  has(address: IpAddress): boolean | null {
    if (this.#available) return this.#current.has(address);
    return this.#options.denyWhenUnavailable ? null : false;
  }

  get digest(): string | null {
    return this.#available ? this.#current.list.digest : null;
  }

  unavailableReason(): string | null {
    if (this.#available || !this.#options.denyWhenUnavailable) return null;
    const [list] = this.#youngestFirst();
    if (list === undefined) return 'no list is loaded yet';
    const since = new Date(expiresSince(list)).toISOString();
    return `the list is too old${since === list.confirmedAt ? '' : `: by its own date it is of ${since}`}`;
  }

  ageWarning(): string | null {
    const [list] = this.#youngestFirst(agesSince);
    const { clock, maxAgeMilliseconds } = this.#options;
    if (list === undefined || !this.#available || clock.now() - agesSince(list) <= maxAgeMilliseconds) return null;
    return `the list is in a file of ${new Date(agesSince(list)).toISOString()}, older than maxAgeHours: replace the file`;
  }

  status(): TorListStatus {
    return statusOf({
      available: this.#available,
      list: this.#current.list,
      now: this.#options.clock.now(),
      sources: this.#options.sources.map((source) => ({
        name: source.name,
        state: this.#lists.stateOf(source),
        refusals: this.#reader.refusalsOf(source),
      })),
    });
  }

  /**
   * Takes what can be had without asking a source's server: the snapshot, list files, the record of the cluster. It
   * changes none of them.
   */
  load(): Promise<void> {
    return this.#inTurn(async () => {
      await this.#exchange.adoptSnapshot();
      await this.#exchange.adoptShared();
      await this.#readFiles();
      await this.#swap();
    });
  }

  /** Does what is due, now and from time to time, until it is closed. */
  start(): void {
    let busy = false;
    const tick = (): void => {
      if (busy) return;
      busy = true;
      this.tick()
        .catch((error: unknown) => {
          this.#options.onProblem('the Tor exit list could not be looked after', error);
        })
        .finally(() => (busy = false));
    };
    this.#timer = setInterval(tick, tickMilliseconds).unref();
    tick();
  }

  /** Does what is due: reads files that have changed, takes over what another gateway has fetched, and fetches. */
  tick(): Promise<void> {
    return this.#inTurn(async () => {
      await this.#exchange.adoptSnapshot();
      await this.#readFiles();
      const askable = await this.#adoptSharedIfDue();
      // What cannot be claimed is not fetched: while the key store is away, a hundred gateways would all fetch.
      if (askable && (this.#unpublished || this.#due('url').length > 0)) await this.#fetch(() => this.#due('url'));
      await this.#swap();
      await this.#exchange.saveSnapshot(this.#current.list);
    });
  }

  /**
   * Reads every source now.
   * @param acceptSmaller whether a list may be much smaller than the one before
   * @returns false where another process fetches at this moment, or the key store cannot be asked
   */
  refreshNow(acceptSmaller: boolean): Promise<boolean> {
    return this.#inTurn(async () => {
      const done = await this.#fetch(() => this.#options.sources, acceptSmaller);
      await this.#exchange.saveSnapshot(this.#current.list);
      return done;
    });
  }

  async close(): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#reader.close();
    await this.#work;
    await this.#options.shared?.close();
  }

  #youngestFirst(sinceOf = expiresSince): SourceList[] {
    return this.#lists.youngerThan(-Infinity).toSorted((one, other) => sinceOf(other) - sinceOf(one));
  }

  get #available(): boolean {
    return this.#current.isAvailable(this.#options.clock.now());
  }

  /** One thing after the other: two that interleave could put an older list in the place of a newer one. */
  #inTurn<Result>(act: () => Promise<Result>): Promise<Result> {
    const turn = this.#work.then(act);
    this.#work = turn.catch(() => undefined);
    return turn;
  }

  #due(kind: 'url' | 'file'): ExitSource[] {
    const now = this.#options.clock.now();
    return this.#options.sources.filter(
      (source) =>
        kind in source.location && this.#schedule.isDue(source, this.#lists.stateOf(source), now, this.#available),
    );
  }

  async #readFiles(): Promise<void> {
    const wanted = new Set([...(await this.#files.changed()), ...this.#due('file')]);
    for (const source of wanted) {
      const before = this.#lists.stateOf(source).list?.digest;
      await this.#reader.refresh(source);
      if (this.#lists.stateOf(source).list?.digest !== before) this.#unpublished = true;
    }
  }

  async #adoptSharedIfDue(): Promise<boolean> {
    const now = this.#options.clock.now();
    const waited = now - this.#sharedAt;
    if (waited >= 0 && waited < sharedPollMilliseconds) return true;
    const askable = await this.#exchange.adoptShared();
    if (askable) this.#sharedAt = now;
    return askable;
  }

  async #fetch(choose: () => readonly ExitSource[], acceptSmaller = false): Promise<boolean> {
    const done = await this.#exchange.asFetcher(async () => {
      await Promise.all(choose().map((source) => this.#reader.refresh(source, acceptSmaller)));
      await this.#swap();
      return this.#current.list;
    });
    if (done) this.#unpublished = false;
    return done;
  }

  async #swap(): Promise<void> {
    const { clock, maxAgeMilliseconds, onList } = this.#options;
    const changed = await this.#current.swap(this.#lists.youngerThan(clock.now() - maxAgeMilliseconds));
    if (changed) onList(this.#current.list);
  }
}
