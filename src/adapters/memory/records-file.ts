import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import { parseStrictJson, StrictJsonError } from '../../rest/strict-json.js';
import type { StoredRecords } from './memory-records.js';

const maxRecordsBytes = 256 * 1024 * 1024;

/**
 * Reads a records file: one JSON object of the contract's records by their store keys.
 * @throws OperatorError when it cannot be read, is no JSON object or gives something twice
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
