import { OperatorError } from '../../../config/operator-error.js';
import { longestLineBytes } from '../../../registry/imports/read-line.js';
import { importedSchema, mostEntries } from '../../../registry/imports/schema.js';
import type { AdminClient } from '../admin-client.js';
import { Batcher, type SizedEntry } from './batches.js';
import { linesOf } from './lines.js';
import { addCounts, noCounts, type Totals } from './totals.js';

/** The result of an import. */
export interface ImportedFile extends Totals {
  /** Whether all imported records are already in the store that the gateways read. */
  readonly projected: boolean;
}

/** The input and callbacks of `importLines`. */
export interface ImportOptions {
  readonly client: AdminClient;
  readonly stream: AsyncIterable<Buffer>;
  readonly onProgress: (line: number) => void;
  /** When aborted, stops the import before the next batch of lines is sent. */
  readonly signal: AbortSignal;
}

/**
 * Imports checked lines in batches. Each batch is imported completely or not at all. Existing records stay unchanged,
 * so the user can repeat an interrupted import from its start.
 * @throws OperatorError that names the last imported line, and says how to continue
 */
export async function importLines({ client, stream, onProgress, signal }: ImportOptions): Promise<ImportedFile> {
  const totals = { created: noCounts(), present: noCounts() };
  let [last, projected] = [0, true];
  const batcher = new Batcher<SizedEntry>(mostEntries, async (batch) => {
    try {
      if (signal.aborted) throw new OperatorError('Interrupted.');
      const body = { entries: batch.map(({ value }) => value) };
      const request = { method: 'POST', path: ['imports'], body, expects: importedSchema, isRepeatable: true } as const;
      const { data } = await client.ask(request);
      addCounts(totals, data);
      last = batch.at(-1)?.line ?? last;
      // The last response decides: its `projected` covers all earlier changes, even if its batch created no record.
      projected = data.projected;
      onProgress(last);
    } catch (error) {
      throw error instanceof OperatorError ? stopped(error, last, batch[0]?.line ?? 0) : error;
    }
  });
  for await (const { number, bytes } of linesOf(stream, longestLineBytes)) {
    if (bytes === null || bytes.length === 0) continue;
    await batcher.add({ line: number, value: JSON.parse(bytes.toString()) as object, bytes: bytes.length });
  }
  await batcher.flush();
  return { ...totals, projected };
}

function stopped(error: OperatorError, last: number, next: number): OperatorError {
  const done =
    last === 0 ? 'The registry has not confirmed the import of any line' : `Every line up to ${last} is imported`;
  return new OperatorError(
    `${error.message}\nStopped at line ${next}. ${done}. ` +
      'To continue, run the same command again: existing records stay unchanged.',
    { cause: error },
  );
}
