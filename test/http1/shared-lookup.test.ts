import dns from 'node:dns';
import type { LookupFunction } from 'node:net';
import t from 'tap';
import type { ResponseReader } from '../../src/edge/http1/response-reader.js';
import { ConnectionPool, shareLookups } from '../../src/edge/http1/connection-pool.js';
import type { WireRequest } from '../../src/edge/http1/connection.js';

type LookupCallback = Parameters<LookupFunction>[2];

function openLookup() {
  const asked: { readonly question: string; readonly callback: LookupCallback }[] = [];
  const lookup = shareLookups((hostname, { family, all }, callback) => {
    asked.push({ question: `${hostname} ${family} ${all}`, callback });
  });
  const results: unknown[] = [];
  const ask = (hostname: string, options: Parameters<LookupFunction>[1] = {}): void => {
    lookup(hostname, options, (error, address) => results.push(error?.code ?? address));
  };
  return { asked, ask, results };
}

t.test('concurrent DNS look-ups of a name share one query', (t) => {
  const { asked, ask, results } = openLookup();
  for (let count = 0; count < 100; count += 1) ask('silent.example');
  ask('other.example');
  t.same(
    asked.map(({ question }) => question),
    ['silent.example undefined undefined', 'other.example undefined undefined'],
  );
  asked[1]?.callback(null, '192.0.2.2', 4);
  t.same(results, ['192.0.2.2'], 'one name does not wait for another');
  asked[0]?.callback(null, '192.0.2.1', 4);
  t.same(results.slice(1), Array(100).fill('192.0.2.1'));
  t.end();
});

t.test('all callers get a failure, and the next call queries again', (t) => {
  const { asked, ask, results } = openLookup();
  for (let count = 0; count < 3; count += 1) ask('lost.example');
  asked[0]?.callback(Object.assign(new Error('not found'), { code: 'ENOTFOUND' }), '');
  t.same(results, ['ENOTFOUND', 'ENOTFOUND', 'ENOTFOUND']);
  ask('lost.example');
  asked[1]?.callback(null, '192.0.2.3', 4);
  t.equal(results[3], '192.0.2.3');
  t.end();
});

t.test('a look-up started in the callback of another one queries again', (t) => {
  const asked: LookupCallback[] = [];
  const lookup = shareLookups((_hostname, _options, callback) => asked.push(callback));
  lookup('a.example', {}, () => {
    lookup('a.example', {}, () => undefined);
  });
  asked[0]?.(null, '192.0.2.1', 4);
  t.equal(asked.length, 2);
  t.end();
});

t.test('look-ups with different options are separate', (t) => {
  const { asked, ask, results } = openLookup();
  for (const options of [{}, { all: true }, { family: 4 }, { family: 6 }, { all: true }]) ask('a.example', options);
  t.same(
    asked.map(({ question }) => question),
    ['a.example undefined undefined', 'a.example undefined true', 'a.example 4 undefined', 'a.example 6 undefined'],
  );
  asked[1]?.callback(null, [{ address: '192.0.2.1', family: 4 }]);
  t.same(results, Array(2).fill([{ address: '192.0.2.1', family: 4 }]));
  t.end();
});

t.test('the connections to an upstream share their look-ups', async (t) => {
  const asked: string[] = [];
  const refused = Object.assign(new Error('not found'), { code: 'ENOTFOUND' });
  const { lookup } = dns;
  t.teardown(() => (dns.lookup = lookup));
  dns.lookup = ((hostname: string, _options: unknown, callback: (error: Error) => void) => {
    asked.push(hostname);
    setTimeout(callback, 50, refused);
  }) as unknown as typeof dns.lookup;
  const origin = new URL('http://silent.example');
  const pool = new ConnectionPool({
    ...{ origin, connectMilliseconds: 60_000, maxConnections: 10, ca: null },
    ...{ boundIdle: 10, readsBodies: false, restMilliseconds: 0, onUnsolicited: () => undefined },
  });
  t.teardown(() => {
    pool.destroy();
  });
  const failures = Array.from({ length: 5 }, () => {
    return new Promise((resolve) => {
      pool.send({} as WireRequest, { isSettled: false, onFailure: resolve } as unknown as ResponseReader, false);
    });
  });
  t.same(await Promise.all(failures), Array(5).fill(refused));
  t.same(asked, ['silent.example']);
});
