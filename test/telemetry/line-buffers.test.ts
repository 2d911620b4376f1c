import fc from 'fast-check';
import t from 'tap';
import { LineBuffer } from '../../src/telemetry/line-writer/line-buffers.js';

t.test('added text is taken once, in order and as UTF-8, in any amount', (t) => {
  const text = fc.oneof(
    fc.string({ unit: 'grapheme', maxLength: 40 }),
    fc.constantFrom('', 'é', '\u{1f600}', 'x'.repeat(70_000), '€'.repeat(50_000)),
  );
  fc.assert(
    fc.property(fc.array(fc.array(text, { maxLength: 6 }), { maxLength: 6 }), (batches) => {
      const held = new LineBuffer();
      for (const lines of batches) {
        const expected = Buffer.from(lines.map((line) => `${line}\n`).join(''));
        const sizes = lines.map((line) => held.add(Buffer.from(line)));
        const taken = held.take() ?? Buffer.alloc(0);
        const size = sizes.reduce((sum, one) => sum + one, 0);
        if (!taken.equals(expected) || size !== expected.length || held.take() !== null) return false;
      }
      return true;
    }),
    { numRuns: 200, seed: 1 },
  );
  t.end();
});

t.test('taken bytes stay unchanged while further lines are added', (t) => {
  const held = new LineBuffer();
  held.add(Buffer.from('first'));
  const first = held.take();
  held.add(Buffer.from('second'));
  t.equal(first?.toString(), 'first\n');
  const second = held.take();
  held.add(Buffer.from('third'));
  t.equal(second?.toString(), 'second\n');
  t.end();
});
