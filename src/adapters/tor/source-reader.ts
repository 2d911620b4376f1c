import type { Clock } from '../../gateway/ports.js';
import { admitExits, refuseShrunken } from './admitted-exits.js';
import type { AdmissionRules } from './admitted-exits.js';
import { parseExitList } from './exit-list-parser.js';
import { dateOf } from './list-date.js';
import { ExitListRefused } from './exit-list-refused.js';
import type { ExitSource } from './exit-source.js';
import type { SourceContent, Validators } from './source-content.js';
import type { SourceLists } from './source-lists.js';

/** What sources are read with. */
export interface SourceReaderOptions {
  readonly lists: SourceLists;
  readonly rules: AdmissionRules;
  readonly clock: Clock;
  /** Reads a source's content; `known` are the validators of the list that is there already. */
  readonly read: (source: ExitSource, known: Validators | null, signal: AbortSignal) => Promise<SourceContent>;
  /** Told of each list that could not be had or was refused. */
  readonly onRefused: (source: ExitSource, refused: ExitListRefused) => void;
}

/** Reads sources, and puts what may be used into their lists. */
export class SourceReader {
  readonly #options: SourceReaderOptions;
  readonly #end = new AbortController();
  readonly #refusals = new Map<string, Map<string, number>>();

  constructor(options: SourceReaderOptions) {
    this.#options = options;
  }

  /**
   * Reads a source. Never rejects: what fails is counted and told, and the list before stays.
   * @param acceptSmaller whether a list may be much smaller than the one before
   */
  async refresh(source: ExitSource, acceptSmaller = false): Promise<void> {
    const { lists, clock } = this.#options;
    try {
      await this.#read(source, acceptSmaller);
    } catch (error) {
      if (this.#end.signal.aborted) return;
      const refused = asRefused(error);
      lists.fail(source, new Date(clock.now()).toISOString(), refused.message);
      this.refuse(source, refused);
    }
  }

  /** Breaks off what is being read. */
  close(): void {
    this.#end.abort();
  }

  /** Counts and tells a refusal. */
  refuse(source: ExitSource, refused: ExitListRefused): void {
    const counts = this.#refusals.get(source.id) ?? new Map<string, number>();
    this.#refusals.set(source.id, counts.set(refused.reason, (counts.get(refused.reason) ?? 0) + 1));
    this.#options.onRefused(source, refused);
  }

  /** Refusals of a source so far, by reason. */
  refusalsOf({ id }: ExitSource): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#refusals.get(id) ?? []);
  }

  async #read(source: ExitSource, acceptSmaller: boolean): Promise<void> {
    const { lists, rules, clock, read } = this.#options;
    const before = lists.stateOf(source).list;
    const content = await read(source, before, this.#end.signal);
    const confirmedAt = new Date(clock.now()).toISOString();
    if (content === 'unchanged') {
      lists.confirm(source, confirmedAt);
      return;
    }
    const admitted = await admitExits(parseExitList(content.text), rules);
    if (!acceptSmaller) refuseShrunken(admitted.addresses.length, before?.addresses.length ?? 0);
    const { etag, lastModified } = content;
    lists.keep(source, { ...admitted, ...dateOf(content), confirmedAt, etag, lastModified });
  }
}

function asRefused(error: unknown): ExitListRefused {
  if (error instanceof ExitListRefused) return error;
  return new ExitListRefused('unreadable', 'reading it failed in a way that was not foreseen', { cause: error });
}
