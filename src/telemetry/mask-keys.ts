import { decodeEscapes, escapeBeginning } from './escapes.js';

/** A key, with everything up to the next space or quote: a key made elsewhere may contain any other character. */
const keyForm = /svc_(?:live|test)_\s*[^\s"']*/gi;
const keyBeginning = /svc_(?:live|test)_/i;

/** Whether a text contains a key, split or encoded too, or the possible beginning of one. */
export function containsKey(text: string): boolean {
  return keyBeginning.test(text) || cutAtKey(text) !== text;
}

/**
 * Reduces each API key in a text to its prefix. Clients put keys into paths, user agents and other fields, and a log
 * would store them. Keys with escapes, in part or many times over, are found too; the text is then returned decoded.
 */
export function maskKeys(text: string): string {
  if (!mayContainKey.test(text) && !keyBeginning.test(text)) return text;
  const { text: decoded } = decodeEscapes(text);
  return cutOthers((keyBeginning.test(decoded) ? decoded : text).replace(keyForm, withoutSecret));
}

const prefixes = ['svc_live_', 'svc_test_'];
/**
 * Anything but letters and digits may separate the characters of a split prefix. No gap holds the letter or digit that
 * ends it, so a search backtracks over each gap once, and takes time linear in the text.
 */
const gap = '[^0-9A-Za-z]*';
/** An underscore of the prefix, and what separates it from the letter before. */
const underscore = '[^0-9A-Za-z_]*_';
/** A prefix alone is no key. Four characters of a key may stay, so the fifth makes the difference. */
const secretBeginning = `(?:${gap}[0-9A-Za-z]){5}`;
/** A prefix with other punctuation is an ordinary name: behind it must stand what only a key looks like. */
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

/** Between the bytes of hexadecimal: punctuation, blanks, `0x`, and the other byte of UTF-16. */
const byteGap = '(?:00|0?[Xx]|[^0-9A-Za-z])*';
const hexForms = prefixes.map((prefix) => Array.from(prefix, hexOf).join(byteGap) + secretBeginning);

function hexOf(character: string): string {
  const [small, capital] = [character, character.toUpperCase()].map((one) => Buffer.from(one).toString('hex'));
  const digits = Array.from(small ?? '', (digit, at) => `[${digit}${digit.toUpperCase()}${capital?.[at] ?? ''}]`);
  return digits.join(gap);
}

/** Between the characters of base64, which mail breaks into lines. */
const base64Gap = '[^0-9A-Za-z+/_-]*';
/** Base64 of a prefix at each of its three offsets, without the characters that depend on the neighbouring bytes. */
const base64Forms = prefixes.flatMap((prefix) => [0, 1, 2].map((before) => base64Behind(before, prefix)));

function base64Behind(before: number, prefix: string): string {
  const firstBit = before * 8;
  const lastBit = firstBit + prefix.length * 8;
  const text = Buffer.from('\0'.repeat(before) + prefix).toString('base64');
  const sure = text.slice(Math.ceil(firstBit / 6), Math.floor(lastBit / 6));
  const characters = Array.from(sure, (one) => one.replace('+', '[+-]').replace('/', '[/_]'));
  return characters.join(base64Gap) + secretBeginning;
}

/** Finds a key in a text without escapes. */
export const anyForm = new RegExp([...splitForms, ...hexForms, ...base64Forms].join('|'));

/**
 * A text without any of these contains no key: an escape, or what stands in the middle of each form. Most texts are of
 * this kind, so this test decides what masking costs. It begins with rare characters for that.
 */
const mayContainKey = new RegExp(
  [
    escapeBeginning.source,
    ...['_[^0-9A-Za-z_]*[LTlt]', '[Vv][Cc][^0-9A-Za-z]', `[Ff](?<=5${gap}.)${gap}[04-7Xx]`],
    ...[`Z${base64Gap}j${base64Gap}X`, `N${base64Gap}(?:2${base64Gap}Y|f${base64Gap}[bd])`],
  ].join('|'),
);

/** Cuts a client's text where an API key begins. The end of a split or encoded key is unknown. */
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

/** An unsplit prefix stays, as it tells that there was a key. */
function cutAt(text: string, start: number, key: string): string {
  const prefix = key.slice(0, 'svc_live_'.length);
  return `${text.slice(0, start)}${keyBeginning.test(prefix) ? prefix : ''}…`;
}

/** A masked key, as this program writes it. */
const writtenForm = /svc_(?:live|test)_…/gi;

/** A complete key: nothing of it can follow. */
const wholeForm = /svc_(?:live|test)_[^\s"']{49,}/gi;

/** Masks complete API keys, and cuts each line where a split or encoded key begins. */
export function cutKeysInLines(text: string): string {
  return text
    .split('\n')
    .map((line) => cutOthers(line.replaceAll(wholeForm, withoutSecret)))
    .join('\n');
}

/** Cuts a text in which some keys are masked where another key begins. */
function cutOthers(masked: string): string {
  const others = masked.replaceAll(writtenForm, '');
  return cutAtKey(others) === others ? masked : cutAtKey(masked);
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
