import t from 'tap';
import { parseStrictJson } from '../../src/json/strict-json.js';

// Where the time grows with the square of the length, each of these takes minutes, and the test fails by its time limit.
t.test('a body that is one long number does not keep everybody else waiting', (t) => {
  const zeros = '0'.repeat(1_000_000);
  const problem = { message: /^too-precise / };
  for (const number of [`1.${zeros}1`, `0.${zeros}1`]) {
    t.throws(() => parseStrictJson(`{"amount":${number}}`), problem, number.slice(0, 4));
  }
  t.same(parseStrictJson(`{"amount":7.${zeros}}`), { amount: 7 });
  t.same(parseStrictJson(`{"amount":7${'0'.repeat(20)}e-20}`), { amount: 7 });
  t.end();
});
