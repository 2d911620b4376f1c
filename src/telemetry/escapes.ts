/** Matches a character that can begin an escape sequence. A text without such a character contains no escapes. */
export const escapeBeginning = /[%&\\=]/;

/** A text in which all escapes are decoded. */
export interface Decoded {
  readonly text: string;
  /** For each character of `text`, its index in the original text. For a decoded escape, the index of its beginning. */
  readonly origins: Uint32Array;
}

/**
 * Decodes the escapes of URLs, HTML, JSON, JavaScript, C, CSS and quoted-printable. Works from the end of the text to
 * its beginning: everything after an escape is already decoded, so nested escapes (`%2541`) need no second pass.
 */
export function decodeEscapes(text: string): Decoded {
  const { length } = text;
  const codes = new Uint16Array(length);
  const origins = new Uint32Array(length);
  const reader = new EscapeReader(codes);
  let start = length;
  for (let index = length - 1; index >= 0; index -= 1) {
    start -= 1;
    codes[start] = text.charCodeAt(index);
    // All iterations together take linear time, because each iteration removes at least one character.
    for (let code = reader.decode(start); !Number.isNaN(code); code = reader.decode(start)) {
      start = reader.next - 1;
      codes[start] = code > 0xffff ? replacement : code;
    }
    origins[start] = index;
  }
  return { text: Buffer.from(codes.buffer, 2 * start).toString('utf16le'), origins: origins.subarray(start) };
}

/** U+FFFD. It replaces a decoded character above U+FFFF, which does not fit into one element of `codes`. */
const replacement = 0xfffd;
const blank = 0x20;
const [percent, equals, backslash, ampersand] = [0x25, 0x3d, 0x5c, 0x26];
const [hash, semicolon, leftBrace, rightBrace, zero] = [0x23, 0x3b, 0x7b, 0x7d, 0x30];
const [letterE, letterT, letterU, letterX] = [0x65, 0x74, 0x75, 0x78];
/** The letters of the escapes `\b`, `\f`, `\n` and `\r`, which C and JSON use for control characters. */
const escapedBlanks = [0x62, 0x66, 0x6e, 0x72];

/**
 * HTML entities for ASCII punctuation and white space, in lower case. The comparison ignores case, because some clients
 * change it.
 */
const entities = new Map(
  Object.entries({
    ...{ lowbar: '_', underbar: '_', amp: '&', num: '#', semi: ';', percnt: '%', bsol: '\\', equals: '=' },
    ...{ lcub: '{', lbrace: '{', rcub: '}', rbrace: '}', sol: '/', period: '.', comma: ',', colon: ':', quot: '"' },
    ...{ apos: "'", plus: '+', hyphen: '-', dash: '-', ndash: '-', mdash: '-', grave: '`', vert: '|', excl: '!' },
    ...{ ast: '*', dollar: '$', commat: '@', quest: '?', lt: '<', gt: '>', lpar: '(', rpar: ')', lsqb: '[', rsqb: ']' },
    ...{ tab: '\t', newline: '\n', nbsp: ' ', nonbreakingspace: ' ', ensp: ' ', emsp: ' ', thinsp: ' ', hairsp: ' ' },
    ...{ shy: ' ', zwnj: ' ', zwj: ' ', lrm: ' ', rlm: ' ', nobreak: ' ', zerowidthspace: ' ' },
  }).map(([name, character]) => [name, character.charCodeAt(0)]),
);
const longestName = Math.max(...Array.from(entities.keys(), ({ length }) => length));

class EscapeReader {
  /** The index after the escape that was decoded last. */
  next = 0;
  readonly #codes: Uint16Array;

  constructor(codes: Uint16Array) {
    this.#codes = codes;
  }

  /** Returns the character code of the escape that begins at `start`; NaN if no escape begins there. */
  decode(start: number): number {
    const code = this.#codes[start];
    this.next = start + 1;
    if (code === percent) return this.#skipLetter(letterU) ? this.#number(16, 4, 4) : this.#number(16, 2, 2);
    if (code === equals) return this.#number(16, 2, 2);
    if (code === backslash) return this.#afterBackslash();
    if (code !== ampersand) return NaN;
    return this.#skip(hash) ? this.#numericEntity() : this.#namedEntity();
  }

