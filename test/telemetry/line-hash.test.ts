import { createHash, createHmac } from 'node:crypto';
import fc from 'fast-check';
import t from 'tap';
import { leafHash } from '../../src/evidence/merkle-tree.js';
import { LineHash, logSecretOf, treeAlgorithm } from '../../src/telemetry/chain.js';

const head = '{"service":{"id":"01"},';

const texts = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 300 }),
  fc.constantFrom('', 'é', '\u{1f600}', '\ud800', 'x'.repeat(70_000), '€'.repeat(5_000)),
);

t.test('lines are hashed as Node hashes them, with secrets of any length, without one, and as tree leaves', (t) => {
  fc.assert(
    fc.property(
      fc.oneof(fc.uint8Array({ minLength: 1, maxLength: 200 }), fc.constant(null), fc.constant(treeAlgorithm)),
      fc.array(texts, { maxLength: 8 }),
      (bytes, lines) => {
        const secret = typeof bytes === 'object' && bytes !== null ? logSecretOf(Buffer.from(bytes)) : bytes;
        const [hashes, ofLines] = [new LineHash(secret, head), new LineHash(secret)];
        const expectedHash = (previous: string, line: string) => {
          if (secret === treeAlgorithm) return leafHash(previous, line);
          const digest = secret === null ? createHash('sha256') : createHmac('sha256', secret);
          return digest.update(previous).update(line).digest('hex');
        };
        let previous = '0'.repeat(64);
        return lines.every((text) => {
          const line = `${head}"text":"${text}","event":{"a":1,"sequence":7`;
          const expected = expectedHash(previous, line);
          const before = previous;
          const hash = hashes.of(previous, `{"text":"${text}","event":{"a":1}}`, ',"sequence":7');
          previous = hash;
          const whole = hashes.withEnd(`,"hash":"${hash}"}}`);
          const ofLine = ofLines.ofLine(before, whole);
          return (
            hash === expected && ofLine === expected && whole.equals(Buffer.from(`${line},"hash":"${expected}"}}`))
          );
        });
      },
    ),
    { numRuns: 300, seed: 1 },
  );
  t.end();
});
