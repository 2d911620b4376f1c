import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import t from 'tap';
import { stringify } from 'yaml';
import { interpolate, readYaml } from '../../src/config/yaml-source.js';

const env = {
  FROM_FILE: 'postgres://database/registry\n',
  ONLY_LINE_END: '\r\n',
  NAME: 'shop',
  PORT: '8443',
  YES: 'true',
  EMPTY: '',
  NESTED: '${PORT}',
  STRUCTURE: '{a: [1, 2]}\n- x: &y',
};

t.test('a variable is replaced by its value or default, or is a problem', (t) => {
  const cases: readonly [string, string, readonly RegExp[]][] = [
    ['plain', 'plain', []],
    ['${NAME}', 'shop', []],
    ['a-${NAME}-${PORT}', 'a-shop-8443', []],
    ['${NAME:-other}', 'shop', []],
    ['${MISSING:-other}', 'other', []],
    ['${MISSING:-}', '', []],
    ['${EMPTY:-other}', 'other', []],
    ['${MISSING:-a:-b$c}', 'a:-b$c', []],
    ['$${NAME}', '${NAME}', []],
    ['$$${NAME}', '$${NAME}', []],
    ['$NAME $ {NAME}', '$NAME $ {NAME}', []],
    ['${NESTED}', '${PORT}', []],
    ['${FROM_FILE}', 'postgres://database/registry', []],
    ['${ONLY_LINE_END:-other}', 'other', []],
    ['${MISSING}', '', [/MISSING is not set/]],
    ['${EMPTY}', '', [/EMPTY is empty/]],
    ['${toString}', '', [/toString is not set/]],
    ['${MISSING} ${OTHER}', ' ', [/MISSING/, /OTHER/]],
    ['${}', '${}', [/does not begin a complete variable/]],
    ['${NAME', '${NAME', [/does not begin a complete variable/]],
    ['${1}', '${1}', [/does not begin a complete variable/]],
    ['${NAME-x}', '${NAME-x}', [/does not begin a complete variable/]],
  ];
  for (const [source, text, problems] of cases) {
    const result = interpolate(source, env);
    t.equal(result.text, text, source);
    t.match(result.problems, problems, source);
    t.equal(result.problems.length, problems.length, source);
  }
  t.end();
});

t.test('an unquoted value with a variable may become a number, true or null; a quoted one stays a string', (t) => {
  const cases: readonly [string, unknown][] = [
    ['${PORT}', 8443],
    ['${PORT:-1}', 8443],
    ['${MISSING:-8443} # comment', 8443],
    ['"${PORT}"', '8443'],
    ["'${PORT}'", '8443'],
    ['!!str ${PORT}', '8443'],
    ['|\n  ${PORT}', '8443\n'],
    ['${YES}', true],
    ['"${YES}"', 'true'],
    ['${MISSING:-}', null],
    ['${MISSING:-~}', null],
    ['"${MISSING:-}"', ''],
    ['1${PORT}', 18443],
    ['x${PORT}', 'x8443'],
    ['$${PORT}', '${PORT}'],
    ['${STRUCTURE}', env.STRUCTURE],
    ['{ b: "${STRUCTURE}" }', { b: env.STRUCTURE }],
    ['5', 5],
  ];
  for (const [text, expected] of cases) {
    const { value, problems } = readYaml(`a: ${text}\n`, env);
    t.same(problems, [], text);
    t.strictSame(value, { a: expected }, text);
  }
  t.strictSame(readYaml('${NAME}: 1', env).value, { '${NAME}': 1 }, 'a variable in a name is not replaced');
  t.end();
});

t.test('the value of a variable cannot change the document structure', (t) => {
  const special = fc.constantFrom(
    '\n',
    ': ',
    '- ',
    '{',
    '}',
    '[',
    ']',
    '"',
    "'",
    '#',
    '&a',
    '*a',
    '!!map',
    '|',
    '---',
    ',',
  );
  const texts = fc.oneof(
    fc.string(),
    fc.array(fc.oneof(special, fc.string({ maxLength: 3 }))).map((all) => all.join('')),
  );
  fc.assert(
    fc.property(texts, texts, (plain, quoted) => {
      const text = 'a: ${P:-p}\nb: ["${Q:-q}", 1]\nc: { d: "x${Q:-q}" }\n';
      const { value, problems } = readYaml(text, { P: plain, Q: quoted });
      const { a, ...others } = value as Record<string, unknown>;
      const ofLine = (value: string): string => value.replace(/[\r\n]+$/, '');
      const expected = ofLine(quoted) || 'q';
      return (
        isDeepStrictEqual(others, { b: [expected, 1], c: { d: `x${expected}` } }) &&
        problems.length === 0 &&
        (a === null || typeof a !== 'object') &&
        (typeof a !== 'string' || a === (ofLine(plain) || 'p'))
      );
    }),
  );
  t.end();
});

