import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { run } from '../../src/cli/run.js';
import { chainStart, eventHash } from '../../src/evidence/event-chain.js';
import { keyText, NoteSigner } from '../../src/evidence/signed-note.js';
import { isPostgres } from '../../src/database/dialects.js';
import { registryAuthor } from '../../src/registry/events/author.js';
import { EventCheckpoints } from '../../src/registry/events/checkpoints.js';
import { deleteEvents, recordEvents } from '../../src/registry/events/repository.js';
import type { RegistryDatabase } from '../../src/registry/registry-database.js';
import { onEachDatabase } from '../database/each-database.js';
import { withoutTriggers } from '../registry/without-triggers.js';
import { registryFixture, token } from '../registry/registry-fixture.js';

interface Verdict {
  readonly complete: boolean;
  readonly faults: number;
  readonly findings: readonly { readonly fault: string; readonly position: number; readonly seq: number | null }[];
  readonly signedTo: number;
}

/** A registry with a trail, and `events verify` as a user runs it. */
async function trailFixture(t: Test, url: string, count: number) {
  const signer = new NoteSigner('registry.example', generateKeyPairSync('ed25519').privateKey);
  const fixture = await registryFixture(t, url, { random: randomBytes, witness: signer });
  const { app, database, time } = fixture;
  const add = async (more: number): Promise<void> => {
    for (let index = 0; index < more; index += 1) {
      const event = { action: 'merchant.changed', merchantId: `m_${index}`, keyId: null } as const;
      const events = [{ ...event, before: { name: 'a' }, after: { name: `b ${index}` } }];
      await database
        .transaction()
        .execute((transaction) =>
          recordEvents(transaction, events, { at: time.now(), author: registryAuthor, revision: 1 }),
        );
    }
  };
  await add(count);
  const checkpoints = new EventCheckpoints({ database, signer, clock: time, timers: time });
  await checkpoints.sign();
  await app.listen({ host: '127.0.0.1', port: 0 });
  const directory = t.testdir({ token, key: keyText(signer.receiptKey) });
  const access = [
    ...['--registry', `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`],
    ...['--token-file', `${directory}/token`, '--public-key', `${directory}/key`],
  ];
  const verify = async (...more: string[]): Promise<Verdict & { readonly status: number; readonly stderr: string }> => {
    let [out, err] = ['', ''];
    const io = { out: (text: string) => (out += text), err: (text: string) => (err += text) };
    const status = await run(['events', 'verify', ...access, '--json', ...more], io);
    const verdict = (out === '' ? {} : JSON.parse(out)) as Verdict;
    return { ...verdict, status, stderr: err };
  };
  return { ...fixture, add, directory, checkpoints, signer, verify };
}

onEachDatabase('SQL cannot change or delete an event, nor its place in the chain', async (t, url) => {
  const { database, verify } = await trailFixture(t, url, 3);
  for (const statement of [
    sql`update events set actor = 'eve'`,
    sql`update events set seq = seq + 100`,
    sql`delete from events`,
    sql`update event_chain set hash = ''`,
    sql`delete from event_chain`,
    sql`update event_checkpoints set note = ''`,
    sql`delete from event_checkpoints`,
  ])
    await t.rejects(statement.execute(database), { message: /can only/ });
  if (isPostgres(database)) await t.rejects(sql`truncate events`.execute(database), { message: /can only be added/ });
  t.match(await verify(), { status: 0, complete: true, faults: 0, signedTo: 3 });
});

/** A generator of reproducible numbers (mulberry32). */
function randomNumbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const columns = [
  ...['at', 'actor', 'action', 'merchant_id', 'key_id', 'before', 'after', 'revision'],
  ...['administrator_id', 'proof', 'claimed', 'source', 'request_id', 'reason'],
];
const numeric = new Set(['at', 'revision']);