  /** Skips the next character if it is `wanted`. Returns true if it was skipped. */
  #skip(wanted: number): boolean {
    if (this.#codes[this.next] !== wanted) return false;
    this.next += 1;
    return true;
  }

  /** Skips the next letter if it is `lowerCase` or its upper-case form. Returns true if it was skipped. */
  #skipLetter(lowerCase: number): boolean {
    return this.#skip(lowerCase) || this.#skip(lowerCase - 0x20);
  }

  /** Skips the semicolon of an HTML entity, if there is one. In a certificate subject, a backslash precedes it. */
  #skipSemicolon(): void {
    if (this.#codes[this.next] === backslash && this.#codes[this.next + 1] === semicolon) this.next += 2;
    else this.#skip(semicolon);
  }

  /** Reads a number of at least `least` and at most `most` digits. Returns NaN if there are fewer digits. */
  #number(base: number, least: number, most: number): number {
    let value = 0;
    let count = 0;
    for (; count < most; count += 1) {
      const digit = hexDigit(this.#codes[this.next]);
      if (!(digit < base)) break;
      value = Math.min(value * base + digit, 0x10000);
      this.next += 1;
    }
    return count < least ? NaN : value;
  }

  #numericEntity(): number {
    const code = this.#skipLetter(letterX) ? this.#number(16, 1, Infinity) : this.#number(10, 1, Infinity);
    this.#skipSemicolon();
    return code;
  }

  #namedEntity(): number {
    let name = '';
    for (
      let code = this.#codes[this.next];
      name.length <= longestName && isLetter(code);
      code = this.#codes[this.next]
    ) {
      name += String.fromCharCode((code ?? 0) | 0x20);
      this.next += 1;
    }
    this.#skipSemicolon();
    return entities.get(name) ?? NaN;
  }

  #afterBackslash(): number {
    const first = this.#codes[this.next] ?? 0;
    if (escapedBlanks.includes(first)) {
      this.next += 1;
      return blank;
    }
    if (first === letterT) return this.#tab();
    if (this.#skipLetter(letterX)) return this.#skip(leftBrace) ? this.#inBraces() : this.#number(16, 2, 2);
    if (!this.#skipLetter(letterU)) return this.#digits();
    if (this.#skip(leftBrace)) return this.#inBraces();
    const code = this.#number(16, 4, 4);
    // Python writes `\U` followed by eight digits. If the first four digits are zero, the next four are the character.
    return code === 0 && first !== letterU ? this.#number(16, 4, 4) : code;
  }

  /**
   * Decodes `\t` (tab) to a blank, except in `\te`. There, a client could have put a backslash before the `t` of the
   * prefix `svc_test_`.
   */
  #tab(): number {
    this.next += 1;
    return this.#codes[this.next] === letterE ? NaN : blank;
  }

  #inBraces(): number {
    const code = this.#number(16, 1, Infinity);
    this.#skip(rightBrace);
    return code;
  }

  /**
   * Decodes octal escapes of C and hexadecimal escapes of CSS. The first digit of a letter's code distinguishes the
   * two: an octal code has three digits and begins with 1. A hexadecimal code has two digits, and its first digit is
   * greater than 1.
   */
  #digits(): number {
    const start = this.next;
    while (this.next < start + 5 && this.#skip(zero));
    const afterZeros = this.next;
    const first = hexDigit(this.#codes[afterZeros]);
    let code = first === 1 ? this.#number(8, 2, 3) : NaN;
    if (Number.isNaN(code) && first < 8) {
      this.next = afterZeros;
      code = this.#number(16, 2, 2);
    }
    if (Number.isNaN(code) && afterZeros > start) {
      this.next = afterZeros;
      code = this.#number(16, 0, 1);
    }
    // In CSS, a blank ends the escape and belongs to it.
    if (!Number.isNaN(code)) this.#skip(blank);
    return code;
  }
}

function isLetter(code = 0): boolean {
  const letter = code | 0x20;
  return letter >= 0x61 && letter <= 0x7a;
}

/** Returns the value of a hexadecimal digit; NaN for any other character. */
function hexDigit(code = 0): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30;
  const letter = code | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : NaN;
}
