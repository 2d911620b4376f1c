import { OperatorError } from '../../../config/operator-error.js';
import type { Entry } from '../../../registry/imports/entry.js';
import { longestLineBytes, readLine, type ReadLine } from '../../../registry/imports/read-line.js';
import { checkedSchema, mostEntries } from '../../../registry/imports/schema.js';
import type { AdminClient } from '../admin-client.js';
import { Batcher, type SizedEntry } from './batches.js';
import { linesOf } from './lines.js';
import { addCounts, noCounts, type Totals } from './totals.js';

/** Maximum number of lines in a file. This limits memory use: `FirstLines` stores a line number for each id. */
const mostLines = 2_000_000;
const mostProblems = 100;

/** A problem in one line of the file. */
interface LineProblem {
  readonly line: number;
  readonly message: string;
}

/** The result of checking a file before its import. */
export interface CheckedFile extends Totals {
  readonly lines: number;
  /** Number of invalid lines in the file. */
  readonly bad: number;
  /** The first 100 problems, sorted by line. */
  readonly problems: readonly LineProblem[];
}

/** The input and the callbacks of `checkFile`. */
export interface CheckOptions {
  readonly client: AdminClient;
  readonly stream: AsyncIterable<Buffer>;
  /**
   * Called for each line. Gets the line as JSON if the line passes all checks that need no registry. Gets undefined for
   * a blank or invalid line.
   */
  readonly keep: (line: string | undefined) => Promise<void>;
  readonly onProgress: (lines: number, bytes: number) => void;
}

/**
 * Checks every line of a file: first on its own and against earlier lines, then by a dry run in the registry, which
 * stores nothing.
 * @throws OperatorError if the registry is unreachable or rejects the request, or if the file has too many lines
 */
export async function checkFile({ client, stream, keep, onProgress }: CheckOptions): Promise<CheckedFile> {
  const first = new FirstLines();
  const found = new Found();
  const batcher = new Batcher<SizedEntry & { entry: Entry; expects: string | null }>(mostEntries, async (batch) => {
    const merchants = [...new Set(batch.map(({ expects }) => expects).filter((id) => id !== null))];
    const body = { entries: batch.map(({ value }) => value), merchants };
    const asked = { method: 'POST', path: ['imports', 'check'], body, expects: checkedSchema } as const;
    const { data } = await client.ask({ ...asked, isRepeatable: true });
    found.add(data);
    for (const { index, message } of data.problems) found.problem(batch[index]?.line ?? 0, message);
  });
  let lines = 0;
  for await (const { number, bytes, end } of linesOf(stream, longestLineBytes)) {
    if (number > mostLines) {
      throw new OperatorError(`The file has more than ${mostLines} lines: split it. Nothing was imported.`);
    }
    lines = number;
    onProgress(number, end);
    const good = readGood(bytes, number);
    await keep(good?.text);
    if (good === null) continue;
    const { value, entry, text } = good;
    const expects = first.hasMerchant(entry.merchantId) ? entry.merchantId : null;
    await batcher.add({ line: number, value, entry, expects, bytes: Buffer.byteLength(text) });
  }
  await batcher.flush();
  return { lines, ...found.result() };

  /**
   * Reads a line and checks it on its own and against earlier lines. The registry checks the line later. Returns null
   * for a blank line. For an invalid line, records the problems and returns null.
   */
  function readGood(bytes: Buffer | null, line: number): (ReadLine & { readonly text: string }) | null {
    if (bytes !== null && isBlank(bytes)) return null;
    const read = bytes === null ? [{ message: `is longer than ${longestLineBytes} bytes` }] : readLine(bytes);
    if (!('entry' in read)) {
      found.problem(line, ...read.map(({ message }) => message));
      return null;
    }
    const repeated = first.take(read.entry, line);
    if (repeated === null) return { ...read, text: JSON.stringify(read.value) };
    found.problem(line, repeated);
    return null;
  }
}

/** Collects the totals, the first problems, and the number of invalid lines. */
class Found {
  readonly #problems: LineProblem[] = [];
  readonly #totals = { created: noCounts(), present: noCounts() };
  #bad = 0;

  add(totals: Totals): void {
    addCounts(this.#totals, totals);
  }

  problem(line: number, ...messages: readonly string[]): void {
    this.#bad += 1;
    this.#problems.push(...messages.map((message) => ({ line, message })));
    // Sort by line, because the problems that the registry finds are added only after a whole batch of lines.
    this.#problems.sort((a, b) => a.line - b.line).splice(mostProblems);
  }

  result() {
    return { ...this.#totals, bad: this.#bad, problems: this.#problems };
  }
}

function isBlank(bytes: Buffer): boolean {
  return bytes.every((byte) => byte === 0x20 || byte === 0x09);
}

/** Remembers in which line of the file each id first occurs. */
class FirstLines {
  readonly #lookupIds = new Map<string, number>();
  readonly #keyIds = new Map<string, number>();
  readonly #merchants = new Map<string, number>();

  /** Remembers the ids of an entry. Returns a problem if one of them occurs in an earlier line, otherwise null. */
  take(entry: Entry, line: number): string | null {
    if (entry.type === 'merchant') return repeated(this.#merchants, 'merchantId', entry.merchantId, line);
    // There can be millions of hashes. As a Latin-1 string, a hash is half as long as in hex.
    const hash = Buffer.from(entry.lookupId, 'hex').toString('latin1');
    const problem = repeated(this.#lookupIds, 'lookupId', hash, line);
    if (problem !== null || entry.keyId === null) return problem;
    return repeated(this.#keyIds, 'keyId', entry.keyId, line);
  }

  /** Whether an earlier line contains this merchant. */
  hasMerchant(merchantId: string): boolean {
    return this.#merchants.has(merchantId);
  }
}

function repeated(seen: Map<string, number>, field: string, value: string, line: number): string | null {
  const first = seen.get(value);
  if (first !== undefined) return `the same ${field} is already in line ${first}`;
  seen.set(value, line);
  return null;
}
