import { randomBytes } from 'node:crypto';
import { sql } from 'kysely';
import t, { type Test } from 'tap';
import { type ApprovalRules, noRules } from '../../src/registry/approvals/guard.js';
import { applyConfiguredRules } from '../../src/registry/approvals/rules.js';
import type { Approval } from '../../src/registry/approvals/schema.js';
import type { Administrator, AdministratorToken } from '../../src/registry/administrators/schema.js';
import type { RegistryOptions } from '../../src/registry/create-registry.js';
import type { RegistryEvent } from '../../src/registry/events/schema.js';
import type { Merchant } from '../../src/registry/merchants/schema.js';
import { onEachDatabase } from '../database/each-database.js';
import { newServicesTokenKey } from '../services/operators-fixture.js';
import { registryFixture } from './registry-fixture.js';
import { emptyList } from '../empty-list.js';

type Headers = Record<string, string>;
interface Needed {
  readonly code: string;
  readonly approvalId: string;
}

const everything: ApprovalRules = { goLive: true, owners: true, changes: true, fundingAbove: null };
const hourMilliseconds = 3_600_000;

/** A registry with these approval rules in force, and functions to create administrators and to decide requests. */
async function guarded(t: Test, url: string, rules = everything, further: Partial<RegistryOptions> = {}) {
  const fixture = await registryFixture(t, url, further);
  const { call, database, time, logged } = fixture;
  const logger = { error: log, warn: log, info: log };
  function log(details: object, message: string): void {
    logged.push({ details, message });
  }
  const configure = (wanted: ApprovalRules) =>
    applyConfiguredRules({ database, clock: time, random: randomBytes }, wanted, logger);
  await configure(rules);
  /** Creates an administrator and their token. The requests use the token in `headers`, by default the shared token. */
  const create = async (name: string, role: string, headers?: Headers) => {
    const by = headers === undefined ? {} : { headers };
    const made = await call<Administrator>('POST', '/administrators', { body: { name, roles: [role] }, ...by });
    if (made.status !== 201) throw new Error(`${name}: ${made.status} ${made.body.message}`);
    return { id: made.body.data.id, headers: await tokenOf(made.body.data.id, headers) };
  };
  const tokenOf = async (administratorId: string, headers?: Headers): Promise<Headers> => {
    const by = headers === undefined ? {} : { headers };
    const body = { name: 'test', administratorId };
    const created = await call<AdministratorToken & { token: string }>('POST', '/tokens', { body, ...by });
    return { authorization: `Bearer ${created.body.data.token}` };
  };
  const decide = (id: string, decision: 'approve' | 'reject', headers?: Headers) =>
    call<Approval & Needed>('POST', `/approvals/${id}/${decision}`, headers === undefined ? {} : { headers });
  const statusOf = async (id: string) => (await call<Approval>('GET', `/approvals/${id}`)).body.data.status;
  const actions = async () =>
    (await call<RegistryEvent[]>('GET', '/events?per_page=100')).body.data
      .map(({ action }) => action)
      .filter((action) => action !== 'merchant.read');
  return { ...fixture, actions, configure, create, decide, statusOf, tokenOf };
}

