/** A key, and whatever stands behind it up to the next word: one that was made elsewhere may have any of these characters. */
const keyForm = /svc_(?:live|test)_\s*[^\s"']*/gi;
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

const prefixes = ['svc_live_', 'svc_test_'];
/** What may stand between the characters of a prefix that is split. */
const gap = String.raw`[\s"'\`+\\]{0,3}`;
/** An underscore, also as HTML, JSON, JavaScript and quoted-printable write it. */
const underscore = String.raw`(?:_|&#(?:0*95|x0*5f);|&lowbar;|\\u005f|\\x5f|%u005f|=5f)`;
const inOneCase = prefixes.map((prefix) => Array.from(prefix, (one) => (one === '_' ? underscore : one)).join(gap));
const hex = prefixes.map((prefix) => Buffer.from(prefix).toString('hex'));
const disguisedForm = new RegExp([...inOneCase, ...hex].join('|'), 'i');
/** Base64 of a prefix at each of its three offsets, without the characters that depend on the bytes around it. */
const base64Form = new RegExp(
  prefixes.flatMap((prefix) => [0, 1, 2].map((before) => base64Behind(before, prefix))).join('|'),
);

function base64Behind(before: number, prefix: string): string {
  const firstBit = before * 8;
  const lastBit = firstBit + prefix.length * 8;
  const text = Buffer.from('\0'.repeat(before) + prefix).toString('base64');
  return text
    .slice(Math.ceil(firstBit / 6), Math.floor(lastBit / 6))
    .replaceAll('+', '[+-]')
    .replaceAll('/', '[/_]');
}

/**
 * Cuts a caller's text where an API key begins in it. The key may be split or encoded, so that nobody can tell where it ends.
 */
export function cutAtKey(text: string): string {
  const decoded = text.includes('%') ? decode(text) : text;
  const plain = disguisedForm.exec(decoded);
  const inBase64 = base64Form.exec(decoded);
  if (plain === null && inBase64 === null) return text;
  const isFirst = plain !== null && plain.index < (inBase64?.index ?? Infinity);
  if (!isFirst) return `${decoded.slice(0, inBase64?.index)}…`;
  return `${decoded.slice(0, plain.index)}${holdsKey(plain[0]) ? plain[0] : ''}…`;
}

/** A value of JSON in which each text, and each name, ends where an API key begins in it. */
export function cutKeysIn(value: unknown): unknown {
  if (typeof value === 'string') return cutAtKey(value);
  if (Array.isArray(value)) return value.map(cutKeysIn);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [cutAtKey(name), cutKeysIn(part)]));
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
