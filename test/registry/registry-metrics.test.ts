import { onEachDatabase } from '../database/each-database.js';
import { gateway } from './memory-records-store.js';
import { registryFixture } from './registry-fixture.js';

onEachDatabase('metrics show the propagation of changes and the requests by client', async (t, url) => {
  const { app, call, createMerchant, createKey, database, outwait, projector, store } = await registryFixture(t, url);
  const text = async (): Promise<string> => (await app.inject('/metrics')).body;
  const metrics = async (): Promise<Record<string, number>> => {
    const lines = (await text()).matchAll(/^registry_(\w+) (\S+)$/gm);
    return Object.fromEntries([...lines].map(([, name = '', value]) => [name, Number(value)]));
  };
  const atFirst = {
    ...{ ready: 1, projection_failing: 0, gateways: 0, acknowledged_revision: NaN },
    ...{ roster_complete: 1, held_back_records: 0, redis_evicted_keys: 0, redis_may_evict: 0, repair_paused: 0 },
    ...{
      records_compared_total: 0,
      records_all_compared_timestamp_seconds: NaN,
      instance_keys_unconfirmed: 0,
      tokens_expiring: 0,
      approvals_waiting: 0,
      webhooks_undelivered: 0,
    },
  };
  t.same(await metrics(), { ...atFirst, revision: 0, projected_revision: 0 });

  const { id } = await createMerchant();
  const { keyId } = await createKey(id);
  store.live = [gateway('a', { revision: 2 }), gateway('b', { revision: 1, acknowledges: false })];
  const known = { ...atFirst, gateways: 2, acknowledged_revision: 1 };
  t.same(await metrics(), { ...known, revision: 2, projected_revision: 2 });

  store.fails = (one) => (one === 'write' ? 'before' : null);
  await outwait(call('POST', `/keys/${keyId}/revoke`), 1);
  while (!projector.isFailing) await new Promise((resolve) => setTimeout(resolve, 1));
  const waiting = { ...known, revision: 3, projected_revision: 2, projection_failing: 1 };
  t.same(await metrics(), waiting);
  store.fails = () => 'before';
  const unheard = { ...waiting, gateways: NaN, acknowledged_revision: NaN, roster_complete: NaN };
  t.same(await metrics(), unheard);

  t.match(await text(), 'registry_records_repaired_total{cause="forged"} 0');
  t.match(await text(), 'registry_checkpoint_findings_total{kind="cut"} 0');

  await call('GET', `/merchants/${id}`);
  await call('GET', '/merchants/m_nobody');
  await call('GET', '/nothing/here');
  await app.inject({ url: '/merchants', headers: { authorization: 'Bearer wrong' } });
  await app.inject('/livez');
  const counts = (await text()).matchAll(
    /^registry_requests_total\{route="(.*)",method="(.*)",status="(.*)"\} (\d+)$/gm,
  );
  t.same([...counts].map(([, ...parts]) => parts.join(' ')).toSorted(), [
    '/keys/:keyId/revoke POST 202 1',
    '/merchants GET 401 1',
    '/merchants POST 201 1',
    '/merchants/:id GET 200 1',
    '/merchants/:id GET 404 1',
    '/merchants/:id/keys POST 201 1',
    'none GET 404 1',
  ]);
  t.match(await text(), /^registry_request_duration_seconds_count\{route="\/merchants\/:id"\} 2$/m);
  t.match(await text(), /^process_cpu_seconds_total \S+$/m);
  t.notMatch(await text(), id, 'metrics contain no merchant id');

  const held = { kind: 'key', merchant_id: id, source: 'store', was: '{}', found_at: 1 } as const;
  await database
    .insertInto('held_back')
    .values([
      { id: 'key_1', ...held },
      { id: 'key_2', ...held },
    ])
    .execute();
  t.same(await metrics(), { ...unheard, held_back_records: 2 });

  await database.destroy();
  const away = {
    held_back_records: NaN,
    instance_keys_unconfirmed: NaN,
    tokens_expiring: NaN,
    approvals_waiting: NaN,
    webhooks_undelivered: NaN,
    revision: NaN,
    projected_revision: NaN,
  };
  t.same(await metrics(), { ...unheard, ...away, ready: 0 });
});
