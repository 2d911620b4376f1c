/** The longest a value from a request may be in a line, in characters. */
const maxValueLength = 1024;

/**
 * Characters that JSON leaves as they are and terminals or log viewers obey: DEL and the C1 controls, line and
 * paragraph separators, and those that turn the direction of text.
 */
const obeyedCharacters = /[\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** A value from a request, cut at its limit and marked where it was cut. */
export function cut(value: string): string {
  return value.length <= maxValueLength ? value : `${value.slice(0, maxValueLength)}…`;
}

/** Text that stands in JSON as it is. */
const plain = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

/** A text as a JSON string in which no character can pass for anything else. */
export function quote(text: string): string {
  return plain.test(text) ? `"${text}"` : serialise(text);
}

/**
 * A number with so many digits behind its point, as JSON has it. As a part of a template it would go through V8's cache of
 * numbers as texts, where such that never come again outlive the young generation: a third of all that did.
 */
export function decimal(value: number, digits: number): string {
  return Number.isFinite(value) ? value.toFixed(digits) : 'null'; // a line is JSON whatever clocks do
}

/** One line of JSON in which no character of a value can pass for anything else. */
export function serialise(value: object | string): string {
  return JSON.stringify(value).replace(
    obeyedCharacters,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

let latestTime = NaN;
let latestTimeText = '';

/** ISO 8601; made once for all requests of a millisecond. */
export function timeText(at: number): string {
  if (at !== latestTime) {
    latestTime = at;
    latestTimeText = new Date(at).toISOString();
  }
  return latestTimeText;
}
