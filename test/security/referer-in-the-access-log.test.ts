import t from 'tap';
import { ask, liveKey, recordsOf, startTestGateway } from '../edge/harness.js';

// A refusal for its origin says in the log which header decided, and what it named. Browsers send whole addresses in Referer: their
// paths and queries hold sessions and reset links, and a password may stand before the host.

const leaks: readonly (readonly [header: string, value: string, reason: string])[] = [
  ['referer', 'https://evil.example/reset/s3cr3t-path?token=s3cr3t-query#s3cr3t-part', 'Referer evil.example'],
  ['referer', 'https://user:s3cr3t-password@evil.example:8443/', 'Referer evil.example:8443'],
  ['referer', 'https://a@s3cr3t@evil.example/', 'Referer evil.example'],
  ['referer', '/s3cr3t-path', 'Referer (without a host)'],
  ['referer', 'evil.example?s3cr3t-query', 'Referer evil.example'],
  ['origin', 'https://user:s3cr3t-password@evil.example', 'Origin evil.example'],
  ['origin', 'null', 'Origin null'],
  ['origin', 'https://svc_live_s3cr3tKey0s3cr3tKey1.example', 'Origin svc_live_'],
];

t.test('a refused origin is named in the log without path, query, password or key', async (t) => {
  const gateway = await startTestGateway(t, {
    records: recordsOf(liveKey, { merchant: { originAllowlist: ['shop.example'] } }),
  });
  for (const [header, value, reason] of leaks) {
    gateway.lines.length = 0;
    const headers: (readonly [string, string])[] = [
      ['x-api-key', liveKey],
      [header, value],
    ];
    t.match(await ask(gateway, { headers }), { status: 401 }, value);
    const [line] = gateway.lines;
    t.match(line, { event: { code: 'origin_not_allowed', reason } });
    t.notMatch(JSON.stringify(line), 's3cr3t', value);
  }
});
