import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import ts from 'typescript';
import { medianWords, type Sentence, sentencesOf } from './prose.js';

/** Words to avoid in names, each with the standard term, because readers know it and search for it. */
const identifierWords = new Map([
  ['answer', 'response, reply or result'],
  ['deaf', 'disconnected'],
  ['doubt', 'unverified'],
  ['hearing', 'connected or fresh'],
  ['heard', 'received'],
  ['nobody', 'no…'],
  ['said', 'reported'],
  ['strange', 'unknown'],
  ['tell', 'notify or report'],
  ['told', 'notified or reported'],
  ['upheaval', 'topology change'],
  ['whereabouts', 'location'],
  ['whoever', 'caller or client'],
  ['figure', 'stats, counts or status'],
  ['look', 'check, scan or snapshot'],
  ['none', 'no… or empty…'],
  ['someone', 'caller or client'],
]);

const [configuration, message] = ['an option of the configuration', 'a message between processes of two releases'];
const [adminApi, algorithm] = ['a field of the admin API', 'a value of `alg` in RFC 7518'];

/** Names that may keep a word of `identifierWords`, each with its reason: users or other programs read most of them. */
const keptNames = new Map([
  ['src/adapters/redis/server/sentinel-majority.ts: none', 'a vote that names no server'],
  ['src/adapters/tor/fetch-list.ts: if-none-match', 'a header of RFC 9110'],
  ['src/cli/admin/unusual/unusual.ts: answer', adminApi],
  ['src/cli/workers/worker.ts: answer', message],
  ['src/cli/workers/worker.ts: figures', message],
  ['src/config/schema/edge.ts: answerTimeoutSeconds', configuration],
  ['src/console/operators/unusual.tsx: answer', adminApi],
  ['src/edge/auth/bad-key-throttle.ts: none', 'a result of `checksumIn`'],
  ['src/edge/server/create-server.ts: answerTimeoutSeconds', configuration],
  ['src/registry/unusual/schema.ts: answer', adminApi],
  ['src/services/tables.ts: answers', 'a table of the database'],
  ['test/adapters/tor-fetch.test.ts: if-none-match', 'a header of RFC 9110'],
  ['test/bench/compare/targets.ts: figure', 'a field of saved results, which `npm run bench -- --from` reads'],
  ['test/console/operator-pages-in-a-browser.test.ts: answer', adminApi],
  ['test/edge/limits.test.ts: answerTimeoutSeconds', configuration],
  ['test/fuzz/departures.test.ts: answerTimeoutSeconds', configuration],
  ['test/registry/unusual-use.test.ts: answer', adminApi],
  ['test/security/forged-services-tokens.test.ts: alg none, with the signature', algorithm],
  ['test/security/forged-services-tokens.test.ts: alg none, without a signature', algorithm],
  ['test/security/forged-sign-ins.test.ts: no signature (alg none)', algorithm],
]);
const texts =
  /\b(?:whoever|whosoever|told of|heard of|tried again|is none\b|that is none|as it is\b|of which one\b|is had\b)/i;

interface SourceTexts {
  readonly identifiers: string[];
  readonly strings: string[];
  readonly sentences: Sentence[];
}

/** What a reader sees of a source file: the names that it declares, its strings with a space, and the sentences of its comments. */
function textsOf(file: string): SourceTexts {
  const text = readFileSync(file, 'utf8');
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const [identifiers, strings]: [string[], string[]] = [[], []];
  const comments = new Map<number, ts.CommentRange>();
  const visit = (node: ts.Node): void => {
    const ranges = [
      ...(ts.getLeadingCommentRanges(text, node.getFullStart()) ?? []),
      ...(ts.getTrailingCommentRanges(text, node.getEnd()) ?? []),
    ];
    for (const range of ranges) comments.set(range.pos, range);
    identifiers.push(...declaredNames(node));
    if (
      (ts.isStringLiteralLike(node) || ts.isTemplateHead(node) || ts.isTemplateMiddleOrTemplateTail(node)) &&
      node.text.includes(' ')
    )
      strings.push(node.text);
    for (const child of node.getChildren(source)) visit(child);
  };
  visit(source);
  const prose = joined(
    [...comments.values()].toSorted((a, b) => a.pos - b.pos),
    text,
  );
  return { identifiers, strings, sentences: prose.flatMap((comment) => sentencesOf(comment)) };
}

