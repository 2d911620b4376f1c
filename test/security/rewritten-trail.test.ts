import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { sql } from 'kysely';
import type { Test } from 'tap';
import { type ChainHead, chainStart, eventHash, signChainHead } from '../../src/evidence/event-chain.js';
import { keyText, NoteSigner } from '../../src/evidence/signed-note.js';
import { isPostgres } from '../../src/database/dialects.js';
import { registryAuthor } from '../../src/registry/events/author.js';
import { EventCheckpoints } from '../../src/registry/events/checkpoints.js';
import { deleteEvents, recordEvents } from '../../src/registry/events/repository.js';
import type { RegistryDatabase } from '../../src/registry/registry-database.js';
import { ran } from '../cli/ran.js';
import { onEachDatabase } from '../database/each-database.js';
import { withoutTriggers } from '../registry/without-triggers.js';
import { registryFixture, token } from '../registry/registry-fixture.js';
import { forward, startServer } from '../start-server.js';

interface Verdict {
  readonly complete: boolean;
  readonly faults: number;
  readonly findings: readonly { readonly fault: string; readonly position: number; readonly seq: number | null }[];
  readonly added: number;
  readonly signedTo: number;
  readonly unknownSignatures: number;
}

/**
 * Starts a registry with `count` events in its trail, the signed chain of events. `verify` runs `events verify` as a
 * user does, and `add` adds events.
 */
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
  const registry = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
  const access = [
    ...['--registry', registry],
    ...['--token-file', `${directory}/token`, '--public-key', `${directory}/key`],
  ];
  const verify = async (...more: string[]): Promise<Verdict & { readonly status: number; readonly stderr: string }> => {
    const { status, out, err } = await ran('events', 'verify', ...access, '--json', ...more);
    const verdict = (out === '' ? {} : JSON.parse(out)) as Verdict;
    return { ...verdict, status, stderr: err };
  };
  return { ...fixture, access, add, directory, checkpoints, registry, signer, verify };
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

/** Returns a reproducible generator of random integers that are less than its argument (mulberry32). */
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

/** Makes one random change by SQL. Returns what it changed, and a function that undoes the change. */
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
  const kind = below(8);
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
    const isBefore = below(2) === 0;
    const added = isBefore ? -1 - below(1000) : (seqs.at(-1) ?? 0) + 1 + below(1000);
    const [names, overriding] = [Object.keys(copy), isPostgres(database) ? sql`overriding system value` : sql``];
    await sql`insert into events (seq, ${sql.join(names.map((name) => sql.id(name)))}) ${overriding}
      values (${added}, ${sql.join(Object.values(copy))})`.execute(database);
    return {
      what: isBefore ? 'inserted before' : 'inserted behind',
      undo: () => database.deleteFrom('events').where('seq', '=', added).execute(),
    };
  }
  if (kind === 4) return changeChain(database, below, count);
  const other = seqs[(seqs.indexOf(seq) + 1 + below(count - 1)) % count] ?? 1;
  // Swaps two links of the chain, two events, or both. After swapping both, the tables are as if the two events had
  // happened in the other order.
  const tables = [['event_chain'], ['events'], ['event_chain', 'events']][kind - 5] ?? [];
  const swap = async (): Promise<void> => {
    for (const table of tables) await swapNumbers(database, table, seq, other);
  };
  await swap();
  return { what: `reordered ${tables.join(' and ')}`, undo: swap };
}

/**
 * Changes what proves the events: a hash, a signature, the end of the chain, or the end of its deleted part. Returns
 * what it changed, and a function that undoes the change.
 */
