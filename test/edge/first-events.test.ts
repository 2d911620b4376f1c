import { readFileSync } from 'node:fs';
import t from 'tap';
import { parse } from 'yaml';
import { startTestGateway } from './harness.js';

interface Alerts {
  readonly groups: readonly { readonly rules: readonly { readonly alert: string; readonly expr: string }[] }[];
}

t.test('an alert fires on the first event: its series starts at 0, or its rule also counts a new series', async (t) => {
  const gateway = await startTestGateway(t);
  const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  const { groups } = parse(readFileSync('helm/files/alerts.yaml', 'utf8')) as Alerts;
  const rules = groups.flatMap(({ rules }) => rules).filter(({ expr }) => expr.includes('increase('));
  t.same(
    rules.map(({ alert }) => alert),
    [
      'GatewayRecordsForged',
      'GatewayAccessLogLinesLost',
      'GatewayAccessLogShared',
      'GatewayInternalErrors',
      'GatewayUpstreamOutOfStep',
      'GatewayBodiesSlow',
      'GatewayKeysExposed',
      'RegistryRecordsForged',
      'RegistryRecordsMissing',
      'RegistryTokenRefused',
    ],
  );
  for (const { alert, expr } of rules) {
    const [, metric = '', labels = '', window = ''] = /increase\((\w+)\{(.*?)\}\[(\w+)\]\)/.exec(expr) ?? [];
    // A metric labelled by upstream or by code has a series for each from the start.
    const words = ['{upstream="payouts"}', '{code="https_required"}'];
    const names = labels === '' ? [metric, ...words.map((word) => `${metric}${word}`)] : [`${metric}{${labels}}`];
    const begun = text.split('\n').some((line) => names.some((name) => line === `${name} 0`));
    const series = `${metric}{${labels}}`;
    const whole = expr.replaceAll(/\s+/g, ' ');
    const appears = `(${series} unless ${series} offset ${window})`;
    // `increase` ignores the first value of a series. So while a series is younger than the window, an alert on the
    // count needs the whole value of the series instead.
    const counts = [`> 0 or ${appears}`, `${appears} or increase(${series}[${window}])`].some((form) =>
      whole.includes(form),
    );
    t.ok(begun || counts, alert);
  }
});

t.test('an alert on a rate sees the first event: the series of each label value start at 0', async (t) => {
  const sharedRate = { take: () => Promise.reject(new Error('not asked')), close: () => Promise.resolve() };
  const gateway = await startTestGateway(t, { config: { rateLimit: { requestsPerSecond: 1 } }, sharedRate });
  const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  const begun = (metric: string, label: string): string[] =>
    [...text.matchAll(new RegExp(`^${metric}\\{${label}="(\\w+)"\\} 0$`, 'gm'))].map(([, word = '']) => word);
  t.same(begun('gateway_key_lookup_duration_seconds_count', 'source'), ['store', 'cache', 'stale', 'unavailable']);
  t.same(begun('gateway_rate_limit_counts_total', 'how').toSorted(), ['alone', 'together']);
});

t.test('each reason to refuse a connection has a series from the start', async (t) => {
  const gateway = await startTestGateway(t);
  const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  const exposed = [...text.matchAll(/^gateway_connections_refused_total\{reason="(\w+)"\} 0$/gm)].map(
    ([, reason]) => reason,
  );
  const section = readFileSync('docs/connections.md', 'utf8').split('## What is counted')[1]?.split('\n\n')[1] ?? '';
  const named = [...section.matchAll(/`(\w+)`/g)].map(([, reason = '']) => reason);
  const first = named.indexOf('plain_http');
  const [beforeTls, ofTls] = [named.slice(0, first), named.slice(first).filter((one) => !one.startsWith('tls_'))];
  t.same(exposed.toSorted(), [...beforeTls, ...ofTls.map((one) => `tls_${one}`)].toSorted());
});
