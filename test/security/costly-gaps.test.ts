import { performance } from 'node:perf_hooks';
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

/** One line, one with a number that is far ahead, and then so many in between. */
function* behind(count: number, sequenceOf: (index: number) => number): Generator<number> {
  yield 1;
  yield 10 * count;
  for (let index = 1; index <= count; index += 1) yield sequenceOf(index);
}

// Each line within a gap makes two of it. Whoever could write a log could have a verification of it last for hours.
t.test('lines that part a gap over and over take no more time than others do', (t) => {
  const count = 60_000;
  const timeOf = (sequenceOf: (index: number) => number): number => {
    const from = performance.now();
    t.equal(check(behind(count, sequenceOf)).length, count + 1);
    return performance.now() - from;
  };
  timeOf(() => 1);
  const [repeated, parting] = [timeOf(() => 1), timeOf((index) => 2 * index + 2)];
  t.ok(parting < 10 * repeated, `${parting} ms, and ${repeated} ms for lines that are there once more`);
  t.end();
});

t.test('a gap that had no room is taken for no other one', (t) => {
  const gaps = Array.from({ length: 1_000 }, (_, index) => 3 * index + 4);
  const next = 3_002;
  // A changed number makes a gap for as long as the line behind it is not known.
  const findings = check([1, ...gaps, 9_000, next + 1, 3_000]);
  t.match(findings.slice(1_000), [
    { kind: 'edited', line: 1_002 },
    { kind: 'edited', line: 1_003 },
    { kind: 'reordered', line: 1_004 },
  ]);
  t.end();
});
