import { onEachDatabase } from '../database/each-database.js';
import { consoleFixture, origin, sessionIn } from './console-fixture.js';

interface Member {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly roles: readonly string[];
  readonly version: number;
}

onEachDatabase('an admin of a merchant invites members, changes their role and disables them', async (t, url) => {
  const { ask, call, createMerchant, createPerson, signIn, enter, eventsOf, time } = await consoleFixture(t, url);
  const { id: merchantId } = await createMerchant();
  const admin = await createPerson('ada', ['merchant-admin'], merchantId);
  const session = await signIn(admin.token);
  const members = `/console/api/merchants/${merchantId}/members`;

  const body = { name: 'bea@example.com', role: 'merchant-viewer' };
  const added = await ask<Member>('POST', members, { session, body });
  t.equal(added.status, 201);
  t.strictSame(
    { ...added.body.data, id: '', createdAt: '', updatedAt: '' },
    {
      ...{
        id: '',
        name: 'bea@example.com',
        status: 'ACTIVE',
        roles: ['merchant-viewer'],
        merchantId,
        hasSignIn: false,
      },
      ...{ createdAt: '', updatedAt: '', version: 1 },
    },
  );
  const { id } = added.body.data;
  t.equal((await ask('POST', members, { session, body })).status, 409, 'a name is used once');
  const listed = await ask<Member[]>('GET', members, { session });
  t.same(
    listed.body.data.map(({ name }) => name),
    ['ada', 'bea@example.com'],
  );

  const link = await ask<{ url: string; expiresAt: string }>('POST', `${members}/${id}/links`, { session });
  t.equal(link.status, 201);
  t.ok(link.body.data.url.startsWith(`${origin}/console/enter#`));
  t.equal(Date.parse(link.body.data.expiresAt) - time.now(), 24 * 3_600_000, 'an invitation waits for a day');
  const secret = new URL(link.body.data.url).hash.slice(1);
  time.advance(23 * 3_600_000);
  const entered = await enter(secret);
  const viewer = sessionIn(entered);
  const me = await ask<{ name: string; roles: string[]; merchantId: string }>('GET', '/console/api/me', {
    session: viewer,
  });
  t.match(me.body.data, { name: 'bea@example.com', roles: ['merchant-viewer'], merchantId });
  t.equal((await enter(secret)).status, 401, 'the link works once');
  t.equal((await ask('GET', members, { session: viewer })).status, 200, 'a viewer sees the members');
  t.equal((await ask('POST', members, { session: viewer, body: { ...body, name: 'eve' } })).status, 403);

  const again = await signIn(admin.token);
  const promoted = await ask<Member>('PATCH', `${members}/${id}`, {
    session: again,
    body: { role: 'merchant-admin', version: 1 },
  });
  t.match(promoted.body.data, { roles: ['merchant-admin'], version: 2 });
  const stale = await ask('PATCH', `${members}/${id}`, {
    session: again,
    body: { role: 'merchant-viewer', version: 1 },
  });
  t.equal(stale.status, 409);
  const disabled = await ask<Member>('PATCH', `${members}/${id}`, { session: again, body: { status: 'DISABLED' } });
  t.equal(disabled.body.data.status, 'DISABLED');
  t.equal((await ask('GET', members, { session: viewer })).status, 401, 'the session has ended');
  t.equal(
    (await ask('POST', `${members}/${id}/links`, { session: again })).status,
    409,
    'a disabled member gets no link',
  );
  const disabledOnly = await ask<Member[]>('GET', `${members}?status=DISABLED`, { session: again });
  t.same(
    disabledOnly.body.data.map(({ name }) => name),
    ['bea@example.com'],
  );

  const ofMember = (await eventsOf('console-link.created')).find(({ after }) => after.administratorId === id);
  t.match(ofMember, { actor: 'ada', after: { name: 'bea@example.com' } }, 'the event names who created the link');
  t.equal((await call('POST', `/merchants/${merchantId}/members/${id}x/links`)).status, 404);
});

onEachDatabase('a member changes nobody of another merchant, no administrator, and not themselves', async (t, url) => {
  const { ask, createMerchant, createPerson, signIn } = await consoleFixture(t, url);
  const [own, other] = [await createMerchant(), await createMerchant({ name: 'Other' })];
  const admin = await createPerson('ada', ['merchant-admin'], own.id);
  const foreign = await createPerson('bea', ['merchant-admin'], other.id);
  const owner = await createPerson('olu', ['owner']);
  const session = await signIn(admin.token);
  const members = `/console/api/merchants/${own.id}/members`;
  for (const { id } of [foreign, owner]) {
    t.equal((await ask('PATCH', `${members}/${id}`, { session, body: { status: 'DISABLED' } })).status, 404);
    t.equal((await ask('POST', `${members}/${id}/links`, { session })).status, 404);
    const theirs = `/console/api/merchants/${other.id}/members/${id}`;
    t.equal((await ask('PATCH', theirs, { session, body: { status: 'DISABLED' } })).status, 404);
    t.equal((await ask('POST', `${theirs}/links`, { session })).status, 404);
  }
  t.equal((await ask('GET', `/console/api/merchants/${other.id}/members`, { session })).status, 404);
  const self = await ask('PATCH', `${members}/${admin.id}`, { session, body: { role: 'merchant-viewer' } });
  t.match(self, { status: 409, body: { data: { code: 'own_role' } } });
  t.equal((await ask('POST', `${members}/${admin.id}/links`, { session })).status, 409, 'no new proof from a session');
  for (const role of ['owner', 'operator', 'support']) {
    t.equal((await ask('POST', members, { session, body: { name: 'eve', role } })).status, 422, role);
    t.equal((await ask('PATCH', `${members}/${admin.id}`, { session, body: { role } })).status, 422, role);
  }
});
