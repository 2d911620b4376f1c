import type { Clock } from '../../gateway/ports.js';
import type { ExitListRejected, ExitSource } from './exit-source.js';
import type { SnapshotFile } from './list-files.js';
import { type FetchClaim, parseExitListRecord, type SharedExitLists, type SourceLists } from './source-lists.js';
import type { TorExitList } from './tor-exit-list.js';

/** Where lists are stored and shared, and callbacks for problems. */
export interface RecordExchangeOptions extends ProblemEvents {
  readonly lists: SourceLists;
  readonly snapshot: Pick<SnapshotFile, 'readChanged' | 'write'>;
  /** The store that gateways share. Null: no such store, so this process fetches lists only for itself. */
  readonly shared: SharedExitLists | null;
  readonly clock: Clock;
  /** Called for each rejected list of a stored record. */
  readonly onRefused: (source: ExitSource, refused: ExitListRejected) => void;
}

/**
 * Reads and writes the last valid lists of all sources: in the snapshot file, and in a record in the key store that all
 * gateways share.
 */
export class RecordExchange {
  readonly #options: RecordExchangeOptions;
  readonly #reading: TransitionReporter;
  readonly #writing: TransitionReporter;
  readonly #saving: TransitionReporter;
  #sharedText: string | null = null;
  #savedRevision = 0;

  constructor(options: RecordExchangeOptions) {
    this.#options = options;
    this.#reading = new TransitionReporter(
      options,
      'the Tor exit list cannot be read from the key store',
      'the Tor exit list can be read from the key store again',
    );
    this.#writing = new TransitionReporter(
      options,
      'the Tor exit list cannot be written to the key store',
      'the Tor exit list can be written to the key store again',
    );
    this.#saving = new TransitionReporter(
      options,
      'the snapshot of the Tor exit list cannot be written',
      'the snapshot of the Tor exit list can be written again',
    );
  }

  /** Whether the key store had no record when it was last read, for example because Redis has lost its data. */
  get isRecordMissing(): boolean {
    return this.#options.shared !== null && this.#sharedText === null;
  }

  /** Adopts newer lists from the snapshot file, if the file has changed. */
  async adoptSnapshot(): Promise<void> {
    try {
      const text = await this.#options.snapshot.readChanged();
      if (text !== null) await this.#adopt(text);
    } catch (error) {
      this.#options.onProblem('the snapshot of the Tor exit list cannot be used', error);
    }
  }

  /**
   * Writes the snapshot file if a list has changed or its source has confirmed it. A failed write is retried at the
   * next call.
   */
  async saveSnapshot(list: TorExitList): Promise<void> {
    const { lists, snapshot } = this.#options;
    const { revision } = lists;
    if (revision === this.#savedRevision) return;
    try {
      await snapshot.write(this.#record(list));
      this.#savedRevision = revision;
      this.#saving.wentWell();
    } catch (error) {
      this.#saving.failed(error);
    }
  }

  /**
   * Adopts lists that another gateway has fetched.
   * @returns false if the key store is unavailable
   */
  async adoptShared(): Promise<boolean> {
    const { shared, onProblem } = this.#options;
    if (shared === null) return true;
    let text: string | null;
    try {
      text = await shared.read();
    } catch (error) {
      this.#reading.failed(error);
      return false;
    }
    this.#reading.wentWell();
    try {
      if (text !== null && text !== this.#sharedText) await this.#adopt(text);
    } catch (error) {
      onProblem('the Tor exit list in the key store cannot be used', error);
    }
    this.#sharedText = text;
    return true;
  }

  /**
   * Calls `act` while this process has the exclusive right to fetch, and publishes the result unless the right was lost
   * meanwhile. Without a shared store, only calls `act`.
   * @param act called after lists of other gateways have been adopted; returns the list that is current after the fetch
   * @returns true if the list was published, or if there is no shared store. False if another process is fetching, the
   *   right to fetch was lost, or the key store is unavailable.
   */
  async asFetcher(act: () => Promise<TorExitList>): Promise<boolean> {
    const { shared } = this.#options;
    if (shared === null) {
      await act();
      return true;
    }
    let claim: FetchClaim | null = null;
    try {
      claim = await shared.claim();
      if (claim === null) {
        this.#writing.wentWell();
        return false;
      }
      if (!(await this.adoptShared())) return false;
      const record = this.#record(await act());
      const isPublished = await claim.publish(record);
      if (isPublished) this.#sharedText = record;
      this.#writing.wentWell();
      return isPublished;
    } catch (error) {
      this.#writing.failed(error);
      return false;
    } finally {
      await claim?.release();
    }
  }

  async #adopt(text: string): Promise<void> {
    const { lists, clock, onRefused } = this.#options;
    for (const [source, refused] of await lists.adopt(parseExitListRecord(text), clock.now())) {
      onRefused(source, refused);
    }
  }

  #record(list: TorExitList): string {
    return JSON.stringify(this.#options.lists.toRecord(this.#options.clock.now(), list));
  }
}

/** Callbacks for a problem and for its end. */
interface ProblemEvents {
  readonly onProblem: (problem: string, error: unknown) => void;
  readonly onRecovered: (what: string) => void;
}

/** Reports the first failure of a repeated action and its next success, but not the failures in between. */
class TransitionReporter {
  readonly #events: ProblemEvents;
  readonly #problem: string;
  readonly #recovered: string;
  #isFailing = false;

  constructor(events: ProblemEvents, problem: string, recovered: string) {
    this.#events = events;
    this.#problem = problem;
    this.#recovered = recovered;
  }

  failed(error: unknown): void {
    if (!this.#isFailing) this.#events.onProblem(this.#problem, error);
    this.#isFailing = true;
  }

  wentWell(): void {
    if (this.#isFailing) this.#events.onRecovered(this.#recovered);
    this.#isFailing = false;
  }
}
