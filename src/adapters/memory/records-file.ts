import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import { deepestLevel, parseStrictJson, StrictJsonError } from '../../json/strict-json.js';
import type { StoredRecords } from './memory-records.js';

const maxRecordsBytes = 256 * 1024 * 1024;

/**
 * Reads a records file: one JSON object. Its members are the records of docs/records.md, and their names are the store
 * keys. A malformed record is not an error here: it makes only its own key or merchant unavailable.
 * @throws OperatorError if the file is unreadable, not a JSON object, repeats a name, or has a name without `mg:` at
 * its start
 */
export async function readRecordsFile(file: string): Promise<StoredRecords> {
  const bytes = await readOperatorFile(file, 'The records file', maxRecordsBytes);
  const records = parseRecords(bytes.toString('utf8'), file);
  if (typeof records !== 'object' || records === null || Array.isArray(records)) {
    throw new OperatorError(
      `The records file ${file} must be one JSON object. The name of each member is the name of a record, and its value is the record.`,
    );
  }
  // Rejects names without `mg:`, because those members would not be loaded as records. The error quotes no name,
  // because a name could contain an API key.
  if (!Object.keys(records).every((name) => name.startsWith('mg:'))) {
    throw new OperatorError(
      `The records file ${file} has a member with an unknown name. Expected mg:meta, mg:key:<lookup id> and mg:merchant:<merchant id>.`,
    );
  }
  return records as StoredRecords;
}

/**
 * Parses strictly, because JSON.parse keeps the last of two records with the same name: a revoked key could become
 * active again.
 */
function parseRecords(text: string, file: string): unknown {
  try {
    return parseStrictJson(text);
  } catch (error) {
    if (!(error instanceof StrictJsonError)) throw error;
    throw new OperatorError(`The records file ${file} ${sentenceOf(error, text)}`);
  }
}

/**
 * Describes the JSON problem, its line and the remedy. Quotes nothing, because an operator may have pasted a key
 * instead of its hash.
 */
function sentenceOf({ problem, position }: StrictJsonError, text: string): string {
  const lines = text.slice(0, position).split('\n');
  const place = `line ${lines.length}, column ${(lines.at(-1) ?? '').length + 1}`;
  const sentences = {
    invalid:
      position === text.length
        ? `ends at ${place}, before the JSON is complete. It may be truncated: write it again.`
        : `is not valid JSON at ${place}. A comma, quote or bracket may be missing there, or there may be one too many.`,
    'repeated-name': `has a duplicate member name at ${place}. Remove one of the two members.`,
    'forbidden-name': `has a member named __proto__ at ${place}. Remove this member: no record has that name.`,
    'too-deep': `is nested more than ${deepestLevel} levels deep at ${place}. Remove the deepest levels: no valid record needs them.`,
    'too-precise': `has a number with too many digits at ${place}. It cannot be stored exactly: write it as an integer.`,
  };
  return sentences[problem];
}
