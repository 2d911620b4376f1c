import { decodeEscapes, escapeBeginning } from './escapes.js';

/** Matches an API key up to the next white space or quote. Imported keys can contain any other character. */
const keyForm = /svc_(?:live|test)_\s*[^\s"']*/gi;
const keyBeginning = /svc_(?:live|test)_/i;

/** Matches a token of an administrator, even if its end was cut off. */
const tokenForm = /mga_[A-Za-z0-9_-]{16,}/g;

/** Replaces each token of an administrator in a text with its prefix. */
export function maskTokens(text: string): string {
  return text.replaceAll(tokenForm, 'mga_…');
}

/**
 * Returns true if a text contains an API key or the beginning of a key. The key can be encoded, or split by other
 * characters.
 */
export function containsKey(text: string): boolean {
  return keyBeginning.test(text) || cutAtKey(text) !== text;
}

/**
 * Replaces each API key in a text with the key's prefix, so that the log stores no key. Clients put keys into paths,
 * user agents and other fields. If a key appears only after escapes are decoded, even nested ones, returns the decoded
 * text. If a key is encoded or split in another way, cuts the text where this key begins.
 */
export function maskKeys(text: string): string {
  if (!mayContainKey.test(text) && !keyBeginning.test(text)) return text;
  const { text: decoded } = decodeEscapes(text);
  return cutOthers((keyBeginning.test(decoded) ? decoded : text).replace(keyForm, withoutSecret));
}

const prefixes = ['svc_live_', 'svc_test_'];
/**
 * Separators between the characters of a split prefix, such as `s-v-c`: anything but letters and digits. A gap cannot
 * contain the letter or digit after it, so the search takes time linear in the text.
 */
const gap = '[^0-9A-Za-z]*';
/** An underscore of the prefix, and the separators before it. */
const underscore = '[^0-9A-Za-z_]*_';
/**
 * Matches five characters of a key after its prefix. Four or fewer can stay in the log, because they reveal too little
 * of a key.
 */
const secretBeginning = `(?:${gap}[0-9A-Za-z]){5}`;
/**
 * Punctuation in place of the underscores of a prefix, as in `svc-live-`. Such text can be part of an ordinary name, so
 * it counts as the beginning of a key only if 32 characters that seem random follow it.
 */
const separator = '[^0-9A-Za-z]{1,3}';
const randomText = '(?=[A-Za-z]*[0-9])(?=[0-9A-Fa-f]*[G-Zg-z])[0-9A-Za-z]{32}';
const splitForms = prefixes.flatMap((prefix) => {
  const [first = [], second = []] = prefix.split('_').map((word) => Array.from(word, eitherCase));
  const split = first.join(gap) + underscore + gap + second.join(gap) + underscore + secretBeginning;
  const name = [...first, separator, ...second, separator, randomText].join('');
  return [split, name];
});

function eitherCase(letter: string): string {
  return `[${letter}${letter.toUpperCase()}]`;
}

/**
 * What can separate the bytes of an API key that is written in hexadecimal: punctuation, blanks, `0x`, and `00` (the
 * zero bytes of UTF-16).
 */
const byteGap = '(?:00|0?[Xx]|[^0-9A-Za-z])*';
const hexForms = prefixes.map((prefix) => Array.from(prefix, hexOf).join(byteGap) + secretBeginning);

function hexOf(character: string): string {
  const [small, capital] = [character, character.toUpperCase()].map((one) => Buffer.from(one).toString('hex'));
  const digits = Array.from(small ?? '', (digit, at) => `[${digit}${digit.toUpperCase()}${capital?.[at] ?? ''}]`);
  return digits.join(gap);
}

/** Separators between the characters of a key in base64. Mail, for example, breaks base64 into lines. */
const base64Gap = '[^0-9A-Za-z+/_-]*';
/**
 * Patterns for the base64 of each prefix, one per possible offset in a group of three bytes. They omit the characters
 * that depend on neighboring bytes.
 */
const base64Forms = prefixes.flatMap((prefix) => [0, 1, 2].map((before) => base64Behind(before, prefix)));

function base64Behind(before: number, prefix: string): string {
  const firstBit = before * 8;
  const lastBit = firstBit + prefix.length * 8;
  const text = Buffer.from('\0'.repeat(before) + prefix).toString('base64');
  const sure = text.slice(Math.ceil(firstBit / 6), Math.floor(lastBit / 6));
  const characters = Array.from(sure, (one) => one.replace('+', '[+-]').replace('/', '[/_]'));
  return characters.join(base64Gap) + secretBeginning;
}

/** Matches an API key in any form, in a text without escapes. */
export const anyForm = new RegExp([...splitForms, ...hexForms, ...base64Forms].join('|'));

/**
 * A fast first test: a text without a match contains no key. Matches the start of an escape, or the middle of any form
 * of a key. For speed, the alternatives with rare characters come first: most texts contain none of these characters.
 */
const mayContainKey = new RegExp(
  [
    escapeBeginning.source,
    ...['_[^0-9A-Za-z_]*[LTlt]', '[Vv][Cc][^0-9A-Za-z]', `[Ff](?<=5${gap}.)${gap}[04-7Xx]`],
    ...[`Z${base64Gap}j${base64Gap}X`, `N${base64Gap}(?:2${base64Gap}Y|f${base64Gap}[bd])`],
  ].join('|'),
);

/**
 * Cuts a client's text where an API key begins. Removes the rest of the text too, because the end of an encoded or
 * split key is unknown.
 */
export function cutAtKey(text: string): string {
  if (!mayContainKey.test(text)) return text;
  const direct = anyForm.exec(text);
  const escaped = escapeBeginning.test(text) ? keyInEscapes(text) : null;
  if (direct !== null && !(escaped !== null && escaped.start < direct.index))
    return cutAt(text, direct.index, direct[0]);
  return escaped === null ? text : cutAt(text, escaped.start, escaped.key);
}

function keyInEscapes(text: string): { readonly start: number; readonly key: string } | null {
  const { text: decoded, origins } = decodeEscapes(text);
  const found = anyForm.exec(decoded);
  return found === null ? null : { start: origins[found.index] ?? 0, key: found[0] };
}

/**
 * Cuts a text where a key begins. Keeps the prefix of an unsplit key, because it shows that the text contained a key.
 */
function cutAt(text: string, start: number, key: string): string {
  const prefix = key.slice(0, 'svc_live_'.length);
  return `${text.slice(0, start)}${keyBeginning.test(prefix) ? prefix : ''}…`;
}

/** A masked key, as `maskKeys` writes it. */
const writtenForm = /svc_(?:live|test)_…/gi;

/**
 * Matches a complete key. A key ends at white space or a quote, so the match does not contain the text after the key.
 */
const wholeForm = /svc_(?:live|test)_[^\s"']{49,}/gi;

/**
 * Masks complete API keys and tokens of administrators in each line. Cuts a line where an encoded or split key begins.
 */
export function cutKeysInLines(text: string): string {
  return text
    .split('\n')
    .map((line) => cutOthers(maskTokens(line).replaceAll(wholeForm, withoutSecret)))
    .join('\n');
}

/** Cuts a text where an unmasked key begins. Keys that are already masked cause no cut. */
function cutOthers(masked: string): string {
  const others = masked.replaceAll(writtenForm, '');
  return cutAtKey(others) === others ? masked : cutAtKey(masked);
}

/**
 * Returns a copy of a JSON value. Every string and every member name is cut where an API key begins, and
 * administrators' tokens in them are masked.
 */
export function cutKeysIn(value: unknown): unknown {
  const cut = (text: string): string => cutAtKey(maskTokens(text));
  if (typeof value === 'string') return cut(value);
  if (Array.isArray(value)) return value.map(cutKeysIn);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [cut(name), cutKeysIn(part)]));
}

function withoutSecret(key: string): string {
  return `${key.slice(0, 'svc_live_'.length)}…`;
}