/** Makes one random change by SQL, and returns the statements that undo it. */
async function manipulate(database: RegistryDatabase, below: (limit: number) => number, count: number) {
  const seqs = (await database.selectFrom('events').select('seq').orderBy('seq').execute()).map(({ seq }) => seq);
  const seq = seqs[below(count)] ?? 1;
  const row = await database.selectFrom('events').selectAll().where('seq', '=', seq).executeTakeFirstOrThrow();
  const restore = async (): Promise<void> => {
    await sql`delete from events where seq = ${seq}`.execute(database);
    const names = sql.join(Object.keys(row).map((name) => sql.id(name)));
    const overriding = isPostgres(database) ? sql`overriding system value` : sql``;
    await sql`insert into events (${names}) ${overriding} values (${sql.join(Object.values(row))})`.execute(database);
  };
  const kind = below(5);
  if (kind <= 1) {
    const column = columns[below(columns.length)] ?? 'actor';
    const value = numeric.has(column) ? below(1_000_000) : `forged ${below(1_000_000)}`;
    await sql`update events set ${sql.id(column)} = ${value} where seq = ${seq}`.execute(database);
    return { what: `changed ${column}`, undo: restore };
  }
  if (kind === 2) {
    await sql`delete from events where seq = ${seq}`.execute(database);
    return { what: 'removed', undo: restore };
  }
  if (kind === 3) {
    const copy = Object.fromEntries(Object.entries(row).filter(([name]) => name !== 'seq')) as Omit<typeof row, 'seq'>;
    const added = await database.insertInto('events').values(copy).returning('seq').executeTakeFirstOrThrow();
    return { what: 'inserted', undo: () => database.deleteFrom('events').where('seq', '=', added.seq).execute() };
  }
  const other = seqs[(seqs.indexOf(seq) + 1 + below(count - 1)) % count] ?? 1;
  const swap = async (): Promise<void> => {
    await sql`update event_chain set seq = -1 where seq = ${seq}`.execute(database);
    await sql`update event_chain set seq = ${seq} where seq = ${other}`.execute(database);
    await sql`update event_chain set seq = ${other} where seq = -1`.execute(database);
  };
  await swap();
  return { what: 'reordered', undo: swap };
}

onEachDatabase('each of many random changes by the owner of the database is found', async (t, url) => {
  await eachIsFound(t, url, url.startsWith('sqlite') ? 1000 : 100);
});

async function eachIsFound(t: Test, url: string, changes: number): Promise<void> {
  const { database, verify } = await trailFixture(t, url, 40);
  await withoutTriggers(database);
  const below = randomNumbers(20_261_127);
  const missed: string[] = [];
  const seen = new Set<string>();
  for (let number = 0; number < changes; number += 1) {
    const { what, undo } = await manipulate(database, below, 40);
    const { complete, status } = await verify();
    if (complete || status !== 1) missed.push(what);
    seen.add(what);
    await undo();
  }
  t.same(missed, []);
  t.ok(seen.size >= 15, [...seen].join());
  t.match(await verify(), { status: 0, complete: true }, 'after all were undone');
}

/** Makes the whole chain anew after a change, as an attacker without the key can. */
async function rebuildChain(database: RegistryDatabase): Promise<void> {
  const rows = await database.selectFrom('events').selectAll().orderBy('seq').execute();
  await sql`delete from event_chain`.execute(database);
  let { position, hash } = chainStart;
  for (const { seq, ...row } of rows) {
    const { at, actor, action, merchant_id, key_id, before, after, revision, ...author } = row;
    const content = { seq, at, actor, action, merchant_id, key_id, before, after, revision, ...author };
    [position, hash] = [position + 1, eventHash(hash, JSON.stringify(content))];
    await database.insertInto('event_chain').values({ position, seq, hash }).execute();
  }
  await sql`update event_tail set position = ${position}, hash = ${hash}`.execute(database);
}

onEachDatabase('a chain that was made anew contradicts its signatures, and a kept checkpoint', async (t, url) => {
  const { add, checkpoints, database, directory, verify } = await trailFixture(t, url, 5);
  await add(2);
  t.match(await verify(), { status: 0, signedTo: 5 });
  await checkpoints.sign();
  const file = `${directory}/checkpoint`;
  t.match(await verify('--save', file), { status: 0, signedTo: 7 });
  await withoutTriggers(database);
  await rebuildChain(database);
  t.match(await verify('--checkpoint', file), { status: 0, complete: true }, 'the same content has the same hashes');

  const seq = (await database.selectFrom('events').select('seq').orderBy('seq').executeTakeFirstOrThrow()).seq;
  await sql`update events set actor = 'eve' where seq = ${seq + 3}`.execute(database);
  await rebuildChain(database);
  t.match(await verify(), { status: 1, findings: [{ fault: 'forged-signature', position: 5 }, { position: 7 }] });
  await sql`delete from event_checkpoints`.execute(database);
  t.match(await verify(), { status: 0, signedTo: 0 }, 'without signatures nothing in the database shows it');
  t.match(await verify('--checkpoint', file), { status: 1, findings: [{ fault: 'rolled-back', position: 7 }] });
});

