import t from 'tap';
import { ChainCheck } from '../../src/audit/chain-check.js';
import type { Finding } from '../../src/audit/finding.js';
import { parseSealedLine } from '../../src/audit/sealed-line.js';

/** Reads a chain of these numbers, whose lines anybody could have made. */
function check(sequences: Iterable<number>): Finding[] {
  const findings: Finding[] = [];
  let chain: ChainCheck | null = null;
  let number = 0;
  for (const sequence of sequences) {
    number += 1;
    const text = `{"service":{"ephemeral_id":"${'A'.repeat(26)}"},"event":{"sequence":${sequence},"hash":"${'0'.repeat(64)}"}}`;
    const line = parseSealedLine(Buffer.from(text.replace('{"sequence"', '{"id":"x","sequence"')));
    if (line === null) throw new Error('no line of a chain');
    chain ??= new ChainCheck(line, [null], (finding) => {
      findings.push(finding);
    });
    chain.check(line, { file: 'access.log', line: number });
  }
  return findings;
}

// Each line within a gap makes two of it, and each is looked for among all. Whoever could write a log could have a verification of
// it last for hours. That gaps are forgotten shows in the last line: it is no more known to be there twice.
t.test('of lines that part a gap over and over no more is remembered than of others', (t) => {
  const few = Array.from({ length: 900 }, (_, index) => 2 * index + 4);
  t.match(check([1, 50_000, ...few, 4]).at(-1), { kind: 'repeated' });
  const many = Array.from({ length: 1_100 }, (_, index) => 2 * index + 4);
  const findings = check([1, 50_000, ...many, 4]);
  t.equal(findings.filter(({ kind }) => kind === 'reordered').length, 1_101);
  t.end();
});

t.test('with a gap too many no line is told to be there twice that is not', (t) => {
  const gaps = Array.from({ length: 1_001 }, (_, index) => 3 * index + 4);
  // Of the last gap nothing is remembered, and of the others all.
  const findings = check([1, ...gaps, 3_002, 3_000]);
  t.same(
    findings.slice(1_001).map(({ kind }) => kind),
    ['reordered', 'reordered'],
  );
  t.end();
});

t.test('a changed number beyond the last gap takes none from the others', (t) => {
  const gaps = Array.from({ length: 1_000 }, (_, index) => 3 * index + 4);
  const next = 3_002;
  const findings = check([1, ...gaps, 9_000, next + 1, 3_000]);
  t.match(findings.slice(1_000), [
    { kind: 'edited', line: 1_002 },
    { kind: 'edited', line: 1_003 },
    { kind: 'reordered', line: 1_004 },
  ]);
  t.end();
});
