import type { TorExits, TorListStatus } from '../../gateway/ports.js';
import type { IpAddress } from '../../policy/ip-address.js';
import { ageStart, type ExitSource, expiryStart } from './exit-source.js';
import { ListFiles } from './list-files.js';
import { RecordExchange, type RecordExchangeOptions } from './record-exchange.js';
import { type SourceList, SourceLists } from './source-lists.js';
import {
  RefreshSchedule,
  type RefreshScheduleOptions,
  SourceReader,
  type SourceReaderOptions,
} from './source-reader.js';
import { statusOf } from './status.js';
import { type AdmissionRules, TorExitList } from './tor-exit-list.js';

/** Options of the Tor exit list and of its updates. */
export interface MaintenanceOptions
  extends
    Omit<SourceReaderOptions, 'lists'>,
    Omit<RecordExchangeOptions, 'lists' | 'onRefused'>,
    RefreshScheduleOptions {
  readonly sources: readonly ExitSource[];
  readonly rules: AdmissionRules;
  /**
   * Maximum age of a source's list. The age counts from `expiryStart`: the date of the list or its last confirmation,
   * whichever is earlier. The modification time of a list file does not count as a date.
   */
  readonly maxAgeMilliseconds: number;
  /**
   * Whether requests are denied while the list is unavailable. If this option is true, `has` returns null (unknown) for
   * an unavailable list. Otherwise `has` returns false (not an exit).
   */
  readonly denyWhenUnavailable: boolean;
  /** Called with each new merged list. */
  readonly onList: (list: TorExitList) => void;
}

/** How often to check whether work is due. A replaced list file is read after at most this delay. */
const tickMilliseconds = 2_000;
/**
 * How often to read the record that all gateways share. Another gateway's new list arrives after at most this delay.
 */
const sharedPollMilliseconds = 10_000;

/**
 * Keeps the Tor exit list up to date. The list is merged from the last valid list of each source, and replaced
 * atomically. A failure never empties the list: the list only ages, and becomes unavailable when it is too old.
 */
export class MaintainedTorExits implements TorExits {
  readonly #options: MaintenanceOptions;
  readonly #lists: SourceLists;
  readonly #reader: SourceReader;
  readonly #exchange: RecordExchange;
  readonly #schedule: RefreshSchedule;
  readonly #files: ListFiles;
  /** The list merged from the lists of all sources. It is replaced atomically. */
  #list = new TorExitList([]);
  /** The digests of the merged lists, as one string. If this string changes, the lists are merged again. */
  #joined = '';
  /** The latest `expiryStart` of the source lists that are merged in `#list`, in milliseconds since 1970. */
  #expiresSince = -Infinity;
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
  }

  has(address: IpAddress): boolean | null {
    if (this.#available) return this.#list.has(address);
    return this.#options.denyWhenUnavailable ? null : false;
  }

  get digest(): string | null {
    return this.#available ? this.#list.digest : null;
  }

  unavailableReason(): string | null {
    if (this.#available || !this.#options.denyWhenUnavailable) return null;
    const [list] = this.#newestFirst();
    if (list === undefined) return 'no Tor exit list is loaded yet';
    const since = new Date(expiryStart(list)).toISOString();
    return `the list is older than torExits.maxAgeHours${since === list.confirmedAt ? '' : ` (its date is ${since})`}`;
  }

  ageWarning(): string | null {
    const [list] = this.#newestFirst(ageStart);
    const { clock, maxAgeMilliseconds } = this.#options;
    if (list === undefined || !this.#available || clock.now() - ageStart(list) <= maxAgeMilliseconds) return null;
    return `the list file was last written at ${new Date(ageStart(list)).toISOString()}, more than torExits.maxAgeHours ago: replace the file`;
  }

  status(): TorListStatus {
    return statusOf({
      available: this.#available,
      list: this.#list,
      now: this.#options.clock.now(),
      sources: this.#options.sources.map((source) => ({
        name: source.name,
        state: this.#lists.stateOf(source),
        refusals: this.#reader.refusalsOf(source),
      })),
    });
  }

  /**
   * Loads lists from the snapshot file, list files and the record that all gateways share. Sends no request to a
   * source's server and writes nothing.
   */
  load(): Promise<void> {
    return this.#inTurn(async () => {
      await this.#exchange.adoptSnapshot();
      await this.#exchange.adoptShared();
      await this.#readFiles();
      await this.#swap();
    });
  }

  /** Calls `tick` now and periodically, until `close` is called. */
  start(): void {
    let busy = false;
    const tick = (): void => {
      if (busy) return;
      busy = true;
      this.tick()
        .catch((error: unknown) => {
          this.#options.onProblem('the Tor exit list could not be updated', error);
        })
        .finally(() => (busy = false));
    };
    this.#timer = setInterval(tick, tickMilliseconds).unref();
    tick();
  }

  /**
   * Does the work that is due: reads changed files, adopts lists that another gateway fetched, and fetches lists. Also
   * updates the snapshot file, and publishes the record again if the key store has lost it.
   */
  tick(): Promise<void> {
    return this.#inTurn(async () => {
      await this.#exchange.adoptSnapshot();
      await this.#readFiles();
      const askable = await this.#adoptSharedIfDue();
      // Publish a missing record again: a process that starts without it has no previous list to compare sizes with.
      const mustPublish = this.#unpublished || (this.#exchange.isRecordMissing && this.#list.size > 0);
      // `#fetch` acquires a lock in the key store. Without this lock, every gateway would fetch the lists.
      if (askable && (mustPublish || this.#due('url').length > 0)) await this.#fetch(() => this.#due('url'));
      await this.#swap();
      await this.#exchange.saveSnapshot(this.#list);
    });
  }

  /**
   * Reads every source now.
   * @param acceptSmaller whether a list is allowed to be much smaller than the previous one
   * @returns false if another process is fetching, this process lost the right to fetch meanwhile, or the key store is
   * unavailable
   */
  refreshNow(acceptSmaller: boolean): Promise<boolean> {
    return this.#inTurn(async () => {
      const done = await this.#fetch(() => this.#options.sources, acceptSmaller);
      await this.#exchange.saveSnapshot(this.#list);
      return done;
    });
  }

  async close(): Promise<void> {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#reader.close();
    await this.#work;
    await this.#options.shared?.close();
  }

  #newestFirst(sinceOf = expiryStart): SourceList[] {
    return this.#lists.youngerThan(-Infinity).toSorted((one, other) => sinceOf(other) - sinceOf(one));
  }

  get #available(): boolean {
    const { clock, maxAgeMilliseconds } = this.#options;
    return clock.now() - this.#expiresSince <= maxAgeMilliseconds;
  }

  /** Runs tasks one after the other, because interleaved tasks could replace a newer list with an older one. */
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
      return this.#list;
    });
    if (done) this.#unpublished = false;
    return done;
  }

  /** Merges the lists that are not too old, and replaces the current list if the result differs. */
  async #swap(): Promise<void> {
    const { clock, maxAgeMilliseconds, onList } = this.#options;
    const lists = this.#lists.youngerThan(clock.now() - maxAgeMilliseconds);
    const joined = lists.map(({ digest }) => digest).join();
    const changes = joined !== this.#joined;
    if (changes) this.#list = await TorExitList.join(lists.map(({ addresses }) => addresses));
    this.#joined = joined;
    this.#expiresSince = Math.max(-Infinity, ...lists.map(expiryStart));
    if (changes) onList(this.#list);
  }
}
