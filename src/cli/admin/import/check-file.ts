import { OperatorError } from '../../../config/operator-error.js';
import type { Entry } from '../../../registry/imports/entry.js';
import { longestLineBytes, readLine, type ReadLine } from '../../../registry/imports/read-line.js';
import { checkedSchema, mostEntries } from '../../../registry/imports/schema.js';
import type { AdminClient } from '../admin-client.js';
import { Batcher, type SizedEntry } from './batches.js';
import { linesOf } from './lines.js';
import { addCounts, noCounts, type Totals } from './totals.js';

/** The most lines of one file: where each id came first is held in memory. */
const mostLines = 2_000_000;
const mostProblems = 100;

/** What is wrong with a line. */
interface LineProblem {
  readonly line: number;
  readonly message: string;
}

/** What a file holds. */
export interface CheckedFile extends Totals {
  readonly lines: number;
  /** How many lines are bad. */
  readonly bad: number;
  /** The first of what is wrong. */
  readonly problems: readonly LineProblem[];
}

/** How a file is checked. */
export interface CheckOptions {
  readonly client: AdminClient;
  readonly stream: AsyncIterable<Buffer>;
  /** Gets each line that is good by itself, and undefined in the place of every other. */
  readonly keep: (line: string | undefined) => Promise<void>;
  readonly onProgress: (lines: number, bytes: number) => void;
}

/**
 * Checks every line of a file: by itself, against those before it, and against the registry, which stores nothing.
 * @throws OperatorError where the registry cannot be asked, or the file is too long
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

  /** A line that is good as far as can be told here; null for one that is bad or blank. */
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

/** What was found so far; of problems the first, and how many lines have one. */
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
    // Those of the registry come a batch later.
    this.#problems.sort((a, b) => a.line - b.line).splice(mostProblems);
  }

  result() {
    return { ...this.#totals, bad: this.#bad, problems: this.#problems };
  }
}

function isBlank(bytes: Buffer): boolean {
  return bytes.every((byte) => byte === 0x20 || byte === 0x09);
}

/** Remembers where in a file each id comes first. */
class FirstLines {
  readonly #lookupIds = new Map<string, number>();
  readonly #keyIds = new Map<string, number>();
  readonly #merchants = new Map<string, number>();

  /** Takes in an entry; says what is wrong if one of its ids has come before. */
  take(entry: Entry, line: number): string | null {
    if (entry.type === 'merchant') return repeated(this.#merchants, 'merchantId', entry.merchantId, line);
    // Half the characters, of one byte each: there may be millions.
    const hash = Buffer.from(entry.lookupId, 'hex').toString('latin1');
    const problem = repeated(this.#lookupIds, 'lookupId', hash, line);
    if (problem !== null || entry.keyId === null) return problem;
    return repeated(this.#keyIds, 'keyId', entry.keyId, line);
  }

  /** Whether a line so far is of this merchant. */
  hasMerchant(merchantId: string): boolean {
    return this.#merchants.has(merchantId);
  }
}

function repeated(seen: Map<string, number>, field: string, value: string, line: number): string | null {
  const first = seen.get(value);
  if (first !== undefined) return `${field} is that of line ${first} already`;
  seen.set(value, line);
  return null;
}
