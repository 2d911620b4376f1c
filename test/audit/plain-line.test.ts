import t from 'tap';
import { findEntry } from '../../src/audit/access-entry.js';
import { findCounted, readPlainLine } from '../../src/audit/plain-line.js';
import { SummaryBuilder } from '../../src/audit/summary/summary.js';

const head = '{"service":{"ephemeral_id":"01M7WJMG35EDK4R664YCSW956W","version":"0.1.0","node":{"name":"gw-1"}},';
const event =
  '"event":{"id":"01KAG0","dataset":"gateway.access","kind":"event","category":["api"],"type":["access","denied"],';
const end = `"duration":412000,"sequence":812,"hash":"${'a1'.repeat(32)}"}}`;
const full =
  `${head}"host":{"name":"host-1"},"ecs":{"version":"9.4.0"},"@timestamp":"2026-11-20T10:00:01.250Z","trace":{"id":"0af7"},` +
  '"http":{"request":{"id":"r1","method":"POST","body":{"bytes":5}},"response":{"status_code":403,"body":{"bytes":20}}},' +
  '"url":{"path":"/v1/payouts"},"client":{"ip":"192.0.2.1","geo":{"country_iso_code":"NL"},"as":{"number":64500}},' +
  '"source":{"ip":"198.51.100.7","port":4711},"tls":{"version":"1.3","version_protocol":"tls","cipher":"TLS_AES",' +
  '"client":{"subject":"CN=a","hash":{"sha256":"AB"}}},"organization":{"id":"m_a"},"gateway":{"key":{"id":"key_a",' +
  '"fingerprint":"abab"},"environment":"live","tor_list":{"digest":"ab"},"record":{"source":"cache","age":1.5,' +
  '"revision":812},"route":"/payouts","upstream":{"name":"payouts","duration":null}},"user_agent":{"original":"a \\"b\\" \\\\"},' +
  `${event}"action":"api-request","outcome":"failure","code":"tor_blocked","reason":"a \\"list\\"",${end}`;
const short =
  `${head}"ecs":{"version":"9.4.0"},"@timestamp":"2026-11-20T10:00:01.250Z","http":{"request":{"id":"r2"},"response":{"status_code":400}},` +
  `"source":{},"gateway":{"environment":"live"},${event}"action":"api-request","outcome":"failure","code":"request_invalid",${end}`;

/** The values by which an audit counts a line, as `find` reads them; null if the line is not counted. */
function counted(line: Buffer, find: typeof findCounted): unknown {
  const found = find(line);
  if (found === null) return null;
  const { entry, isSealed } = found;
  const { client, source, organization, url, gateway } = entry;
  const time = entry['@timestamp'];
  const from = [client?.ip, client?.geo?.country_iso_code, source?.ip, organization?.id, url?.path];
  const key = [gateway.key?.id, gateway.key?.fingerprint];
  return [isSealed, time, entry.event.code, entry.http.request.id, gateway.aggregate, ...from, ...key];
}

t.test('the fast parser agrees with the full one for any replacement of any byte', (t) => {
  let quick = 0;
  let unlike: string | null = null;
  for (const line of [full, short]) {
    t.not(readPlainLine(Buffer.from(line)), null, 'the fast parser accepts lines of a gateway');
    for (let at = 0; at < line.length; at += 1) {
      for (const other of [
        '',
        '"',
        '\\',
        '}',
        ',',
        '{',
        ':',
        '0',
        '-',
        'x',
        '\t',
        '\u007f',
        'é',
        '\\"',
        '"",',
        '\\u0022',
      ]) {
        const bytes = Buffer.from(line.slice(0, at) + other + line.slice(at + 1));
        if (readPlainLine(bytes) === null) continue;
        quick += 1;
        if (JSON.stringify(counted(bytes, findCounted)) !== JSON.stringify(counted(bytes, findEntry)))
          unlike ??= bytes.toString();
      }
    }
  }
  t.equal(unlike, null);
  t.ok(quick > 1000, `${quick} changed lines are accepted by the fast parser`);
  t.end();
});

t.test(
  'times are counted in their minute, even if a text shares its prefix with the previous time but is invalid',
  (t) => {
    const summing = new SummaryBuilder();
    const entry = findEntry(Buffer.from(short))?.entry;
    if (entry === undefined) throw new Error('the line of a request');
    const times = [
      '10:00:01.250Z',
      '10:00:61.250Z',
      '10:00:59.999Z',
      '10:00:01.250+01:00',
      '10:01:00.000Z',
      '10:00:00.000Z',
    ];
    for (const time of times) summing.add({ ...entry, '@timestamp': `2026-11-20T${time}` });
    const { spans, requests } = summing.end();
    t.equal(requests, 6);
    const counts = spans.map(({ from, refused }) => [from.slice(11, 16), refused]);
    t.same(
      counts.filter(([, refused]) => refused !== 0),
      [
        ['10:00', 3],
        ['10:01', 1],
      ],
    );
    t.end();
  },
);
