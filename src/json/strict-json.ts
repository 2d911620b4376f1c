/** Kinds of problems in a JSON text. */
export type JsonProblem = 'invalid' | 'repeated-name' | 'forbidden-name' | 'too-deep' | 'too-precise';

/** Error for text that is not valid JSON, or that two JSON parsers could interpret differently. */
export class StrictJsonError extends Error {
  /**
   * @param position offset of the problem in the text, in UTF-16 code units
   * @param fieldName the repeated or forbidden name, which could be a secret; empty for other problems
   */
  constructor(
    readonly problem: JsonProblem,
    readonly position: number,
    readonly fieldName = '',
  ) {
    super(`${problem} JSON at position ${position}`);
    this.name = 'StrictJsonError';
  }
}

/** Maximum nesting depth of objects and arrays. */
export const deepestLevel = 32;
const whitespace = /[ \t\n\r]*/y;
const number = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const decimal = /^-?([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/;
const literal = /true|false|null/y;
const literals: Readonly<Record<string, unknown>> = { true: true, false: false, null: null };

/**
 * Parses JSON text strictly. Repeated names, `__proto__`, deep nesting, and fractions that rounding turns into integers
 * are errors. JSON.parse keeps the last of two fields with the same name, but another parser could keep the first. Then
 * the amount that is checked could differ from the amount that is paid.
 * @throws StrictJsonError
 */
export function parseStrictJson(text: string): unknown {
  const reader = new Reader(text);
  const value = reader.value(0);
  reader.end();
  return value;
}

class Reader {
  #position = 0;
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  value(depth: number): unknown {
    switch (this.#next()) {
      case '{':
        return this.#object(this.#deeper(depth));
      case '[':
        return this.#array(this.#deeper(depth));
      case '"':
        return this.#string();
      case 't':
      case 'f':
      case 'n':
        return literals[this.#match(literal)];
      default:
        return this.#number();
    }
  }

  end(): void {
    if (this.#next() !== '') throw this.#invalid();
  }

  #object(depth: number): object {
    const fields: Record<string, unknown> = {};
    this.#position += 1;
    if (this.#take('}')) return fields;
    do {
      if (this.#next() !== '"') throw this.#invalid();
      const start = this.#position;
      const name = this.#string();
      if (name === '__proto__') throw new StrictJsonError('forbidden-name', start, name);
      if (Object.hasOwn(fields, name)) throw new StrictJsonError('repeated-name', start, name);
      if (!this.#take(':')) throw this.#invalid();
      fields[name] = this.value(depth);
    } while (this.#take(','));
    if (!this.#take('}')) throw this.#invalid();
    return fields;
  }

  #array(depth: number): unknown[] {
    const items: unknown[] = [];
    this.#position += 1;
    if (this.#take(']')) return items;
    do items.push(this.value(depth));
    while (this.#take(','));
    if (!this.#take(']')) throw this.#invalid();
    return items;
  }

  /** Finds the end of a string, then decodes it once with JSON.parse. */
  #string(): string {
    const start = this.#position;
    let end = start + 1;
    while (end < this.#text.length && this.#text[end] !== '"') end += this.#text[end] === '\\' ? 2 : 1;
    try {
      const value = JSON.parse(this.#text.slice(start, end + 1)) as string;
      this.#position = end + 1;
      return value;
    } catch {
      throw this.#invalid();
    }
  }

  #number(): number {
    const start = this.#position;
    const value = numberIn(this.#match(number));
    if (value === null) throw new StrictJsonError('too-precise', start);
    return value;
  }

  #deeper(depth: number): number {
    if (depth >= deepestLevel) throw new StrictJsonError('too-deep', this.#position);
    return depth + 1;
  }

  #invalid(): StrictJsonError {
    return new StrictJsonError('invalid', this.#position);
  }

  /** Skips white space and returns the next character without consuming it; empty at the end. */
  #next(): string {
    this.#match(whitespace);
    return this.#text.charAt(this.#position);
  }

  #take(character: string): boolean {
    if (this.#next() !== character) return false;
    this.#position += 1;
    return true;
  }

  #match(form: RegExp): string {
    form.lastIndex = this.#position;
    const found = form.exec(this.#text)?.[0];
    if (found === undefined) throw this.#invalid();
    this.#position += found.length;
    return found;
  }
}

/**
 * Converts a JSON number. Returns null if the number becomes an integer only by rounding, such as
 * 1.00000000000000000001 (parsed as 1).
 */
function numberIn(literal: string): number | null {
  const value = Number(literal);
  if (!Number.isInteger(value) || !/[.eE]/.test(literal)) return value;
  const [, whole = '', fraction = '', exponent = '0'] = decimal.exec(literal) ?? [];
  const digits = whole + fraction;
  const places = fraction.length - Number(exponent);
  // Find the last digit other than 0, in a loop: a regular expression would backtrack at each zero, so a body of zeros
  // would block the event loop for minutes.
  let significant = digits.length;
  while (digits[significant - 1] === '0') significant -= 1;
  return significant === 0 || digits.length - significant >= places ? value : null;
}