t.test('without variables a document has its YAML meaning', (t) => {
  const scalar = fc.oneof(
    fc.string().filter((text) => !text.includes('${')),
    fc.integer(),
    fc.boolean(),
    fc.constant(null),
  );
  const name = fc.oneof(fc.string({ maxLength: 8 }), fc.constantFrom('__proto__', 'constructor', 'a b', '1', 'null'));
  const tree = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 4 },
      scalar,
      fc.array(tie('value'), { maxLength: 4 }),
      fc.dictionary(name, tie('value'), { maxKeys: 4, noNullPrototype: true }),
    ),
  })).value;
  fc.assert(
    fc.property(tree, (value) => {
      const read = readYaml(stringify(value, { aliasDuplicateObjects: false }), {});
      return read.problems.length === 0 && isDeepStrictEqual(read.value, value);
    }),
  );
  t.end();
});

t.test("an alias is replaced by its anchor's value, within limits", (t) => {
  t.strictSame(readYaml('a: &x { b: 1 }\nc: *x\n', {}).value, { a: { b: 1 }, c: { b: 1 } });
  t.match(readYaml('a: *x\n', {}).problems, [{ path: 'a', message: /no anchor \(&name\) precedes the alias/ }]);
  const bomb = ['a0: &a0 x', ...Array.from({ length: 40 }, (_, i) => `a${i + 1}: &a${i + 1} [*a${i}, *a${i}, *a${i}]`)];
  for (const text of [bomb.join('\n'), 'a: &a [*a]', 'a: &a { b: *a, c: *a }', `a: &a 1\nb: [${'*a,'.repeat(100)}]`]) {
    t.match(readYaml(text, {}).problems, [{ path: '', message: /more than 99 aliases/ }]);
  }
  t.end();
});

t.test('a document that is not one well-formed mapping is one problem with its line', (t) => {
  const cases: readonly [string, number, RegExp][] = [
    ['a: 1\n\tb: 2', 2, /the indentation contains a tab/],
    ['a: 1\n---\nb: 2', 2, /a second document/],
    ['a: "x\nb: 1', 2, /a quote, bracket, colon or comma is missing/],
    ['a: [1, 2\nb: 3', 2, /not valid YAML/],
    ['a:\n  b: 1\n c: 2', 3, /not valid YAML/],
    ['a: !secret x', 1, /tags \(!name\) are not supported/],
    ['a: !!set { x }', 1, /tags/],
    ['? [a]\n: b', 1, /not valid YAML/],
    ['a: { b: ${NAME} }', 1, /inside \{ \} or \[ \], put a value with \$\{…\} in quotes/],
    ['a: @b', 1, /not valid YAML/],
    [`a:\n${' '.repeat(200)}b: 1`, 2, /the nesting is too deep/],
    ['- '.repeat(100_000), 1, /the nesting is too deep/],
    ['['.repeat(2_000), 1, /the nesting is too deep/],
  ];
  for (const [text, line, message] of cases) {
    const { value, problems } = readYaml(text, env);
    t.match(problems, [{ path: '', line, message }], text.slice(0, 40));
    t.equal(problems.length, 1);
    t.equal(value, null);
  }
  t.end();
});

t.test('a duplicate name is a problem at its second line', (t) => {
  const { problems } = readYaml('a: 1\nb: { c: 1, "c": 2 }\na: 2\n__proto__: 1\n__proto__: 2', {});
  t.strictSame(problems, [
    { path: 'b.c', line: 2, message: 'is given twice; keep one' },
    { path: 'a', line: 3, message: 'is given twice; keep one' },
    { path: '__proto__', line: 5, message: 'is given twice; keep one' },
  ]);
  t.end();
});

t.test('a large file is read in bounded time', (t) => {
  const text = Array.from({ length: 60_000 }, (_, index) => `n${index}: 1`).join('\n');
  t.same(readYaml(text, {}).problems, []);
  t.end();
});
