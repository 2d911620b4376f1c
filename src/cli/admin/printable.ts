// Matches control characters (C0, DEL, C1), lone surrogates, line and paragraph separators, bidirectional controls, and
// the byte order mark.
const hidden = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/gu;

/**
 * Replaces control characters and invisible characters by JSON escapes, such as `\u001b`. The text then stays on one
 * line and cannot control the terminal.
 */
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