async function changeChain(database: RegistryDatabase, below: (limit: number) => number, count: number) {
  const position = 1 + below(count);
  const [table, column, value, where] = [
    ['event_chain', 'hash', sql`${'0'.repeat(64)}`, sql`position = ${position}`],
    ['event_chain', 'position', sql`position + ${count}`, sql`position = ${position}`],
    ['event_checkpoints', 'note', sql`replace(note, 'registry', 'forged')`, sql`true`],
    ['event_checkpoints', 'position', sql`position - ${1 + below(count - 1)}`, sql`true`],
    ['event_tail', 'hash', sql`${'f'.repeat(64)}`, sql`true`],
    ['event_tail', 'position', sql`position - ${1 + below(count - 1)}`, sql`true`],
    ['event_tail', 'pruned_position', sql`${position}`, sql`true`],
    ['event_tail', 'pruned_hash', sql`${'f'.repeat(64)}`, sql`true`],
  ][below(8)] as [string, string, ReturnType<typeof sql>, ReturnType<typeof sql>];
  const [name, changed] = [sql.table(table), sql.id(column)];
  const { rows } = await sql<{ value: unknown }>`select ${changed} as value from ${name} where ${where}`.execute(
    database,
  );
  await sql`update ${name} set ${changed} = ${value} where ${where}`.execute(database);
  const moved = column === 'position' && table === 'event_chain' ? sql`position = ${position + count}` : where;
  return {
    what: `changed ${table}.${column}`,
    undo: () => sql`update ${name} set ${changed} = ${rows[0]?.value} where ${moved}`.execute(database),
  };
}

async function swapNumbers(database: RegistryDatabase, table: string, one: number, other: number): Promise<void> {
  if (table === 'events') {
    // PostgreSQL does not let an update change a generated number, so the rows are deleted and inserted again.
    const rows = await database.selectFrom('events').selectAll().where('seq', 'in', [one, other]).execute();
    await sql`delete from events where seq in (${one}, ${other})`.execute(database);
    const overriding = isPostgres(database) ? sql`overriding system value` : sql``;
    for (const row of rows) {
      const swapped = { ...row, seq: row.seq === one ? other : one };
      await sql`insert into events (${sql.join(Object.keys(swapped).map((name) => sql.id(name)))}) ${overriding}
        values (${sql.join(Object.values(swapped))})`.execute(database);
    }
    return;
  }
  const name = sql.table(table);
  await sql`update ${name} set seq = -1 where seq = ${one}`.execute(database);
  await sql`update ${name} set seq = ${one} where seq = ${other}`.execute(database);
  await sql`update ${name} set seq = ${other} where seq = -1`.execute(database);
}

