import { registryAuthor } from '../../src/registry/events/author.js';
import { createKey, resetKey, revokeKey } from '../../src/registry/keys/key-changes.js';
import { createMerchant } from '../../src/registry/merchants/repository.js';
import { currentRecords } from '../../src/registry/projection/current-records.js';
import { storedPages } from '../../src/registry/projection/pages.js';
import { holdBack, lift } from '../../src/registry/restores/held-back.js';
import type { StoreEntry } from '../../src/gateway/store-ports.js';
import { onEachDatabase } from '../database/each-database.js';
import { projectionFixture } from './projection-fixture.js';

onEachDatabase("a key's record has its label and, after a reset, the end of the grace period", async (t, url) => {
  const { context, database, time } = await projectionFixture(t, url);
  const { id } = await createMerchant(context, registryAuthor, { name: 'x' });
  const create = (more: object = {}) =>
    createKey(context, registryAuthor, id, { environment: 'live', expiresIn: '90d', ...more });
  /** The record of a key, which both ways to read records must agree on. */
  const recordOf = async (keyId: string): Promise<StoreEntry> => {
    const pages: StoreEntry[] = [];
    for await (const page of storedPages(database)) pages.push(...page);
    const found = pages.find(({ value }) => value !== null && 'keyId' in value && value.keyId === keyId);
    if (found === undefined) throw new Error(`no record of ${keyId}`);
    t.same(await currentRecords(database, [found.name]), [found]);
    return found;
  };
  const [plain, labelled] = [await create(), await create({ label: 'till 7' })];
  for (const name of ['label', 'graceEndsAt']) t.notOk(name in ((await recordOf(plain.keyId)).value ?? {}), name);
  t.match((await recordOf(labelled.keyId)).value, { label: 'till 7', graceEndsAt: undefined });

  const { keyId, expiresAt } = await resetKey(context, registryAuthor, labelled.keyId, { graceSeconds: 60 });
  const graceEndsAt = new Date(time.now() + 60_000).toISOString();
  const inGrace = await recordOf(labelled.keyId);
  t.match(inGrace.value, { status: 'ACTIVE', label: 'till 7', expiresAt: graceEndsAt, graceEndsAt });
  t.match((await recordOf(keyId)).value, { label: 'till 7', expiresAt, graceEndsAt: undefined }, 'the new key');
  t.match((await recordOf(plain.keyId)).value, { graceEndsAt: undefined }, 'another key');

  const held = { ...(await recordOf(plain.keyId)), value: { ...(await recordOf(plain.keyId)).value, revision: 90 } };
  const earlier = { ...held.value, expiresAt: new Date(time.now() + 1_000).toISOString() };
  t.equal(await holdBack(context, [{ name: held.name, value: earlier }], 'store'), 1);
  t.match((await recordOf(plain.keyId)).value, { status: 'ACTIVE', graceEndsAt: undefined }, 'held back');
  await lift(context, registryAuthor, plain.keyId);
  t.match((await recordOf(plain.keyId)).value, { status: 'ACTIVE', graceEndsAt: undefined }, 'lifted');

  await revokeKey(context, registryAuthor, labelled.keyId);
  t.match((await recordOf(labelled.keyId)).value, { status: 'REVOKED', graceEndsAt: undefined });
});
