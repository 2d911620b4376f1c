import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import { parseStrictJson, StrictJsonError } from '../../rest/strict-json.js';
import type { StoredRecords } from './memory-records.js';

const maxRecordsBytes = 256 * 1024 * 1024;

/**
 * Reads a records file: one JSON object of the contract's records by their store keys.
 * @throws OperatorError when it cannot be read, is no JSON object, gives something twice or has what is no record
 */
export async function readRecordsFile(file: string): Promise<StoredRecords> {
  const text = await readOperatorFile(file, 'The records file', maxRecordsBytes);
  let records: unknown;
  try {
    records = JSON.parse(text.toString('utf8'));
  } catch {
    // The parser's own message quotes the text, and with it perhaps a key that was pasted where a hash belongs.
    throw new OperatorError(`The records file ${file} is not JSON.`);
  }
  if (typeof records !== 'object' || records === null || Array.isArray(records)) {
    throw new OperatorError(`The records file ${file} is not a JSON object of records by their store keys.`);
  }
  requireEverythingOnce(text.toString('utf8'), file);
  // Of a file of another shape nothing would be found, and every key be unanswerable. A name may hold a key: it is not told.
  if (!Object.keys(records).every((name) => name.startsWith('mg:'))) {
    throw new OperatorError(
      `The records file ${file} has a member that is no record's name: expected mg:meta, mg:key:<look-up id> and mg:merchant:<merchant id>.`,
    );
  }
  return records as StoredRecords;
}

/** Of two records of one name JSON.parse keeps the last: a key that was revoked in the first would be active again. */
function requireEverythingOnce(text: string, file: string): void {
  try {
    parseStrictJson(text);
  } catch (error) {
    if (!(error instanceof StrictJsonError)) throw error;
    throw new OperatorError(`The records file ${file} gives a record, or a field of a record, more than once.`);
  }
}
