import t from 'tap';
import { generateApiKey } from '../../src/gateway/api-key.js';
import { registryFixture } from '../registry/registry-fixture.js';
import { addWallet, bankPayout, merchantA, servicesFixture } from '../services/services-fixture.js';

// `keys create --label svc_live_…` stored a key, in plain text, where every administrator and every backup shows it.
const key = generateApiKey('live');

t.test('what looks like a key is stored under no name, and not repeated', async (t) => {
  const { call, createKey, createMerchant, database } = await registryFixture(t, 'sqlite::memory:');
  const { id } = await createMerchant();
  const { keyId } = await createKey(id);
  const texts = [key, key.toUpperCase(), `old: ${key}`, key.replace('live', 'test'), 'svc_live_'];
  for (const text of texts) {
    const answers = [
      await call('POST', `/merchants/${id}/keys`, { body: { environment: 'live', label: text } }),
      await call('POST', '/merchants', { body: { name: text } }),
      await call('PATCH', `/merchants/${id}`, { body: { name: text } }),
      await call('POST', `/keys/${keyId}/revoke`, { headers: { 'x-actor': text.replaceAll(' ', '') } }),
    ];
    t.same(
      answers.map(({ status }) => status),
      [422, 422, 422, 400],
      text,
    );
    t.match(answers[0]?.body.message, 'label must be a text of 1 to 100 characters on one line, without anything that');
    t.notMatch(JSON.stringify(answers), key.slice(9, 15));
  }
  const events = await database.selectFrom('events').selectAll().execute();
  t.notMatch(JSON.stringify(events), /svc_live_\w/i);
  const fine = { environment: 'live', label: 'svc live, the one of the till' };
  t.equal((await call('POST', `/merchants/${id}/keys`, { body: fine })).status, 201);
});

t.test('nor as an origin or a status', async (t) => {
  const { call, createMerchant, database } = await registryFixture(t, 'sqlite::memory:');
  const { id } = await createMerchant();
  const wide = key.replaceAll(/[a-z]/g, (letter) => String.fromCharCode(letter.charCodeAt(0) + 0xfee0));
  for (const text of [key, `https://${key}:8443`, `*.${key}.example`, key.toUpperCase(), wide]) {
    const body = { originAllowlist: ['shop.example', text] };
    const answers = [
      await call('PATCH', `/merchants/${id}`, { body }),
      await call('POST', '/merchants', { body: { name: 'x', ...body } }),
    ];
    for (const answer of answers) {
      const message = 'originAllowlist[1] must not hold anything that looks like a key';
      t.match(answer, { status: 422, body: { message, data: { errors: [{ path: 'originAllowlist[1]' }] } } }, text);
    }
    t.notMatch(JSON.stringify(answers).toLowerCase(), key.slice(9, 15).toLowerCase());
  }
  for (const status of ['SVC_LIVE_ABC', 'OLD_SVC_TEST_']) {
    const answer = await call('PATCH', `/merchants/${id}`, { body: { status } });
    t.match(answer, { status: 422, body: { message: /^status must be a word/ } });
    t.notMatch(JSON.stringify(answer), status);
  }
  const rows = await database.selectFrom('events').selectAll().execute();
  t.notMatch(JSON.stringify([rows, (await call('GET', '/exports')).body]), /svc_(live|test)_/i);
  const fine = { originAllowlist: ['svc-live.example'], status: 'SUSPENDED_LIVE' };
  t.match(await call('PATCH', `/merchants/${id}`, { body: fine }), { status: 200, body: { data: fine } });
});

t.test('nor is one that is given as a permission repeated', async (t) => {
  const { call, createMerchant } = await registryFixture(t, 'sqlite::memory:');
  const { id } = await createMerchant();
  for (const text of [key, key.toUpperCase(), `payouts:${key}`]) {
    const body = { environment: 'live', permissions: ['payouts:*', text] };
    const answer = await call('POST', `/merchants/${id}/keys`, { body });
    const message = 'permissions: must not hold anything that looks like a key';
    t.match(answer, { status: 422, body: { message, data: { errors: [{ path: 'permissions', message }] } } }, text);
    t.notMatch(JSON.stringify(answer).toLowerCase(), key.slice(9, 15).toLowerCase());
  }
});

// The services stored a payout whose reference was the merchant's own key.
t.test('the services store no key that a merchant sends in a text', async (t) => {
  const { call, database } = await servicesFixture(t);
  const walletId = await addWallet(database, merchantA, { balance: 1000, isDefault: true });
  const recipient = { amount: 1, currency: 'NGN', recipient: '+2348012345678' };
  const customer = { email: 'a@example.com', firstName: 'Ada', lastName: 'Obi' };
  for (const text of [key, key.replace('svc_live', 'SVC_Test'), `old${key}`]) {
    const answers = [
      await call(merchantA, 'POST', '/payouts', { body: { ...recipient, reference: text } }),
      await call(merchantA, 'POST', '/payouts', { body: { ...recipient, recipient: text } }),
      await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, { remarks: text }) }),
      await call(merchantA, 'POST', '/dev/payouts', { body: bankPayout(walletId, { destinationAccountName: text }) }),
      await call(merchantA, 'POST', '/dev/customers', { body: { ...customer, firstName: text } }),
      await call(merchantA, 'POST', '/dev/customers', { body: { ...customer, lastName: text } }),
    ];
    for (const { status, body } of answers) {
      t.equal(status, 422);
      t.match(body.message, /without anything that looks like an API key/);
    }
    t.notMatch(JSON.stringify(answers), key.slice(9, 15));
  }
  const stored = [
    await database.selectFrom('payouts').selectAll().execute(),
    await database.selectFrom('customers').selectAll().execute(),
  ];
  t.same(stored, [[], []]);
});
