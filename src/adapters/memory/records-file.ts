import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import type { StoredRecords } from './memory-records.js';

const maxRecordsBytes = 256 * 1024 * 1024;

/**
 * Reads a records file: one JSON object of the contract's records by their store keys.
 * @throws OperatorError when it cannot be read or is no JSON object
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
  return records as StoredRecords;
}
