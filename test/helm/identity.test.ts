import t from 'tap';
import { parse } from 'yaml';
import { loadConfig } from '../../src/config/load.js';
import type { Config, DeepPartial } from '../../src/config/schema.js';
import { manifestsIn, render } from './render.js';

/** The configuration of the part with that name, as it is rendered over the backing services of this chart. */
function configOf(part: string, values: object = {}): DeepPartial<Config> {
  const rendered = render('backing-services', values);
  if (rendered.status !== 0) throw new Error(rendered.stderr);
  const map = manifestsIn(rendered).find(
    ({ kind, metadata: { name } }) => kind === 'ConfigMap' && name === `release-merchant-gateway-${part}`,
  ) as unknown as { data: Record<string, string> };
  return parse(map.data['gateway.yaml'] ?? '') as DeepPartial<Config>;
}

t.test('gateways sign for the services of the former release too, unless the values say otherwise', (t) => {
  t.equal(configOf('live').identity?.audience, 'merchant-gateway', 'pods of both releases run side by side');
  t.equal(configOf('services').identity?.audience, undefined, 'and services need not be told');
  t.equal(configOf('live', { config: { identity: { audience: 'payments' } } }).identity?.audience, 'payments');
  t.notOk(configOf('live', { config: { identity: { audience: null } } }).identity?.audience, 'null ends it');
  t.end();
});

const route = (path: string, upstream: string) => ({ path, upstream, resource: 'payouts' });
const own = { core: { url: '${CORE_URL}' }, payouts: { url: 'http://payouts:8080' } };

t.test('the services know the routes of the gateways, and no variable of their pods', (t) => {
  t.notOk(configOf('services').routes, 'the default ones');
  const routes = [route('/payouts', 'payouts'), route('/dev', 'core')];
  const config = configOf('services', { config: { upstreams: own, routes } });
  t.same(config.routes, routes);
  t.match(
    loadConfig({ text: JSON.stringify(config), env: { MERCHANT_GATEWAY_DATABASE_URL: 'postgres://db/services' } }),
    { routes },
  );
  t.end();
});

t.test('where environments have routes of their own, the services know all of them', (t) => {
  const [payouts, core] = [route('/payouts', 'payouts'), route('/dev', 'core')];
  const gateway = (routes: object[]) => ({ enabled: true, gateway: { config: { upstreams: own, routes } } });
  const environments = { live: gateway([payouts]), test: gateway([payouts, core]) };
  t.same(configOf('services', { environments }).routes, [payouts, core]);
  t.end();
});

t.test('the registry knows the resources of all routes, of environments that have the default ones too', (t) => {
  const resourcesOf = (values: object): string[] => {
    const text = JSON.stringify(configOf('registry', values));
    const config = loadConfig({ text, env: { MERCHANT_GATEWAY_DATABASE_URL: 'postgres://db/registry' } });
    return config.routes.map(({ resource }) => resource).toSorted();
  };
  const defaults = ['customers', 'payouts', 'transactions', 'wallets'];
  t.notOk(configOf('registry').routes, 'the default ones');
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
