import t from 'tap';
import { generateApiKey } from '../../src/gateway/api-key.js';
import { registryFixture } from '../registry/registry-fixture.js';

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
