/** A text that is not JSON, or is JSON that two readers could understand differently. Its message is for the caller. */
export class StrictJsonError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'StrictJsonError';
  }
}

const deepest = 32;
const longestName = 64;
const whitespace = /[ \t\n\r]*/y;
const number = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const decimal = /^-?([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/;
const literal = /true|false|null/y;
const literals: Readonly<Record<string, unknown>> = { true: true, false: false, null: null };

/**
 * Reads one JSON text. JSON.parse silently keeps the last of two fields of one name, so that whoever looked at the first
 * one approved another amount: here a repeated name is an error, and so are `__proto__` and deep nesting.
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
        return this.#object(deeper(depth));
      case '[':
        return this.#array(deeper(depth));
      case '"':
        return this.#string();
      case 't':
      case 'f':
      case 'n':
        return literals[this.#match(literal)];
      default:
        return numberIn(this.#match(number));
    }
  }

  end(): void {
    if (this.#next() !== '') throw invalid();
  }

  #object(depth: number): object {
    const fields: Record<string, unknown> = {};
    this.#position += 1;
    if (this.#take('}')) return fields;
    do {
      if (this.#next() !== '"') throw invalid();
      const name = this.#string();
      if (name === '__proto__' || Object.hasOwn(fields, name)) {
        const problem = name === '__proto__' ? 'is not allowed' : 'is given more than once';
        throw new StrictJsonError(`The field "${name.slice(0, longestName)}" ${problem}`);
      }
      if (!this.#take(':')) throw invalid();
      fields[name] = this.value(depth);
    } while (this.#take(','));
    if (!this.#take('}')) throw invalid();
    return fields;
  }

  #array(depth: number): unknown[] {
    const items: unknown[] = [];
    this.#position += 1;
    if (this.#take(']')) return items;
    do items.push(this.value(depth));
    while (this.#take(','));
    if (!this.#take(']')) throw invalid();
    return items;
  }

  /** Finds the end of a string; JSON.parse then decodes it, once. */
  #string(): string {
    const start = this.#position;
    let end = start + 1;
    while (end < this.#text.length && this.#text[end] !== '"') end += this.#text[end] === '\\' ? 2 : 1;
    this.#position = end + 1;
    try {
      return JSON.parse(this.#text.slice(start, end + 1)) as string;
    } catch {
      throw invalid();
    }
  }

  /** The next character that is no white space, without taking it; empty at the end. */
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
    if (found === undefined) throw invalid();
    this.#position += found.length;
    return found;
  }
}

/** 1.00000000000000000001 is read as 1: what looks like a whole number then was none. */
function numberIn(literal: string): number {
  const value = Number(literal);
  if (!Number.isInteger(value) || !/[.eE]/.test(literal)) return value;
  const [, whole = '', fraction = '', exponent = '0'] = decimal.exec(literal) ?? [];
  const digits = whole + fraction;
  const places = fraction.length - Number(exponent);
  // Not by a pattern: it would begin anew at each zero, and a body of zeros would stall everybody for minutes.
  let significant = digits.length;
  while (digits[significant - 1] === '0') significant -= 1;
  if (significant === 0 || digits.length - significant >= places) return value;
  throw new StrictJsonError('The body has a number with more digits than can be kept');
}

function deeper(depth: number): number {
  if (depth >= deepest) throw new StrictJsonError(`The body is nested more than ${deepest} levels deep`);
  return depth + 1;
}

function invalid(): StrictJsonError {
  return new StrictJsonError('The body is not valid JSON');
}
