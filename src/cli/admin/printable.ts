// Control characters of both sets, line and paragraph separators, and those that turn the direction of a text.
const hidden = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/gu;

/** A text on one line that moves no cursor: what a terminal would obey, or not show, is written as JSON would. */
export function printable(text: string): string {
  return text.replaceAll(hidden, escaped);
}

/** Indented JSON of the same value, of which a terminal obeys nothing. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value, null, 2).split('\n').map(printable).join('\n');
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