onEachDatabase('a merchant goes live only after another administrator has approved it', async (t, url) => {
  const { app, call, create, createMerchant, decide, actions } = await guarded(t, url);
  const waiting = async () => /^registry_approvals_waiting (\d+)$/m.exec((await app.inject('/metrics')).body)?.[1];
  const [olu, oma, sam] = [
    await create('olu', 'operator'),
    await create('oma', 'operator'),
    await create('sam', 'support'),
  ];
  const { id } = await createMerchant();
  const set = (body: object, { headers }: { headers: Headers } = olu) =>
    call<Needed>('PATCH', `/merchants/${id}`, { body, headers: { ...headers, 'x-reason': 'contract%20signed' } });
  t.equal(await waiting(), '0');
  const waits = await set({ goLive: true });
  t.match(waits, {
    status: 409,
    body: {
      success: false,
      message: /^Not changed yet: another administrator must approve the change before 2026-01-16T12:00:00.000Z/,
      data: { code: 'approval_required', approvalId: /^apr_/ },
    },
  });
  const { approvalId } = waits.body.data;
  t.equal(await waiting(), '1');
  t.match((await call('GET', `/merchants/${id}`)).body, { data: { goLive: false } });
  t.equal((await set({ goLive: true })).body.data.approvalId, approvalId, 'the same request is filed once');
  t.match((await call<Approval[]>('GET', '/approvals?status=WAITING', { headers: sam.headers })).body, {
    meta: { total_records: 1 },
    data: [
      {
        ...{ id: approvalId, change: 'merchant.change', merchantId: id, status: 'WAITING', needs: 'merchants:write' },
        ...{ requester: 'olu', requestedBy: olu.id, reason: 'contract signed' },
        ...{ before: { goLive: false, name: 'Ada Stores' }, after: { goLive: true, name: 'Ada Stores' } },
      },
    ],
  });

  t.match(await decide(approvalId, 'approve', olu.headers), {
    status: 403,
    body: { message: 'Another administrator has to approve: you made this request' },
  });
  t.match(await decide(approvalId, 'approve', sam.headers), { status: 403, body: { data: { needed: undefined } } });
  t.match((await call('GET', `/merchants/${id}`)).body, { data: { goLive: false } });
  t.match(await decide(approvalId, 'approve', oma.headers), {
    status: 200,
    body: { data: { status: 'APPROVED', decider: 'oma', decidedBy: oma.id, propagation: { pending: emptyList } } },
  });
  t.equal(await waiting(), '0');
  t.match((await call('GET', `/merchants/${id}`)).body, { data: { goLive: true } });
  t.match(await decide(approvalId, 'approve', oma.headers), {
    status: 409,
    body: { message: /^The request is APPROVED: oma decided on it at/, data: { code: 'approval_not_waiting' } },
  });
  const recent = (await actions()).slice(0, 5);
  t.same(recent, ['approval.approved', 'merchant.changed', 'attempt.refused', 'attempt.refused', 'approval.requested']);

  t.equal((await set({ goLive: false })).status, 200, 'the way back needs no approval');
  t.equal((await set({ status: 'SUSPENDED' })).status, 200, 'suspending needs no approval');
  const live = await call<Needed>('POST', '/merchants', { body: { name: 'Bea', goLive: true }, headers: olu.headers });
  t.match(live, { status: 409, body: { data: { code: 'approval_required' } } });
  t.match(await call('GET', '/merchants?name=Bea'), { body: { meta: { total_records: 0 } } });
  const made = await decide(live.body.data.approvalId, 'approve', oma.headers);
  const bea = made.body.data.subject;
  t.match((await call('GET', '/merchants?name=Bea')).body, { data: [{ id: bea, name: 'Bea', goLive: true }] });
  t.match((await call('GET', `/approvals/${live.body.data.approvalId}`)).body, { data: { subject: bea } });
  const line = {
    type: 'merchant',
    merchantId: 'm_9',
    name: 'Cy',
    status: 'ACTIVE',
    goLive: true,
    ipAllowlist: null,
    originAllowlist: null,
  };
  t.match(await call('POST', '/imports', { body: { entries: [line] } }), {
    status: 409,
    body: { message: /would go live, which needs approval: import it with goLive false/ },
  });
  const other = { ...line, goLive: false };
  t.equal((await call('POST', '/imports', { body: { entries: [other] } })).status, 200, 'others are imported');
});

