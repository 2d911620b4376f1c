/** The secret part of a key. */
export const secret = 'Nw5RigG5NVB9klCpPCcKcdJvPQgIsFyJeuMKA6w4TCK0hoHEe';
export const key = `svc_live_${secret}`;

const underscoreAs = (other: string) => (text: string) => text.replaceAll('_', other);
/** Writes each character of a text in another way. */
const eachAs = (write: (code: number, character: string) => string) => (text: string) =>
  Array.from(text, (character) => write(character.charCodeAt(0), character)).join('');
/** Inserts a piece into the prefix of a key. */
const splitBy = (piece: string) => (text: string) => `${text.slice(0, 4)}${piece}${text.slice(4)}`;
const hex = (code: number): string => code.toString(16).padStart(2, '0');

/** The encodings that a client may apply to a key before placing it in a request. */
export const disguises: Readonly<Record<string, (key: string) => string>> = {
  unchanged: (text) => text,
  'with its prefix in upper case': (text) => text.replace('svc_live_', 'SVC_LIVE_'),
  'percent-encoded': (text) => text.replaceAll('_', '%5F').replaceAll('N', '%4e'),
  'percent-encoded three times': (text) => text.replaceAll('_', '%25255F'),
  'in base64': (text) => Buffer.from(text).toString('base64'),
  'in base64 after one byte': (text) => Buffer.from(`:${text}`).toString('base64'),
  'in base64url after two bytes': (text) => Buffer.from(`x:${text}`).toString('base64url'),
  'in hexadecimal': (text) => Buffer.from(text).toString('hex'),
  'with HTML character references': (text) => text.replaceAll('_', '&#95;'),
  'with JSON escapes': (text) => text.replaceAll('_', String.raw`\u005f`),
  'with JavaScript escapes': (text) => text.replaceAll('_', String.raw`\x5f`),
  'with %u escapes': (text) => text.replaceAll('_', '%u005f'),
  'split by a space': (text) => `${text.slice(0, 15)} ${text.slice(15)}`,
  'split by a tab': (text) => `${text.slice(0, 15)}\t${text.slice(15)}`,
  'split by a quote': (text) => `${text.slice(0, 15)}"${text.slice(15, 25)}'${text.slice(25)}`,
  'split within its prefix': (text) => `${text.slice(0, 6)} "${text.slice(6)}`,
  'with &UnderBar;': underscoreAs('&UnderBar;'),
  'with &lowbar;': underscoreAs('&lowbar;'),
  'with HTML references, in hexadecimal': underscoreAs('&#x0005F;'),
  'with HTML references, without semicolons': underscoreAs('&#95'),
  'with HTML references, twice': underscoreAs('&amp;#95;'),
  'with HTML references, three times': underscoreAs('&amp;amp;#95;'),
  'with an escaped HTML reference': underscoreAs('&amp;lowbar;'),
  'with a JSON escape in an HTML reference': underscoreAs('&bsol;u005f'),
  'with HTML references, percent-encoded': underscoreAs('%26%2395%3B'),
  'each character with HTML references': eachAs((code) => `&#${code};`),
  'each character with HTML references, in hexadecimal': eachAs((code) => `&#x${hex(code)};`),
  's with HTML references': (text) => text.replace('s', '&#115;'),
  'v with HTML references': (text) => text.replace('v', '&#x76;'),
  'l with JSON escapes': (text) => text.replace('l', String.raw`\u006c`),
  'each character with JSON escapes': eachAs((code) => String.raw`\u00${hex(code)}`),
  'each character with JavaScript escapes': eachAs((code) => String.raw`\x${hex(code)}`),
  'with JSON escapes, twice': underscoreAs(String.raw`\\u005f`),
  'with JavaScript code points': underscoreAs(String.raw`\u{5f}`),
  'e with JavaScript code points': (text) => text.replace('e', String.raw`\u{000065}`),
  'with Python escapes': underscoreAs(String.raw`\U0000005f`),
  'with Perl escapes': underscoreAs(String.raw`\x{5f}`),
  'in octal': underscoreAs(String.raw`\137`),
  'in octal with a zero': underscoreAs(String.raw`\0137`),
  'each character in octal': eachAs((code) => `\\${code.toString(8).padStart(3, '0')}`),
  'with CSS escapes': underscoreAs(String.raw`\5f `),
  'with CSS escapes, with six digits': underscoreAs(String.raw`\00005F`),
  'in quoted-printable': underscoreAs('=5F'),
  'each character percent-encoded': eachAs((code) => `%${hex(code)}`),
  'in hexadecimal with spaces': eachAs((code) => `${hex(code)} `),
  'in hexadecimal with colons': eachAs((code) => `${hex(code).toUpperCase()}:`),
  'in hexadecimal with 0x': eachAs((code) => `0x${hex(code)}, `),
  'in hexadecimal of UTF-16': eachAs((code) => `00${hex(code)}`),
  'in base64, in lines': (text) => Buffer.from(text).toString('base64').replaceAll(/.{5}/g, '$& '),
  'split by a zero-width space': splitBy('\u200b'),
  'split by zero-width spaces everywhere': eachAs((_, character) => `${character}\u200b`),
  'split by a zero-width joiner': splitBy('\u200d'),
  'split by a soft hyphen': splitBy('\u00ad'),
  'split by a zero-width space with HTML references': splitBy('&ZeroWidthSpace;'),
  'split by a soft hyphen with HTML references': splitBy('&shy;'),
  'split by a number with HTML references': splitBy('&#8203;'),
  'split by a line feed with JSON escapes': splitBy(String.raw`\n`),
  'split by four spaces': splitBy('    '),
  'split by forty spaces': splitBy(' '.repeat(40)),
  'split by spaces everywhere': eachAs((_, character) => `${character} `),
  'split by a full stop': splitBy('.'),
  'split by a slash': splitBy('/'),
  'split by a comma': splitBy(','),
  'split by a semicolon': splitBy(';'),
  'split by a hyphen': splitBy('-'),
  'split by an underscore': splitBy('_'),
  'split by hyphens everywhere': eachAs((_, character) => `${character}-`),
  'with hyphens for underscores': underscoreAs('-'),
  'with full stops for underscores': underscoreAs('.'),
};

/** Pieces of the secret, plain and encoded, that must not appear in output. Four characters in a row may appear. */
export function piecesOf(disguise: (key: string) => string): string[] {
  const changed = disguise(key).slice(disguise('svc_live_').length + 4);
  return [...piecesOfLength(5, secret), ...piecesOfLength(changed === secret.slice(4) ? 5 : 6, changed)];
}

function piecesOfLength(size: number, text: string): string[] {
  return Array.from({ length: Math.max(0, text.length - size + 1) }, (_, at) =>
    text.slice(at, at + size).toLowerCase(),
  );
}

/** Removes the gateway's own ids and times from a text: one may contain some characters of a key by chance. */
export function withoutIdsAndTimes(text: string): string {
  return text.replaceAll(/\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b|\b20\d\d-\d\d-\d\dT[\d:.]+Z|\b\d\d:\d\d:\d\d GMT/g, '');
}

/** Removes the id of a trace from a text. An id that is part of what the client sent stays. */
export function withoutTraceId(text: string, id: string, sent: string): string {
  return /^[0-9a-f]{32}$/.test(id) && !sent.toLowerCase().includes(id) ? text.replaceAll(id, '') : text;
}
