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

/** One line of JSON in which no character of a value can pass for anything else. */
export function serialise(line: object): string {
  return JSON.stringify(line).replace(
    obeyedCharacters,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