// Regression: the registry first created the record, and then stored the record's id in the approval request. If the
// registry ended between the two steps, the request never showed which record had been created.
t.test('an approval stores the id of the new record with the change', async (t) => {
  const { call, create, database, decide } = await guarded(t, 'sqlite::memory:');
  const [olu, oma] = [await create('olu', 'operator'), await create('oma', 'operator')];
  const body = { name: 'Bea', goLive: true };
  const { approvalId } = (await call<Needed>('POST', '/merchants', { body, headers: olu.headers })).body.data;
  await sql`create trigger ended before update on approvals when old.status = 'APPROVED'
    begin select raise(abort, 'the registry ends here'); end`.execute(database);
  t.equal((await decide(approvalId, 'approve', oma.headers)).status, 200);
  const [bea] = (await call<Merchant[]>('GET', '/merchants?name=Bea')).body.data;
  t.type(bea?.id, 'string');
  t.match((await call('GET', `/approvals/${approvalId}`)).body, { data: { status: 'APPROVED', subject: bea?.id } });
  const [event] = (await call<RegistryEvent[]>('GET', '/events?action=approval.approved')).body.data;
  t.match(event?.after, { id: approvalId, subject: bea?.id });
});

onEachDatabase(
  'a request is refused after a change of the state, after 24 hours, and without its requester',
  async (t, url) => {
    const { app, call, create, createMerchant, decide, statusOf, time } = await guarded(t, url);
    const [olu, oma] = [await create('olu', 'operator'), await create('oma', 'operator')];
    const { id } = await createMerchant();
    const request = async (headers = olu.headers) => {
      const waits = await call<Needed>('PATCH', `/merchants/${id}`, { body: { goLive: true }, headers });
      return waits.body.data.approvalId;
    };
    const isLive = async () => (await call<Merchant>('GET', `/merchants/${id}`)).body.data.goLive;

    const stale = await request();
    await call('PATCH', `/merchants/${id}`, { body: { ipAllowlist: ['8.8.8.8'] } });
    t.match(await decide(stale, 'approve', oma.headers), {
      status: 409,
      body: {
        message:
          'The change was not made: the record or setting has changed since the request was made. If the change is still wanted, request it again',
        data: { code: 'approval_stale' },
      },
    });
    t.equal(await statusOf(stale), 'REFUSED');
    await call('PATCH', `/merchants/${id}`, { body: { ipAllowlist: null } });
    t.match(await decide(stale, 'approve', oma.headers), { status: 409, body: { message: /REFUSED/ } });

    const late = await request();
    time.advance(24 * hourMilliseconds - 1);
    t.equal(await statusOf(late), 'WAITING');
    time.advance(1);
    t.equal(await statusOf(late), 'EXPIRED');
    const { body: metrics } = await app.inject('/metrics');
    t.match(metrics, /^registry_approvals_waiting 0$/m, 'an expired request waits no more');
    t.match(await decide(late, 'approve', oma.headers), { status: 409, body: { message: /EXPIRED: it expired at/ } });
    t.match((await call('GET', '/approvals?status=EXPIRED')).body, { data: [{ id: late }] });

    const withdrawn = await request();
    t.not(withdrawn, late, 'an expired request does not count as waiting');
    t.match(await decide(withdrawn, 'reject', olu.headers), { status: 200, body: { data: { status: 'REJECTED' } } });
    t.match(await decide(withdrawn, 'approve', oma.headers), {
      status: 409,
      body: { message: /REJECTED: olu decided/ },
    });

    const gone = await request();
    await call('PATCH', `/administrators/${olu.id}`, { body: { status: 'DISABLED' } });
    t.match(await decide(gone, 'approve', oma.headers), {
      status: 409,
      body: { message: /: olu has been disabled since the request was made\./ },
    });
    const ada = await create('ada', 'operator');
    const demoted = await request(ada.headers);
    await call('PATCH', `/administrators/${ada.id}`, { body: { roles: ['auditor'] } });
    t.match(await decide(demoted, 'approve', oma.headers), {
      status: 409,
      body: { message: /: ada has lost the permission merchants:write since the request was made\./ },
    });
    t.notOk(await isLive());
    const shared = await call('PATCH', `/merchants/${id}`, { body: { goLive: true } });
    t.match(shared, { status: 403, body: { data: { code: 'approval_needs_identity' } } });
    t.match(await decide('apr_unknown', 'approve', oma.headers), { status: 404 });
  },
);

