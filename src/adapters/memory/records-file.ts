import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import { deepestLevel, parseStrictJson, StrictJsonError } from '../../json/strict-json.js';
import type { StoredRecords } from './memory-records.js';

const maxRecordsBytes = 256 * 1024 * 1024;

/**
 * Reads a records file: one JSON object of the contract's records by their store keys.
 * @throws OperatorError when it cannot be read, is no JSON object, gives something twice or has what is no record
 */
export async function readRecordsFile(file: string): Promise<StoredRecords> {
  const bytes = await readOperatorFile(file, 'The records file', maxRecordsBytes);
  const records = parseRecords(bytes.toString('utf8'), file);
  if (typeof records !== 'object' || records === null || Array.isArray(records)) {
    throw new OperatorError(`The records file ${file} is not a JSON object of records by their store keys.`);
  }
  // Of a file of another shape nothing would be found, and every key be unanswerable. A name may hold a key: it is not told.
  if (!Object.keys(records).every((name) => name.startsWith('mg:'))) {
    throw new OperatorError(
      `The records file ${file} has a member that is no record's name: expected mg:meta, mg:key:<look-up id> and mg:merchant:<merchant id>.`,
    );
  }
  return records as StoredRecords;
}

/** Of two records of one name JSON.parse keeps the last: a key that was revoked in the first would be active again. */
function parseRecords(text: string, file: string): unknown {
  try {
    return parseStrictJson(text);
  } catch (error) {
    if (!(error instanceof StrictJsonError)) throw error;
    throw new OperatorError(`The records file ${file} ${sentenceOf(error, text)}`);
  }
}

/** What is wrong, where, and what to do. Nothing is quoted: a key may have been pasted where a hash belongs. */
function sentenceOf({ problem, position }: StrictJsonError, text: string): string {
  const lines = text.slice(0, position).split('\n');
  const place = `line ${lines.length}, column ${(lines.at(-1) ?? '').length + 1}`;
  const sentences = {
    invalid:
      position === text.length
        ? `ends at ${place}, before its JSON is complete. Was it cut off? Write it again.`
        : `is not valid JSON at ${place}. Look for a missing comma, quote or bracket there, or for one too many.`,
    'repeated-name': `has a record, or a member of a record, a second time at ${place}. Remove one of the two.`,
    'forbidden-name': `has a member named __proto__ at ${place}. Remove it: no record has one.`,
    'too-deep': `is nested more than ${deepestLevel} levels deep at ${place}. Remove that member: no record has one.`,
    'too-precise': `has a number with more digits than can be kept at ${place}. Write it as an integer.`,
  };
  return sentences[problem];
}
