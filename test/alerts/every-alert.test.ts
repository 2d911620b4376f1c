import { writeFileSync } from 'node:fs';
import t from 'tap';
import { covered } from './covered.js';
import { evaluate, type InputSeries, type Scenario, withoutPromtool } from './promtool.js';
import { ruleFiles, rules } from './rules.js';

t.test('the tests in this directory cause each alert of the chart, and name no others', (t) => {
  t.same(Object.values(covered).flat().toSorted(), rules.map(({ alert }) => alert).toSorted());
  t.end();
});

/** A series of a process with one value for half an hour. */
function constant(metric: string, service: string, value: number): InputSeries {
  const name = `release-merchant-gateway-${service}`;
  const labels = `namespace="payments",job="${name}",service="${name}",instance="${service}"`;
  return { series: `${metric}{${labels}}`, values: `${value}+0x30` };
}

t.test('GatewaySlow fires for a gateway, and for no other process of Node', { skip: withoutPromtool }, (t) => {
  const lag = 'nodejs_eventloop_lag_p99_seconds';
  const slow = (service: string): InputSeries[] => [
    constant('gateway_ready', 'live-management', 1),
    ...['live-management', 'registry', 'services'].map((one) => constant(lag, one, one === service ? 0.3 : 0.01)),
  ];
  const scenarios: Scenario[] = [
    { name: 'gateway', input: slow('live-management'), expected: [{ minute: 20, fires: 'GatewaySlow' }] },
    ...['registry', 'services'].map((name) => ({
      ...{ name, input: slow(name) },
      expected: [{ minute: 20, fires: null, silent: 'GatewaySlow' }],
    })),
  ];
  const folder = t.testdir();
  for (const file of ruleFiles(folder, writeFileSync)) t.equal(evaluate(folder, file, scenarios), null, file);
  t.end();
});