onEachDatabase('a request is refused after its token was revoked, and a new one can be made', async (t, url) => {
  const { call, create, createMerchant, decide, statusOf, time, tokenOf } = await guarded(t, url);
  const [olu, oma] = [await create('olu', 'operator'), await create('oma', 'operator')];
  const { id } = await createMerchant();
  const request = async (headers: Headers) => {
    const waits = await call<Needed>('PATCH', `/merchants/${id}`, { body: { goLive: true }, headers });
    return waits.body.data.approvalId;
  };
  const stolen = await request(olu.headers);
  time.advance(1000);
  const other = await request(await tokenOf(olu.id));
  t.not(other, stolen, 'a request with another token does not depend on the first one');
  const tokens = await call<AdministratorToken[]>('GET', `/tokens?administratorId=${olu.id}`);
  await call('POST', `/tokens/${tokens.body.data.at(-1)?.id ?? ''}/revoke`);
  t.match(await decide(stolen, 'approve', oma.headers), {
    status: 409,
    body: {
      message: /the token with which olu made the request has been revoked/,
      data: { code: 'approval_stale' },
    },
  });
  t.equal(await statusOf(stolen), 'REFUSED');
  t.notOk((await call<Merchant>('GET', `/merchants/${id}`)).body.data.goLive, 'nothing has changed');
  t.equal((await decide(other, 'approve', oma.headers)).status, 200);
});

onEachDatabase('an approval needs a reason if its change needs one', async (t, url) => {
  const further = { reasonFor: new Set(['merchants:write']) };
  const { call, create, createMerchant, decide, statusOf } = await guarded(t, url, everything, further);
  const [olu, oma] = [await create('olu', 'operator'), await create('oma', 'operator')];
  const { id } = await createMerchant();
  const waits = await call<Needed>('PATCH', `/merchants/${id}`, {
    ...{ body: { goLive: true }, headers: { ...olu.headers, 'x-reason': 'contract%20signed' } },
  });
  const { approvalId } = waits.body.data;
  t.match(await decide(approvalId, 'approve', oma.headers), {
    status: 400,
    body: { data: { code: 'reason_required' } },
  });
  t.equal(await statusOf(approvalId), 'WAITING');
  const checked = { ...oma.headers, 'x-reason': 'contract%20checked' };
  t.equal((await decide(approvalId, 'approve', checked)).status, 200);
  const changes = await call<RegistryEvent[]>('GET', '/events?action=merchant.changed');
  t.match(changes.body.data, [{ actor: 'oma', reason: 'contract checked' }]);
});

onEachDatabase('a request is rejected only with the permission of its change', async (t, url) => {
  const { call, create, createMerchant, decide, statusOf } = await guarded(t, url);
  const [olu, tess] = [await create('olu', 'operator'), await create('tess', 'treasurer')];
  const { id } = await createMerchant();
  const waits = await call<Needed>('PATCH', `/merchants/${id}`, { body: { goLive: true }, headers: olu.headers });
  const { approvalId } = waits.body.data;
  t.match(await decide(approvalId, 'reject', tess.headers), {
    status: 403,
    body: { message: 'Your roles lack the permission merchants:write', data: { code: 'permission_missing' } },
  });
  t.equal(await statusOf(approvalId), 'WAITING');
});

onEachDatabase('limits for funding in another order are the same rules', async (t, url) => {
  const { configure, logged } = await guarded(t, url, { ...everything, fundingAbove: { NGN: 500, USD: 5 } });
  logged.length = 0;
  await configure({ ...everything, fundingAbove: { USD: 5, NGN: 500 } });
  t.same(logged, []);
});

