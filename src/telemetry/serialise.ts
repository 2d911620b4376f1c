/** The most characters that a line holds of a request's value. */
const maxValueLength = 1024;

/**
 * Characters that JSON does not escape, but terminals and log viewers interpret: DEL and the C1 controls, line and
 * paragraph separators, and bidirectional controls.
 */
const interpretedCharacters = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** Cuts a request's value at the limit and marks the cut. */
export function cut(value: string): string {
  return value.length <= maxValueLength ? value : `${value.slice(0, maxValueLength)}…`;
}

/** Text that JSON does not escape. */
const plain = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

/** A text as a JSON string in which no character can be misinterpreted. */
export function quote(text: string): string {
  return plain.test(text) ? `"${text}"` : serialise(text);
}

/**
 * A JSON number with this many decimals. A template would use V8's number-to-string cache, where texts of numbers that
 * never recur outlive the young generation: a third of all survivors.
 */
export function decimal(value: number, digits: number): string {
  return Number.isFinite(value) ? value.toFixed(digits) : 'null'; // a line is valid JSON whatever a clock returns
}

/** One line of JSON in which no character of a value can be misinterpreted. */
export function serialise(value: object | string): string {
  return JSON.stringify(value).replace(
    interpretedCharacters,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

let latestTime = NaN;
let latestTimeText = '';

/** ISO 8601; formatted once for all requests of a millisecond. */
export function timeText(at: number): string {
  if (at !== latestTime) {
    latestTime = at;
    latestTimeText = new Date(at).toISOString();
  }
  return latestTimeText;
}
