/** A key, and whatever stands behind it up to the next word: one that was made elsewhere may have any of these characters. */
const keyForm = /svc_(?:live|test)_\s*[^\s"']*/gi;
/** The same in JSON, where a backslash belongs to the character behind it. */
const keyInJsonForm = /svc_(?:live|test)_[^\s"'\\]*/gi;
const keyBeginning = /svc_(?:live|test)_/i;
/** Without any of these there is no key, written plainly or encoded; most texts are so. */
const maybeKey = /svc_|%/i;
const percent = 0x25;

/** Says whether a text holds a key, or what could be the beginning of one. */
export function holdsKey(text: string): boolean {
  return keyBeginning.test(text);
}

/**
 * A text in which nothing is left of an API key but its prefix: callers put keys into paths, user agents and wherever
 * else they do not belong, and a log would keep them. A key that is percent-encoded, wholly, in part or many times over, is
 * found as well; then the text is told decoded.
 */
export function maskKeys(text: string): string {
  if (!maybeKey.test(text)) return text;
  const decoded = decode(text);
  return (holdsKey(decoded) ? decoded : text).replace(keyForm, withoutSecret);
}

/** A line of JSON in which no key is left that is written as such; it stays a line of JSON. */
export function maskKeysInJson(line: string): string {
  return line.replace(keyInJsonForm, withoutSecret);
}

function withoutSecret(key: string): string {
  return `${key.slice(0, 'svc_live_'.length)}…`;
}

/**
 * Decodes until nothing is left that is encoded. From the end: what is behind a `%` is decoded by then, and the text is gone
 * through once, however often it was encoded.
 */
function decode(text: string): string {
  if (!text.includes('%')) return text;
  const { length } = text;
  const codes = new Uint16Array(length);
  let start = length;
  for (let index = length - 1; index >= 0; index -= 1) {
    start -= 1;
    codes[start] = text.charCodeAt(index);
    while (codes[start] === percent) {
      const octet = hexDigit(codes[start + 1]) * 16 + hexDigit(codes[start + 2]);
      if (Number.isNaN(octet)) break;
      start += 2;
      codes[start] = octet;
    }
  }
  return Buffer.from(codes.buffer, 2 * start).toString('utf16le');
}

/** NaN where it is none. */
function hexDigit(code = 0): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30;
  const letter = code | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : NaN;
}
