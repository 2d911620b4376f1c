// Matches C0 and C1 controls, lone surrogates, line and paragraph separators, and bidirectional controls.
const hidden = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/gu;

/** Escapes terminal control characters and invisible characters like JSON does, so that the text stays on one line. */
export function printable(text: string): string {
  return text.replaceAll(hidden, escaped);
}

/** Formats a value as indented JSON, with terminal control characters escaped. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value, null, 2).split('\n').map(printable).join('\n');
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