onEachDatabase('owners are made by two owners, except for the first two', async (t, url) => {
  const { call, create, createMerchant, decide, tokenOf } = await guarded(t, url);
  const ada = await create('ada', 'owner');
  const obi = await create('obi', 'owner');
  const sam = await create('sam', 'support');
  const body = { name: 'eve', roles: ['owner'] };
  const requested = async (made: Promise<{ status: number; body: { data: Needed } }>) => {
    const { status, body } = await made;
    t.match([status, body.data.code], [409, 'approval_required']);
    return body.data.approvalId;
  };
  const eve = await requested(call<Needed>('POST', '/administrators', { body, headers: ada.headers }));
  const set = (id: string, changes: object, headers = ada.headers) =>
    call<Needed>('PATCH', `/administrators/${id}`, { body: changes, headers });
  await requested(set(sam.id, { roles: ['owner', 'support'] }));
  await requested(set(obi.id, { issuer: 'https://id.example', subject: 'eve' }));
  t.match(await call('POST', '/administrators', { body: { name: 'fay', roles: ['owner'] } }), {
    status: 403,
    body: { message: /the shared token identifies no person: use a token of your own/ },
  });

  const second = await tokenOf(ada.id, ada.headers);
  t.match(await decide(eve, 'approve', second), { status: 403, body: { message: /you made this request/ } });
  const issued = await tokenOf(obi.id, ada.headers);
  t.match(await decide(eve, 'approve', issued), {
    status: 403,
    body: { message: /the requester issued your token/ },
  });
  const derived = await tokenOf(obi.id, issued);
  t.match(await decide(eve, 'approve', derived), {
    status: 403,
    body: { message: /the requester issued your token/ },
  });
  const olu = await create('olu', 'operator');
  const { id } = await createMerchant();
  const live = await requested(
    call<Needed>('PATCH', `/merchants/${id}`, { body: { goLive: true }, headers: ada.headers }),
  );
  const passedOn = await tokenOf(olu.id, issued);
  t.match(await decide(live, 'approve', passedOn), {
    status: 403,
    body: { data: { code: 'approval_not_independent' } },
  });
  t.equal((await decide(live, 'approve', olu.headers)).status, 200);
  t.match(await decide(eve, 'approve'), {
    status: 403,
    body: { message: /cannot approve while there is more than one owner/ },
  });

  // Until there have been two owners, changes of owners need no approval. From then on they do, even after an owner has
  // disabled the other one.
  t.equal((await set(obi.id, { status: 'DISABLED' })).status, 200, 'disabling needs no approval');
  await requested(set(obi.id, { status: 'ACTIVE' }));
  const fay = await requested(
    call<Needed>('POST', '/administrators', { body: { ...body, name: 'fay' }, headers: ada.headers }),
  );
  t.match(await decide(fay, 'approve', ada.headers), { status: 403 });
  t.match(await decide(fay, 'approve'), { status: 200, body: { data: { decider: 'bootstrap', decidedBy: null } } });
  t.match((await call<Administrator[]>('GET', '/administrators')).body, {
    data: [
      { name: 'ada' },
      { name: 'fay', roles: ['owner'], status: 'ACTIVE' },
      { name: 'obi' },
      { name: 'olu' },
      { name: 'sam' },
    ],
  });
  t.match(await decide(eve, 'approve'), { status: 403 }, 'now there are two owners again');
});

