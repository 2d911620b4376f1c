import t from 'tap';
import { medianWords, sentencesOf } from './prose.js';

const textsOf = (markdown: string): string[] => sentencesOf(markdown).map(({ text }) => text);
const countsOf = (markdown: string): number[] => sentencesOf(markdown).map(({ words }) => words);

t.test('sentences end at a full stop before a capital, a digit, a quote, code or a link', (t) => {
  t.same(textsOf('One is here. Two is\nthere! 3 is not? `four` is. [docs/five.md](five.md) too.'), [
    'One is here.',
    'Two is there!',
    '3 is not?',
    '`code` is.',
    'docs/five.md too.',
  ]);
  t.same(textsOf('Node 20.19, e.g. Redis 7.2, i.e. TLS 1.3.'), ['Node 20.19, e.g. Redis 7.2, i.e. TLS 1.3.']);
  t.same(textsOf('(It is. So.) Then “it” ends.'), ['(It is.', 'So.)', 'Then “it” ends.']);
  t.same(textsOf('A colon: no end; nor is a semicolon.').length, 1, 'neither a colon nor a semicolon ends a sentence');
  t.end();
});

t.test('headings, list items and cells are separate sentences', (t) => {
  const markdown = `# One two
Three
four
- five
- six
  seven
1. eight

| nine | \`a | b\` ten |
| --- | :-: |
| eleven. Twelve | |
`;
  t.same(
    sentencesOf(markdown).map(({ kind, text }) => `${kind}: ${text}`),
    [
      ...['heading: One two', 'prose: Three four', 'prose: five', 'prose: six seven', 'prose: eight'],
      ...['cell: nine', 'cell: `code` ten', 'cell: eleven.', 'cell: Twelve'],
    ],
  );
  t.end();
});

t.test('code blocks and comments have no sentences, and block markers are not words', (t) => {
  t.same(textsOf('One.\n```sh\n# Two.\n```\n<!-- Three.\nFour. -->\n~~~~\n```\n~~~~\nFive.'), ['One.', 'Five.']);
  t.same(textsOf('- One:\n  ```sh\n  two\n  ```\n  Three.'), ['One:', 'Three.']);
  t.end();
});

t.test('words: a code span counts once, a link by its text, marks and dashes not at all', (t) => {
  t.same(countsOf('Run `npm ci && npm test` at [two words](https://example.com/a-b) – **now** → `x`.'), [7]);
  t.same(countsOf('Run ``a `b` c`` now.'), [3]);
  t.same(countsOf('snake_case *is* one_word, and 2,500.00 too'), [6]);
  t.end();
});

t.test('the median counts prose only', (t) => {
  const prose = 'One. Two words. Now three words. Here four words are. ';
  t.equal(medianWords(sentencesOf(prose)), 2.5);
  t.equal(medianWords(sentencesOf(`# a\n\n${prose}\n\n| b | c |\n| --- | --- |\n| d | e |`)), 2.5);
  t.equal(medianWords(sentencesOf(`${prose}And this one has six words.`)), 3);
  t.equal(medianWords([]), 0);
  t.end();
});
