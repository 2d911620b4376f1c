import fc from 'fast-check';
import t from 'tap';
import { chainHash, LineHash, logSecretOf } from '../../src/telemetry/chain.js';

const head = '{"service":{"id":"01"},';

const texts = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 300 }),
  fc.constantFrom('', 'é', '\u{1f600}', '\ud800', 'x'.repeat(70_000), '€'.repeat(5_000)),
);

t.test('lines are hashed as the verifier does it, under secrets of any length and without one', (t) => {
  fc.assert(
    fc.property(
      fc.option(fc.uint8Array({ minLength: 1, maxLength: 200 })),
      fc.array(texts, { maxLength: 8 }),
      (bytes, lines) => {
        const secret = bytes === null ? null : logSecretOf(Buffer.from(bytes));
        const hashes = new LineHash(secret, head);
        let previous = '0'.repeat(64);
        return lines.every((text) => {
          const line = `${head}"text":"${text}","event":{"a":1,"sequence":7`;
          const expected = chainHash(secret, previous, line);
          const hash = hashes.of(previous, `{"text":"${text}","event":{"a":1}}`, ',"sequence":7');
          previous = hash;
          const whole = hashes.withEnd(`,"hash":"${hash}"}}`);
          return hash === expected && whole.equals(Buffer.from(`${line},"hash":"${expected}"}}`));
        });
      },
    ),
    { numRuns: 300, seed: 1 },
  );
  t.end();
});