onEachDatabase('weaker rules wait for approval, and the rules in force remain until then', async (t, url) => {
  const { call, configure, create, createMerchant, decide, logged, actions } = await guarded(t, url);
  const [ada, obi] = [await create('ada', 'owner'), await create('obi', 'owner')];
  const { id } = await createMerchant();
  const goLive = () => call<Needed>('PATCH', `/merchants/${id}`, { body: { goLive: true }, headers: ada.headers });
  logged.length = 0;
  await configure(noRules);
  t.match(logged, [
    {
      message:
        /^registry.approvals has changed, and the new rules wait for approval: an owner must run "merchant-gateway approvals approve /,
    },
  ]);
  t.equal((await goLive()).status, 409);
  await configure(noRules);
  const waiting = (await call<Approval[]>('GET', '/approvals?status=WAITING')).body.data;
  const [rules, ...others] = waiting.filter(({ change }) => change === 'approval-rules.change');
  t.match([rules, others], [{ requester: 'registry', before: everything, after: noRules }, emptyList]);
  await configure({ ...noRules, goLive: true });
  const replaced = (await call<Approval[]>('GET', '/approvals')).body.data;
  t.match(
    replaced
      .filter(({ change }) => change === 'approval-rules.change')
      .map(({ status }) => status)
      .sort(),
    ['REJECTED', 'WAITING'],
  );
  const next = replaced.find(({ change, status }) => change === 'approval-rules.change' && status === 'WAITING');
  t.equal((await decide(next?.id ?? '', 'approve', obi.headers)).status, 200);
  t.match((await actions()).slice(0, 2), ['approval.approved', 'approval-rules.changed']);
  t.equal((await call('POST', '/administrators', { body: { name: 'eve', roles: ['owner'] } })).status, 201);
  t.equal((await goLive()).status, 409);
  await configure(noRules);
  t.equal((await goLive()).status, 200, 'without the rule, a change of the rules needs no approval');
});

onEachDatabase('an approved funding is in the services token of its requester, for 24 hours', async (t, url) => {
  const limits = { NGN: 700, GHS: 5 };
  const key = await newServicesTokenKey();
  const fixture = await guarded(t, url, { ...noRules, fundingAbove: limits }, { servicesTokenKey: key });
  const { call, create, decide, time } = fixture;
  const [tess, tom, sam] = [
    await create('tess', 'treasurer'),
    await create('tom', 'treasurer'),
    await create('sam', 'support'),
  ];
  const body = {
    ...{ walletId: '0192f3a0-0000-7000-8000-000000000001', environment: 'live', currency: 'NGN' },
    ...{ amount: 701, reference: 'deposit-1' },
  };
  const request = (headers?: Headers, changes = {}) =>
    call<Approval>('POST', '/approvals', { body: { ...body, ...changes }, ...(headers && { headers }) });
  const claims = async ({ headers }: { headers: Headers }, approvalId?: string) => {
    const query = approvalId === undefined ? '' : `?approvalId=${approvalId}`;
    const { status, body } = await call<{ token?: string; code?: string }>('POST', `/services-tokens${query}`, {
      headers,
    });
    const [, text = ''] = body.data.token?.split('.') ?? [];
    if (text === '') return { status, code: body.data.code, message: body.message };
    return JSON.parse(Buffer.from(text, 'base64url').toString()) as Record<string, unknown>;
  };
  t.match(await claims(tess), { fundingLimits: limits, approved: undefined });
  t.equal((await request()).status, 403, 'not with the shared token');
  t.equal((await request(sam.headers)).status, 403);
  for (const wrong of [{ amount: 0 }, { currency: 'ngn' }, { walletId: 'w' }, { reference: '' }, { more: 1 }])
    t.equal((await request(tess.headers, wrong)).status, 422, JSON.stringify(wrong));
  const filed = await request(tess.headers);
  t.match(filed, { status: 201, body: { data: { change: 'wallet.fund', before: null, after: body } } });
  const { id } = filed.body.data;
  t.equal((await request(tess.headers)).body.data.id, id);
  t.match(await claims(tess, id), { status: 409, code: 'approval_not_approved' });
  t.equal((await decide(id, 'approve', tess.headers)).status, 403);
  t.equal((await decide(id, 'approve', tom.headers)).status, 200);
  t.match(await claims(tess, id), { approved: body, fundingLimits: limits });
  t.match(await claims(tom, id), { status: 404 }, 'only for who requested it');
  t.match(await claims(tess, 'apr_unknown'), { status: 404 });
  time.advance(24 * hourMilliseconds - 1);
  t.match(await claims(tess, id), { approved: body });
  time.advance(1);
  t.match(await claims(tess, id), {
    ...{ status: 409, code: 'approval_not_approved' },
    message: /send the funding again with the same reference, without the approval$/,
  });
  const rejected = (await request(tess.headers, { reference: 'deposit-2' })).body.data.id;
  await decide(rejected, 'reject', tom.headers);
  t.match(await claims(tess, rejected), { status: 409 });
});

