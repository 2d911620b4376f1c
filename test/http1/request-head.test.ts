import t from 'tap';
import { writeRequestHead } from '../../src/edge/http1/connection.js';

const to = { method: 'GET', target: '/v1/payouts', host: 'payouts.internal', body: null, keepsConnection: true };

t.test('a request head is its request line, its headers unchanged, and an empty line', (t) => {
  for (let turn = 1; turn <= 2; turn += 1) {
    t.equal(
      writeRequestHead({ ...to, headers: ['Accept', '*/*', 'x-name', 'b\u00fc\tc'] }),
      'GET /v1/payouts HTTP/1.1\r\nhost: payouts.internal\r\nconnection: keep-alive\r\n' +
        'Accept: */*\r\nx-name: b\u00fc\tc\r\n\r\n',
    );
  }
  t.end();
});

t.test('a name, value or target that could be read as another header or request is not written', (t) => {
  const names = ['', 'a b', 'a:', 'a\r\nx-merchant-id', 'a\n', 'a\0', 'ä', '\u0100', 'x'.repeat(70) + ' '];
  const values = ['a\r\nx-merchant-id: 1', 'a\n', '\r', 'a\0', '\u0100', '\u2028', '\x7f'];
  // Each name twice, because for the second one the result of the check comes from a cache.
  for (const name of [...names, ...names]) {
    t.throws(() => writeRequestHead({ ...to, headers: [name, 'value'] }), /invalid character in a request header/, {
      name,
    });
  }
  for (const value of [...values, ...values]) {
    t.throws(() => writeRequestHead({ ...to, headers: ['name', value] }), /invalid character in a request header/, {
      value,
    });
  }
  for (const target of ['/a b', '/a\r\nb', '/\u0100']) {
    t.throws(() => writeRequestHead({ ...to, target, headers: [] }), /invalid character in the request target/, {
      target,
    });
  }
  t.end();
});