onEachDatabase('a trail that was restored from a backup is found by a checkpoint', async (t, url) => {
  const { database, directory, verify } = await trailFixture(t, url, 6);
  const file = `${directory}/checkpoint`;
  t.match(await verify('--save', file), { status: 0 });
  await withoutTriggers(database);
  const { hash } = await database
    .selectFrom('event_chain')
    .select('hash')
    .where('position', '=', 4)
    .executeTakeFirstOrThrow();
  const last = await database.selectFrom('event_chain').select('seq').where('position', '>', 4).execute();
  for (const { seq } of last) await database.deleteFrom('events').where('seq', '=', seq).execute();
  await sql`delete from event_chain where position > 4`.execute(database);
  t.match(await verify(), {
    status: 1,
    findings: [
      { fault: 'removed', position: 5 },
      { fault: 'removed', position: 6 },
    ],
  });
  await sql`update event_tail set position = 4, hash = ${hash}`.execute(database);
  t.match(await verify(), { status: 0, complete: true });
  t.match(await verify('--checkpoint', file), { status: 1, findings: [{ fault: 'rolled-back', position: 6 }] });

  const key = keyText(NoteSigner.inMemory('registry.example').receiptKey);
  writeFileSync(`${directory}/key`, key);
  t.match(await verify('--checkpoint', file), { status: 1, stderr: /was not signed by the given key/ });
  writeFileSync(file, '{"position":6}');
  t.match(await verify('--checkpoint', file), {
    status: 1,
    stderr: /has no checkpoint as events verify --save writes it/,
  });
});

onEachDatabase('what retention deleted is missing without a fault, and what is left stays proven', async (t, url) => {
  const { add, checkpoints, database, directory, signer, time, verify } = await trailFixture(t, url, 700);
  const file = `${directory}/checkpoint`;
  await verify('--save', file);
  time.advance(86_400_000);
  await add(3);
  await checkpoints.sign();
  const deletion = { until: time.now() - 1000, now: time.now(), signer };
  const first = await deleteEvents(database, { after: 0, ...deletion });
  t.equal(first.forgotten, 500);
  t.match(await verify('--checkpoint', file), { status: 0, pruned: { position: 500 }, signedTo: 703 });
  await deleteEvents(database, { after: first.seen, ...deletion });
  t.match(await verify('--checkpoint', file), { status: 0, pruned: { position: 700, note: /^registry.example/ } });
  t.equal((await database.selectFrom('events').selectAll().execute()).length, 3);
  await sql`update event_tail set pruned_hash = ${'0'.repeat(64)}`.execute(database);
  t.match(await verify(), {
    status: 1,
    findings: [{ fault: 'forged-signature' }, { fault: 'changed', position: 701 }],
  });
});

onEachDatabase('concurrent changes make one chain, and a former release beside this one is named', async (t, url) => {
  const { call, database, verify } = await trailFixture(t, url, 0);
  await Promise.all(
    Array.from({ length: 40 }, (_, index) =>
      index % 2 === 0
        ? call('POST', '/merchants', { body: { name: `m ${index}` } })
        : call('GET', '/me', { headers: { authorization: `Bearer mga_${index}` } }),
    ),
  );
  t.match(await verify(), { status: 0, complete: true, head: { position: 40 } });
  const former = { action: 'merchant.changed', merchant_id: 'm', key_id: null, before: null, after: null, revision: 1 };
  const { seq } = await database
    .insertInto('events')
    .values({ at: 1, actor: 'ada', ...former })
    .returning('seq')
    .executeTakeFirstOrThrow();
  t.match(await verify(), { status: 1, findings: [{ fault: 'added', seq }] });
  t.match((await verify()).stderr, `The chain breaks at event ${seq}: 1 fault`);
});
