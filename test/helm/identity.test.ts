import t from 'tap';
import { parse } from 'yaml';
import { loadConfig } from '../../src/config/load.js';
import type { Config, DeepPartial } from '../../src/config/schema.js';
import { manifestsIn, render } from './render.js';

/** Returns the configuration of the named part that the chart renders for the profile backing-services. */
function configOf(part: string, values: object = {}): DeepPartial<Config> {
  const rendered = render('backing-services', values);
  if (rendered.status !== 0) throw new Error(rendered.stderr);
  const map = manifestsIn(rendered).find(
    ({ kind, metadata: { name } }) => kind === 'ConfigMap' && name === `release-merchant-gateway-${part}`,
  ) as unknown as { data: Record<string, string> };
  return parse(map.data['gateway.yaml'] ?? '') as DeepPartial<Config>;
}

t.test("gateways sign the previous release's audience too, unless the values change it", (t) => {
  t.equal(
    configOf('live').identity?.audience,
    'merchant-gateway',
    'pods of both releases run concurrently during an upgrade',
  );
  t.equal(configOf('services').identity?.audience, undefined, 'services need no setting');
  t.equal(configOf('live', { config: { identity: { audience: 'payments' } } }).identity?.audience, 'payments');
  t.notOk(
    configOf('live', { config: { identity: { audience: null } } }).identity?.audience,
    'null disables the former audience',
  );
  t.end();
});

const route = (path: string, upstream: string) => ({ path, upstream, resource: 'payouts' });
const own = { core: { url: '${CORE_URL}' }, payouts: { url: 'http://payouts:8080' } };

t.test("the services know the gateways' routes, without variables of the gateway pods", (t) => {
  t.notOk(configOf('services').routes, 'the default routes are omitted');
  const routes = [route('/payouts', 'payouts'), route('/dev', 'core')];
  const config = configOf('services', { config: { upstreams: own, routes } });
  t.same(config.routes, routes);
  t.match(
    loadConfig({ text: JSON.stringify(config), env: { MERCHANT_GATEWAY_DATABASE_URL: 'postgres://db/services' } }),
    { routes },
  );
  t.end();
});

t.test('the services know the routes of all environments', (t) => {
  const [payouts, core] = [route('/payouts', 'payouts'), route('/dev', 'core')];
  const gateway = (routes: object[]) => ({ enabled: true, gateway: { config: { upstreams: own, routes } } });
  const environments = { live: gateway([payouts]), test: gateway([payouts, core]) };
  t.same(configOf('services', { environments }).routes, [payouts, core]);
  t.end();
});

t.test('the registry knows the resources of all routes, including the defaults of an environment', (t) => {
  const resourcesOf = (values: object): string[] => {
    const text = JSON.stringify(configOf('registry', values));
    const config = loadConfig({ text, env: { MERCHANT_GATEWAY_DATABASE_URL: 'postgres://db/registry' } });
    return config.routes.map(({ resource }) => resource).toSorted();
  };
  const defaults = ['customers', 'payouts', 'transactions', 'wallets'];
  t.notOk(configOf('registry').routes, 'the default routes are omitted');
  t.same([...new Set(resourcesOf({}))], defaults);
  const invoices = { path: '/bills', upstream: 'core', resource: 'invoices' };
  t.same(resourcesOf({ config: { upstreams: own, routes: [invoices] } }), ['invoices']);
  const gateway = (config: object) => ({ enabled: true, gateway: { config } });
  const contradicting = { upstreams: own, routes: [{ ...invoices, resource: 'bills' }] };
  const environments = { live: gateway({ upstreams: own, routes: [invoices] }), test: gateway(contradicting) };
  t.same(resourcesOf({ environments }), ['bills', 'invoices']);
  const named = { transactions: own.payouts, payouts: own.payouts, customers: own.payouts };
  const mixed = { live: gateway({ upstreams: named }), test: gateway({ upstreams: own, routes: [invoices] }) };
  t.same(resourcesOf({ services: { enabled: false }, environments: mixed }), [...defaults, 'invoices'].toSorted());
  t.end();
});