/** The names that a file declares, without the cost of reading its comments. */
function identifiersOf(file: string): string[] {
  const identifiers: string[] = [];
  const visit = (node: ts.Node): void => {
    identifiers.push(...declaredNames(node));
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest));
  return identifiers;
}

/** The name that a node declares; empty without one. */
function declaredNames(node: ts.Node): string[] {
  const { name } = node as { name?: ts.Node };
  return name !== undefined && isName(name) && !isUse(node) ? [name.text] : [];
}

function isName(node: ts.Node): node is ts.Identifier | ts.PrivateIdentifier | ts.StringLiteral {
  return ts.isIdentifier(node) || ts.isPrivateIdentifier(node) || ts.isStringLiteral(node);
}

/** Whether a node has a name but only uses it: another place declares the name. */
function isUse(node: ts.Node): boolean {
  return ts.isPropertyAccessExpression(node) || ts.isImportSpecifier(node) || ts.isMetaProperty(node);
}

/** The texts of comments, as Markdown. Lines of `//` that follow each other are one comment; `@param` begins a paragraph. */
function joined(ranges: readonly ts.CommentRange[], text: string): string[] {
  const comments: string[] = [];
  let end = -1;
  for (const { kind, pos, end: to } of ranges) {
    const isLine = kind === ts.SyntaxKind.SingleLineCommentTrivia;
    const content = isLine
      ? text.slice(pos + 2, to)
      : text
          .slice(pos, to)
          .replace(/^\/\*+|\*+\/$/g, '')
          .replaceAll(/^\s*\*/gm, '');
    const paragraphs = content.replaceAll(/^\s*@(?:param\s+\S+|returns|throws)/gm, '\n').trim();
    if (isLine && end !== -1 && /^\n\s*$/.test(text.slice(end, pos)))
      comments.push(`${comments.pop() ?? ''} ${paragraphs}`);
    else comments.push(paragraphs);
    end = isLine ? to : -1;
  }
  return comments;
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.tsx?$/.test(name) && !name.includes('node_modules/'))
    .map((name) => `${folder}/${name}`);
}

const sources = filesIn('src').map((file) => ({ file, ...textsOf(file) }));

/** The first word of `identifierWords` that is in a name; undefined without one. "Look up" and its noun are allowed. */
function wordIn(name: string): string | undefined {
  const words = name
    .replaceAll(/([a-z\d])([A-Z])/g, '$1 $2')
    .toLowerCase()
    .replaceAll(/\blook(?:ed|ing)?[ -]ups?\b/g, '')
    .split(/[^a-z]+/);
  return [...identifierWords.keys()].find((one) =>
    words.some((other) => other === one || other.replace(/(?:s|ed|ing|ful)$/, '') === one),
  );
}

t.test('names of files, and all names that they declare, use the terms of the field', (t) => {
  const tests = filesIn('test').map((file) => ({ file, identifiers: identifiersOf(file) }));
  for (const part of [sources, tests])
    t.ok(new Set(part.flatMap(({ identifiers }) => identifiers)).size > 4_000, 'the names were read');
  const found = [...sources, ...tests].flatMap(({ file, identifiers }) =>
    [...new Set([file.slice(file.indexOf('/') + 1, -'.ts'.length), ...identifiers])].flatMap((name) => {
      const word = wordIn(name);
      return word === undefined ? [] : [{ at: `${file}: ${name}`, term: identifierWords.get(word) ?? '' }];
    }),
  );
  const wrong = found.filter(({ at }) => !keptNames.has(at)).map(({ at, term }) => `${at}: ${term}`);
  t.same(wrong, []);
  t.same(
    found
      .map(({ at }) => at)
      .filter((at) => keptNames.has(at))
      .toSorted(),
    [...keptNames.keys()],
  );
  t.end();
});

t.test('texts for users in src use the terms of the field', (t) => {
  const found = sources.flatMap(({ file, strings }) =>
    strings.filter((text) => texts.test(text)).map((text) => `${file}: ${text}`),
  );
  t.same(found, []);
  t.end();
});

t.test('sentences of comments in src have at most 40 words, half of them at most 16', (t) => {
  const all = sources.flatMap(({ sentences }) => sentences);
  t.ok(all.length > 2_000, 'the comments were read');
  t.ok(medianWords(all) <= 16, `the median is ${medianWords(all)} words`);
  const tooLong = sources.flatMap(({ file, sentences }) =>
    sentences.filter(({ words }) => words > 40).map(({ words, text }) => `${file}: ${words} words: ${text}`),
  );
  t.same(tooLong, []);
  t.end();
});