onEachDatabase(
  'an approval that gateways need not know is not delayed by changes that wait for them',
  async (t, url) => {
    const { call, create, decide, outwait, store } = await guarded(t, url, { ...everything, fundingAbove: {} });
    const [ada, obi] = [await create('ada', 'owner'), await create('obi', 'owner')];
    const eve = { name: 'eve', roles: ['owner'] };
    const owner = await call<Needed>('POST', '/administrators', { body: eve, headers: ada.headers });
    const body = {
      ...{ walletId: '0192f3a0-0000-7000-8000-000000000001', environment: 'live', currency: 'NGN' },
      ...{ amount: 701, reference: 'deposit-1' },
    };
    const funding = await call<Approval>('POST', '/approvals', { body, headers: ada.headers });
    store.fails = (name) => (name === 'write' ? 'before' : null);
    t.equal((await outwait(call('POST', '/merchants', { body: { name: 'Ada Stores' } }), 0)).status, 202);
    for (const id of [owner.body.data.approvalId, funding.body.data.id]) {
      t.match(await outwait(decide(id, 'approve', obi.headers), 0), {
        status: 200,
        body: { data: { status: 'APPROVED', propagation: { gateways: 0, confirmed: 0, pending: emptyList } } },
      });
    }
  },
);

onEachDatabase(
  '200 concurrent approvals of one request make one change, and never on another state',
  async (t, url) => {
    const { app, replica, call, create, createMerchant, statusOf } = await guarded(t, url);
    const [olu, oma] = [await create('olu', 'operator'), await create('oma', 'operator')];
    let [made, refused] = [0, 0];
    for (let round = 0; round < 10; round += 1) {
      const { id } = await createMerchant();
      const body = { goLive: true };
      const waits = await call<Needed>('PATCH', `/merchants/${id}`, { body, headers: olu.headers });
      const { approvalId } = waits.body.data;
      const approve = (index: number) =>
        (index % 2 === 0 ? app : replica).inject({
          method: 'POST',
          url: `/approvals/${approvalId}/approve`,
          headers: oma.headers,
        });
      const rename = (): Promise<unknown> => call('PATCH', `/merchants/${id}`, { body: { name: 'Ola Stores' } });
      if (round % 3 === 2) await rename();
      const [approvals] = await Promise.all([
        Promise.all(Array.from({ length: round < 3 ? 200 : 20 }, (_, index) => approve(index))),
        ...(round % 3 === 1 ? [rename()] : []),
      ]);
      const accepted = approvals.filter(({ statusCode }) => statusCode === 200).length;
      t.same(
        approvals.filter(({ statusCode }) => statusCode !== 200 && statusCode !== 409),
        [],
      );
      const events = (await call<RegistryEvent[]>('GET', `/events?merchantId=${id}&per_page=100`)).body.data;
      const [wentLive] = events.filter(({ after }) => after?.goLive === true && after.status === undefined);
      const state = await statusOf(approvalId);
      t.equal(accepted, state === 'APPROVED' ? 1 : 0);
      t.match((await call<Merchant>('GET', `/merchants/${id}`)).body.data.goLive, accepted === 1);
      if (wentLive !== undefined) {
        const renamed = events.find(({ after }) => after?.name === 'Ola Stores' && after.goLive === undefined);
        if (renamed !== undefined) t.ok(renamed.seq > wentLive.seq, 'the change was made on the state that was shown');
      }
      t.equal(events.filter(({ action }) => action === 'approval.approved').length, accepted);
      if (accepted === 1) made += 1;
      else refused += 1;
    }
    t.comment(`${made} made, ${refused} refused`);
    t.ok(made >= 4, 'without another change, the approval is carried out');
    t.ok(refused >= 3, 'after another change, it is refused');
  },
);