onEachDatabase('each of many random changes by the owner of the database is found', async (t, url) => {
  await eachIsFound(t, url, 1000);
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
  t.ok(seen.size >= 24, [...seen].join());
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

onEachDatabase('a replaced key proves what it signed, and an unknown key proves nothing', async (t, url) => {
  const { add, checkpoints, database, directory, signer, time, verify } = await trailFixture(t, url, 5);
  const file = `${directory}/checkpoint`;
  t.match(await verify('--save', file), { status: 0, signedTo: 5, unknownSignatures: 0 });
  const giveKeys = (...signers: readonly NoteSigner[]): void => {
    const lines = signers.map(({ receiptKey }) => `${keyText(receiptKey)}  # ${receiptKey.name}`);
    writeFileSync(`${directory}/key`, `# of the registry\n\n${lines.join('\n')}\n`);
  };
  const signWith = (other: NoteSigner) =>
    new EventCheckpoints({ database, signer: other, clock: time, timers: time }).sign();
  const renamed = NoteSigner.inMemory('control.example');
  await add(2);
  await signWith(renamed);
  await add(1);
  await checkpoints.sign();
  giveKeys(signer);
  t.match(await verify(), { status: 0, faults: 0, signedTo: 8, unknownSignatures: 1 }, 'covered by a later signature');
  giveKeys(renamed);
  t.match(await verify(), { status: 0, faults: 0, signedTo: 7, unknownSignatures: 2 });
  t.match(await verify('--checkpoint', file), { status: 1, stderr: /No key of --public-key signed the checkpoint/ });
  giveKeys(signer, renamed);
  t.match(await verify('--checkpoint', file), { status: 0, signedTo: 8, unknownSignatures: 0 });
  giveKeys(renamed);
  writeFileSync(`${directory}/former`, keyText(signer.key));
  const twoFiles = ['--public-key', `${directory}/former`, '--checkpoint', file];
  t.match(await verify(...twoFiles), { status: 0, signedTo: 8, unknownSignatures: 0 }, 'in another file');

  await withoutTriggers(database);
  const { seq } = await database.selectFrom('events').select('seq').orderBy('seq').executeTakeFirstOrThrow();
  await sql`update events set actor = 'eve' where seq = ${seq + 3}`.execute(database);
  await rebuildChain(database);
  const forged = [5, 7, 8].map((position) => ({ fault: 'forged-signature', position }));
  t.match(await verify(...twoFiles.slice(0, 2)), { status: 1, faults: 3, findings: forged });
  giveKeys(NoteSigner.inMemory('registry.example'));
  t.match(await verify(), { status: 1, faults: 3, findings: forged }, 'also without their keys');
  await sql`delete from event_checkpoints`.execute(database);
  await signWith(NoteSigner.inMemory('registry.example'));
  giveKeys(signer, renamed);
  t.match(await verify(), { status: 0, signedTo: 0, unknownSignatures: 1 }, 'a key of the forger proves nothing');
  t.match(await verify('--checkpoint', file), { status: 1, findings: [{ fault: 'rolled-back', position: 5 }] });
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
  const saved = readFileSync(file, 'utf8');
  for (const night of [1, 2]) {
    const verdict = await verify('--checkpoint', file, '--save', file);
    t.match(verdict, { status: 1, findings: [{ fault: 'rolled-back', position: 6 }] }, `night ${night}`);
    t.match(verdict.stderr, 'The chain has 1 fault, at position 6. No checkpoint was saved.');
  }
  t.equal(readFileSync(file, 'utf8'), saved, 'the checkpoint from before the restore is still there');
  const unwritable = await verify('--save', `${directory}/nowhere/checkpoint`);
  t.match(unwritable, { status: 1, complete: true, stderr: /cannot be written: the directory does not exist\.\n$/ });
  t.match(await verify('--save', directory), { status: 1, stderr: /is not a regular file\. No checkpoint was saved/ });
  const files = readdirSync(directory).filter((name) => name.startsWith('checkpoint'));
  t.same(files, ['checkpoint'], 'no other file is left');

  const key = keyText(NoteSigner.inMemory('registry.example').receiptKey);
  writeFileSync(`${directory}/key`, key);
  t.match(await verify('--checkpoint', file), { status: 1, stderr: /No key of --public-key signed the checkpoint/ });
  writeFileSync(file, JSON.stringify({ ...(JSON.parse(saved) as object), note: null }));
  t.match(await verify('--checkpoint', file), { status: 1, stderr: /has no signature, because registry\.witness was/ });
  writeFileSync(file, '{"position":6}');
  t.match(await verify('--checkpoint', file), {
    status: 1,
    stderr: /is not a checkpoint that "merchant-gateway events verify --save" wrote/,
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
  const next = keyText(NoteSigner.inMemory('registry.example').receiptKey);
  writeFileSync(`${directory}/key`, next);
  t.match(await verify(), { status: 1, findings: [{ fault: 'unsigned-deletion', position: 700 }], faults: 1 });
  writeFileSync(`${directory}/key`, `${next}\n${keyText(signer.receiptKey)}\n`);
  t.match(await verify(), { status: 0, signedTo: 703 }, 'the former key proves the deletion');
  await sql`update event_tail set pruned_hash = ${'0'.repeat(64)}`.execute(database);
  t.match(await verify(), {
    status: 1,
    findings: [
      { fault: 'unsigned-deletion', position: 700 },
      { fault: 'changed', position: 701 },
    ],
  });
});

// Regression: if retention deleted events after a verification had begun, the verification reported that somebody had
// removed them.
onEachDatabase('what retention deletes during a verification is missing without a fault', async (t, url) => {
  const { add, database, directory, registry, signer, time, verify } = await trailFixture(t, url, 700);
  const file = `${directory}/checkpoint`;
  await verify('--save', file);
  let [deleted, meanwhile] = [0, (): Promise<unknown> => Promise.resolve()];
  const proxy = await startServer(t, (request, response) => {
    const isRows = request.url?.startsWith('/events/chain/rows') === true;
    void (isRows ? meanwhile() : Promise.resolve()).then(() => {
      forward(registry, request, response);
    });
  });
  /**
   * Verifies the trail. The registry deletes a batch of events after the command has read the state of the chain. `by`
   * is the registry's signer; null without one.
   */
  const verifyDuringDeletion = (by: NoteSigner | null): ReturnType<typeof verify> => {
    meanwhile = async () => {
      meanwhile = () => Promise.resolve();
      const deletion = { after: deleted, until: time.now() - 1000, now: time.now(), signer: by };
      ({ seen: deleted } = await deleteEvents(database, deletion));
    };
    return verify('--registry', proxy, '--checkpoint', file);
  };
  time.advance(86_400_000);
  await add(3);

  await withoutTriggers(database);
  const lost = await database
    .deleteFrom('event_chain')
    .where('position', '=', 600)
    .returning('seq')
    .executeTakeFirstOrThrow();
  await database.deleteFrom('events').where('seq', '=', lost.seq).execute();
  t.match(
    await verifyDuringDeletion(signer),
    { status: 1, faults: 1, findings: [{ fault: 'removed', position: 600 }], pruned: { position: 500 } },
    'an event that is missing after the deleted ones is a fault',
  );
  t.match(await verifyDuringDeletion(signer), { status: 0, faults: 0, pruned: { position: 700 } });

  time.advance(86_400_000);
  await add(2);
  t.match(
    await verifyDuringDeletion(null),
    { status: 1, faults: 1, findings: [{ fault: 'unsigned-deletion', position: 703 }], pruned: { position: 703 } },
    'a deletion without a signature is a fault',
  );
});

// These attacks need not disable a trigger: the triggers believe what is stored about the deleted range.
const waysToSign: readonly (readonly [how: string, noteOf: (note: string, head: ChainHead) => string | null])[] = [
  ['with the signed end of the chain there', (note) => note],
  ['without a signature', () => null],
  [
    'with the signature of another key',
    (_note, head) => signChainHead(head, NoteSigner.inMemory('registry.example'), 'events/pruned'),
  ],
];
for (const [how, noteOf] of waysToSign) {
  onEachDatabase(`removed events do not pass as deleted after their retention, ${how}`, async (t, url) => {
    const { add, checkpoints, database, directory, verify } = await trailFixture(t, url, 5);
    const file = `${directory}/checkpoint`;
    await verify('--save', file);
    await add(5);
    await checkpoints.sign();
    const { hash, seq } = await database
      .selectFrom('event_chain')
      .selectAll()
      .where('position', '=', 5)
      .executeTakeFirstOrThrow();
    const { note } = await database
      .selectFrom('event_checkpoints')
      .select('note')
      .orderBy('position')
      .executeTakeFirstOrThrow();
    await database
      .updateTable('event_tail')
      .set({ pruned_position: 5, pruned_hash: hash, pruned_at: 1, pruned_note: noteOf(note, { position: 5, hash }) })
      .execute();
    await database.deleteFrom('events').where('seq', '<=', seq).execute();
    await database.deleteFrom('event_chain').where('position', '<=', 5).execute();
    for (const more of [[], ['--checkpoint', file]])
      t.match(await verify(...more), { status: 1, faults: 1, findings: [{ fault: 'unsigned-deletion', position: 5 }] });
  });
}

onEachDatabase('an inserted event does not pass as one of a former release', async (t, url) => {
  const { database, verify } = await trailFixture(t, url, 3);
  const { seq: last } = await database
    .selectFrom('events')
    .select('seq')
    .orderBy('seq', 'desc')
    .executeTakeFirstOrThrow();
  const form = {
    at: 1,
    actor: 'eve',
    action: 'merchant.changed',
    merchant_id: 'm',
    key_id: null,
    revision: 1,
  } as const;
  const insert = async (seq: number, proof: string | null): Promise<void> => {
    const overriding = isPostgres(database) ? sql`overriding system value` : sql``;
    const names = sql.join([...Object.keys(form), 'proof', 'seq'].map((name) => sql.id(name)));
    await sql`insert into events (${names}) ${overriding}
      values (${sql.join([...Object.values(form), proof, seq])})`.execute(database);
  };
  await insert(-1, null);
  t.match(await verify(), { status: 1, findings: [{ fault: 'added', seq: -1 }], former: 0 }, 'before the first number');
  await database.deleteFrom('events').where('seq', '=', -1).execute();

  await database
    .updateTable('event_tail')
    .set({ unchained_seq: last + 1000 })
    .execute();
  t.match(await verify(), { status: 0, former: 0 });
  await insert(last + 1, null);
  t.match(await verify(), { status: 1, findings: [{ fault: 'added', seq: last + 1 }], former: 0 }, 'behind the chain');
});

onEachDatabase('an event with a proof is never one of a former release', async (t, url) => {
  const { access, add, database, verify } = await trailFixture(t, url, 0);
  const former = { action: 'merchant.changed', merchant_id: 'm', key_id: null, before: null, after: null, revision: 1 };
  const rows = [
    { at: 1, actor: 'ada', ...former },
    { at: 2, actor: 'eve', ...former, proof: 'token:tok_1' },
  ];
  const [, forged] = await database.insertInto('events').values(rows).returning('seq').execute();
  await database
    .updateTable('event_tail')
    .set({ unchained_seq: forged?.seq ?? 0 })
    .execute();
  await add(2);
  t.match(await verify(), { status: 1, faults: 1, findings: [{ fault: 'added', seq: forged?.seq }], former: 1 });
  const { out } = await ran('events', 'verify', ...access);
  t.match(out, 'Recorded before the chain existed, and therefore not verified: 1 event.');
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
  t.match((await verify()).stderr, `The chain has 1 fault, at event ${seq}.`);
});

// During an upgrade, a registry of the former release can add an event outside the chain. Regression: every later
// verification failed.
onEachDatabase(
  'events of a former release that somebody has examined are a note, in exactly their number',
  async (t, url) => {
    const { database, directory, verify } = await trailFixture(t, url, 3);
    const file = `${directory}/checkpoint`;
    const form = { action: 'merchant.changed', merchant_id: 'm', key_id: null, before: null, after: null, revision: 1 };
    const insert = async (): Promise<number> => {
      const row = database.insertInto('events').values({ at: 1, actor: 'ada', ...form });
      return (await row.returning('seq').executeTakeFirstOrThrow()).seq;
    };
    const seq = await insert();
    t.match(await verify('--save', file), { status: 1, faults: 1, added: 1, findings: [{ fault: 'added', seq }] });
    t.notOk(existsSync(file));
    t.match(await verify('--added', '1', '--save', file), { status: 0, complete: true, added: 1, findings: [] });
    t.match(await verify('--added', '1', '--checkpoint', file), { status: 0, complete: true });
    t.match(await verify('--added', '2'), {
      status: 1,
      faults: 1,
      findings: [{ fault: 'added-removed', position: 3 }],
    });
    t.match(await verify('--added', '-1'), { status: 2, stderr: /Expected the number of events/ });
    await insert();
    t.match(await verify('--added', '1'), { status: 1, faults: 2, added: 2, findings: [{ fault: 'added', seq }] });
  },
);
