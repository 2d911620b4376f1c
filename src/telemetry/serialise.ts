/** Maximum number of characters of a value from the client, such as the path, in a log line. */
const maxValueLength = 1024;

/**
 * Characters that terminals and log viewers interpret, but that JSON does not escape. A client could use them to
 * falsify the displayed log. They are DEL and C1 controls, line and paragraph separators, bidirectional controls, and
 * the byte order mark.
 */
const interpretedCharacters = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** Truncates a value of a request to the maximum length, and appends `…` to a truncated value. */
export function cut(value: string): string {
  return value.length <= maxValueLength ? value : `${value.slice(0, maxValueLength)}…`;
}

/** Matches an ASCII text in which JSON escapes no character. */
const plain = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

/** Formats a text as a JSON string, and escapes the characters that terminals interpret. */
export function quote(text: string): string {
  return plain.test(text) ? `"${text}"` : serialise(text);
}

/**
 * Formats a number as JSON with a fixed number of decimals. A template string would fill V8's number-to-string cache
 * with texts that never recur. These texts were a third of all objects that survived garbage collection.
 */
export function decimal(value: number, digits: number): string {
  // Null keeps the line valid JSON if a clock returns no number.
  return Number.isFinite(value) ? value.toFixed(digits) : 'null';
}

/** Formats a value as one line of JSON, and escapes the characters that terminals interpret. */
export function serialise(value: object | string): string {
  return JSON.stringify(value).replace(
    interpretedCharacters,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

let latestTime = NaN;
let latestTimeText = '';

/** Formats a time as ISO 8601. The result is reused for all requests in the same millisecond. */
export function timeText(at: number): string {
  if (at !== latestTime) {
    latestTime = at;
    latestTimeText = new Date(at).toISOString();
  }
  return latestTimeText;
}
