/** A key, with everything up to the next space or quote: a key made elsewhere may contain any other character. */
const keyForm = /svc_(?:live|test)_\s*[^\s"']*/gi;
const keyBeginning = /svc_(?:live|test)_/i;
/** A text without any of these contains no key, plain or encoded. Most texts are of this kind. */
const maybeKey = /svc_|%/i;
const percent = 0x25;

/** Whether a text contains a key, or the possible beginning of one. */
export function containsKey(text: string): boolean {
  return keyBeginning.test(text);
}

/**
 * Reduces each API key in a text to its prefix. Clients put keys into paths, user agents and other fields, and a log
 * would store them. Keys that are percent-encoded, in part or many times over, are found too; the text is then returned
 * decoded.
 */
export function maskKeys(text: string): string {
  if (!maybeKey.test(text)) return text;
  const decoded = decode(text);
  return (containsKey(decoded) ? decoded : text).replace(keyForm, withoutSecret);
}

const prefixes = ['svc_live_', 'svc_test_'];
/** Characters that may separate those of a split prefix. */
const gap = String.raw`[\s"'\`+\\]{0,3}`;
/** An underscore, plain or as HTML, JSON, JavaScript and quoted-printable encode it. */
const underscore = String.raw`(?:_|&#(?:0*95|x0*5f);|&lowbar;|\\u005f|\\x5f|%u005f|=5f)`;
const inOneCase = prefixes.map((prefix) => Array.from(prefix, (one) => (one === '_' ? underscore : one)).join(gap));
const hex = prefixes.map((prefix) => Buffer.from(prefix).toString('hex'));
const disguisedForm = new RegExp([...inOneCase, ...hex].join('|'), 'i');
/** Base64 of a prefix at each of its three offsets, without the characters that depend on the neighbouring bytes. */
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

/** Cuts a client's text where an API key begins. The end of a split or encoded key is unknown. */
export function cutAtKey(text: string): string {
  const decoded = text.includes('%') ? decode(text) : text;
  const plain = disguisedForm.exec(decoded);
  const inBase64 = base64Form.exec(decoded);
  if (plain === null && inBase64 === null) return text;
  const isFirst = plain !== null && plain.index < (inBase64?.index ?? Infinity);
  if (!isFirst) return `${decoded.slice(0, inBase64?.index)}…`;
  return `${decoded.slice(0, plain.index)}${containsKey(plain[0]) ? plain[0] : ''}…`;
}

/** A masked key, as this program writes it. */
const writtenForm = /svc_(?:live|test)_…/gi;

/** A complete key: nothing of it can follow. */
const wholeForm = /svc_(?:live|test)_[^\s"']{49,}/gi;

/** Masks complete API keys, and cuts each line where a split or encoded key begins. */
export function cutKeysInLines(text: string): string {
  return text
    .split('\n')
    .map((line) => {
      const masked = line.replaceAll(wholeForm, withoutSecret);
      const others = masked.replaceAll(writtenForm, '');
      return cutAtKey(others) === others ? masked : cutAtKey(masked);
    })
    .join('\n');
}

/** A JSON value in which each text and each name is cut where an API key begins. */
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
 * Removes every percent-encoding, in one pass from the end. Text after a `%` is already decoded then, so one pass is
 * enough for repeated encoding.
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

/** NaN for any other character. */
function hexDigit(code = 0): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30;
  const letter = code | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : NaN;
}
