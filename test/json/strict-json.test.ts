import { deepStrictEqual } from 'node:assert/strict';
import fc from 'fast-check';
import t from 'tap';
import { parseStrictJson, StrictJsonError } from '../../src/json/strict-json.js';

t.test('every JSON text is read as JSON.parse reads it', (t) => {
  const json = fc.json({ maxDepth: 6 }).filter((text) => !text.includes('__proto__'));
  fc.assert(
    fc.property(json, fc.constantFrom('', ' ', '\t', '\n', '\r'), (text, space) => {
      deepStrictEqual(parseStrictJson(`${space}${text}${space}`), JSON.parse(text));
    }),
  );
  for (const text of [
    '-0',
    '1E+2',
    '0.5e-1',
    '"\\u00e9\\n\\/"',
    '"\\ud83d\\ude00"',
    '[ 1 , 2 ]',
    '{ "a" : { } }',
    '"\u2028"',
  ]) {
    t.strictSame(parseStrictJson(text), JSON.parse(text), encodeURI(text));
  }
  t.end();
});

const pieces = [
  '{',
  '}',
  '[',
  ']',
  '"',
  ':',
  ',',
  '-',
  '+',
  '.',
  'e',
  'E',
  '0',
  '1',
  ' ',
  '\\',
  'u',
  'true',
  'null',
  '"a"',
];

t.test('every text that JSON.parse refuses is refused', (t) => {
  // Eight pieces are too few for a duplicate name, on which the two parsers differ.
  const almost = fc.array(fc.constantFrom(...pieces), { maxLength: 8 });
  fc.assert(
    fc.property(almost, (pieces) => {
      const text = pieces.join('');
      return accepts(parseStrictJson, text) === accepts(JSON.parse, text);
    }),
    { numRuns: 3000 },
  );
  for (const text of [
    '',
    '01',
    '1.',
    '.5',
    '+1',
    'NaN',
    "'a'",
    '"\n"',
    '"\\x"',
    '"',
    '"\\"',
    '[1,]',
    '{"a":1,}',
    '{a:1}',
    '// 1',
    'tru',
    'truex',
    '\u00a01',
  ]) {
    t.throws(() => parseStrictJson(text), StrictJsonError, JSON.stringify(text));
  }
  t.end();
});

t.test('nesting is limited', (t) => {
  t.doesNotThrow(() => parseStrictJson('['.repeat(32) + '1' + ']'.repeat(32)));
  t.throws(() => parseStrictJson('{"a":'.repeat(33) + '1' + '}'.repeat(33)), { message: /^too-deep / });
  t.end();
});

function accepts(read: (text: string) => unknown, text: string): boolean {
  try {
    read(text);
    return true;
  } catch {
    return false;
  }
}

t.test('a number is read exactly or refused: no fraction of a kobo is silently dropped', (t) => {
  for (const text of ['1.0', '1e2', '100E-2', '1.50e1', '0.0', '-0.0', '9007199254740991.000', '1.5', '0.1', '1e400']) {
    t.equal(parseStrictJson(text), JSON.parse(text), text);
  }
  for (const text of [
    '1.00000000000000000001',
    '9007199254740991.4',
    '0.99999999999999999999',
    '1e-400',
    '100000000000000000001e-20',
  ]) {
    t.throws(() => parseStrictJson(text), { message: /^too-precise / }, text);
  }
  t.end();
});
