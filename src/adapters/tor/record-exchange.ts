import type { Clock } from '../../gateway/ports.js';
import type { ExitListRefused, ExitSource } from './exit-source.js';
import type { SnapshotFile } from './list-files.js';
import { type FetchClaim, parseExitListRecord, type SharedExitLists, type SourceLists } from './source-lists.js';
import type { TorExitList } from './tor-exit-list.js';

/** Between what records are exchanged. */
export interface RecordExchangeOptions extends ProblemEvents {
  readonly lists: SourceLists;
  readonly snapshot: Pick<SnapshotFile, 'readChanged' | 'write'>;
  /** null: this process fetches for itself. */
  readonly shared: SharedExitLists | null;
  readonly clock: Clock;
  /** Told of a list in a record that was refused. */
  readonly onRefused: (source: ExitSource, refused: ExitListRefused) => void;
}

/** Gives and takes the last good lists: to and from the file on disk, and the other gateways of the cluster. */
export class RecordExchange {
  readonly #options: RecordExchangeOptions;
  readonly #reading: ToldOnce;
  readonly #writing: ToldOnce;
  readonly #saving: ToldOnce;
  #sharedText: string | null = null;
  #savedRevision = 0;

  constructor(options: RecordExchangeOptions) {
    this.#options = options;
    this.#reading = new ToldOnce(
      options,
      'the Tor exit list cannot be read from the key store',
      'the Tor exit list is read from the key store again',
    );
    this.#writing = new ToldOnce(
      options,
      'the Tor exit list cannot be written to the key store',
      'the Tor exit list is written to the key store again',
    );
    this.#saving = new ToldOnce(
      options,
      'the snapshot of the Tor exit list cannot be written',
      'the snapshot of the Tor exit list is written again',
    );
  }

  /** Takes over what the snapshot file has newer. */
  async adoptSnapshot(): Promise<void> {
    try {
      const text = await this.#options.snapshot.readChanged();
      if (text !== null) await this.#adopt(text);
    } catch (error) {
      this.#options.onProblem('the snapshot of the Tor exit list cannot be used', error);
    }
  }

  /** Writes the snapshot file where there is something new to keep; tries again at the next call where that fails. */
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
   * Takes over what another gateway has fetched.
   * @returns false where the key store could not be asked
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
   * Does something as the one process of the cluster that fetches, and tells the others what has come of it.
   * @param act begins with everything known that others have fetched, and returns the list in force after it
   * @returns false where another process fetches, or the key store could not be asked: then nothing was done
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
      if (await claim.publish(record)) this.#sharedText = record;
      this.#writing.wentWell();
      return true;
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

/** Who is told of what goes wrong, and of its end. */
interface ProblemEvents {
  readonly onProblem: (problem: string, error: unknown) => void;
  readonly onRecovered: (what: string) => void;
}

/** Something that is tried again and again: told when it first fails and when it next goes well, however often it fails between. */
class ToldOnce {
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
