import { randomBytes } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { UsageSender } from '../../src/edge/observe/usage-sender.js';
import { maxMessageBytes } from '../../src/gateway/channel-ports.js';
import type { UsageBatch } from '../../src/usage/batch.js';
import { parseBatch } from '../../src/usage/batch-text.js';

const everyMilliseconds = 5;
const day = 86_400_000;

interface Message {
  readonly kind: string;
  readonly body: string;
}

/** A registry that follows the rule of batches: it adds the next batch, and repeats its reply to an earlier batch. */
class TestRegistry {
  readonly stored: UsageBatch[] = [];
  /** For each series of lost batches, the sequence numbers of the first and of the last one. */
  readonly gaps: (readonly [first: number, last: number])[] = [];
  readonly received: string[] = [];
  /** Called before a batch is processed. If it throws, the message is lost; if it returns a text, that is the reply. */
  intervene: (batch: UsageBatch) => string | undefined = () => undefined;
  /** Called after a batch was added; throws to lose the reply. */
  afterAdding: () => void = () => undefined;
  /**
   * Resolves when all earlier messages are handled. Like a real registry, this one handles them one after the other,
   * because reading a message takes asynchronous steps.
   */
  #turn: Promise<unknown> = Promise.resolve();

  readonly send = (message: Message): Promise<string> => {
    const reply = this.#turn.then(() => this.#handle(message));
    this.#turn = reply.catch(() => undefined);
    return reply;
  };

  readonly close = (): Promise<void> => Promise.resolve();

  async #handle({ kind, body }: Message): Promise<string> {
    const batch = await parseBatch(body);
    if (kind !== 'usage' || batch === null || body.length > maxMessageBytes) throw new Error('not a batch');
    this.received.push(body);
    const reply = this.intervene(batch);
    if (reply !== undefined) return reply;
    const last = this.lastOf(batch.process);
    const lost = Math.max(last, batch.acknowledged);
    if (batch.sequence > last && batch.sequence <= lost + 1) {
      if (lost > last) this.gaps.push([last + 1, lost]);
      this.stored.push(batch);
    }
    this.afterAdding();
    return JSON.stringify({ sequence: this.lastOf(batch.process) });
  }

  lastOf(process: string): number {
    return this.stored.filter((batch) => batch.process === process).at(-1)?.sequence ?? 0;
  }

  /** The number of requests in the stored batches. */
  get total(): number {
    return this.stored.flatMap(({ unknown }) => unknown.codes).reduce((sum, { count }) => sum + count, 0);
  }
}

function startSender(t: Test, registry: TestRegistry) {
  const clock = { time: 20_000 * day, now: () => clock.time };
  const problems: (string | null)[] = [];
  const onUsageProblem = (problem: string | null): void => void problems.push(problem);
  const sender = new UsageSender(
    { clock, environment: 'live', instance: 'test:1', channel: registry, onUsageProblem },
    everyMilliseconds,
  );
  const count = (number = 1, code = 'key_unknown'): void => {
    sender.counter.countWithoutKey([[code, number]], clock.time, '192.0.2.1');
  };
  sender.start();
  t.teardown(() => sender.close(0));
  return { clock, count, problems, sender };
}

async function until(condition: () => boolean): Promise<void> {
  for (const end = performance.now() + 60_000; !condition();) {
    if (performance.now() > end) throw new Error(`never: ${String(condition)}`);
    await wait(2);
  }
}

t.test('batches are numbered from 1, cover the time without gaps, and end with a mark', async (t) => {
  const registry = new TestRegistry();
  const { clock, count, sender } = startSender(t, registry);
  const from = clock.time;
  for (let number = 1; number <= 3; number += 1) {
    clock.time += 1_000;
    count(number);
    await until(() => registry.stored.length === number);
  }
  count(5);
  await sender.close(1_000);
  t.same(
    registry.stored.map(({ sequence }) => sequence),
    [1, 2, 3, 4, 5],
  );
  t.same(
    registry.stored.map(({ isLast }) => isLast),
    [false, false, false, false, true],
  );
  t.equal(registry.total, 11);
  t.equal(registry.stored[0]?.from, from);
  for (const [index, batch] of registry.stored.entries())
    t.equal(batch.from, registry.stored[index - 1]?.to ?? from, 'it begins where the one before ended');
  t.match(sender.stats, { stored: 5, refused: 0 });
});

t.test('a batch is sent again, unchanged, until the registry has it', async (t) => {
  const registry = new TestRegistry();
  registry.intervene = () => {
    throw new Error('the registry does not reply');
  };
  const { count, sender } = startSender(t, registry);
  count(7);
  await until(() => registry.received.length >= 4);
  t.equal(new Set(registry.received).size, 1);
  registry.intervene = () => undefined;
  let lost = 0;
  registry.afterAdding = () => {
    if ((lost += 1) <= 3) throw new Error('the reply is lost');
  };
  await until(() => sender.stats.stored === 1);
  t.equal(registry.total, 7, 'it is added once');
});

t.test('several batches are under way, so that Redis has them while no registry reads', async (t) => {
  const registry = new TestRegistry();
  const hanging: (() => void)[] = [];
  const { count, sender } = startSender(t, registry);
  const { send } = registry;
  let isAway = true;
  Object.assign(registry, {
    send: async (message: Parameters<typeof send>[0]) => {
      registry.received.push(message.body);
      if (isAway) await new Promise<void>((resolve) => hanging.push(resolve));
      return send(message);
    },
  });
  let counted = 0;
  // On a busy machine several counts can be in one batch. So the loop counts until 16 batches are sent, and then 14
  // times more.
  for (let after = 0; after < 14; after += registry.received.length < 16 ? 0 : 1) {
    count();
    counted += 1;
    await wait(2 * everyMilliseconds);
  }
  t.equal(registry.received.length, 16, 'as many as may be without a reply');
  isAway = false;
  for (const resolve of hanging) resolve();
  await until(() => registry.total === counted);
  t.equal(registry.stored.length, 17, 'what was counted meanwhile is one batch');
  t.equal(sender.delay, 0);
});

t.test('a batch that overtook another one is sent again after it', async (t) => {
  const registry = new TestRegistry();
  let isFirst = true;
  registry.intervene = ({ sequence }) => {
    if (sequence !== 1 || !isFirst) return undefined;
    isFirst = false;
    throw new Error('cannot exchange messages with the registry through Redis (Connection is closed.): check Redis');
  };
  const { count, sender } = startSender(t, registry);
  count(1);
  await until(() => registry.received.length > 0);
  count(2);
  await until(() => registry.total === 3);
  await sender.close(1_000);
  t.equal(registry.total, 3);
});

t.test('a registry whose database was restored takes the next batch', async (t) => {
  const registry = new TestRegistry();
  const { count, sender } = startSender(t, registry);
  for (let number = 1; number <= 3; number += 1) {
    count();
    await until(() => registry.stored.length === number);
  }
  registry.stored.splice(1);
  count(10);
  await until(() => registry.total === 11);
  t.same(
    registry.stored.map(({ sequence }) => sequence),
    [1, 4],
  );
  t.equal(registry.stored[1]?.acknowledged, 3);
  await sender.close(1_000);
});

// Regression: the sender made a second batch before the first was acknowledged. If a restore of the registry then lost
// the first, the registry waited for it forever.
t.test('a restored registry takes a batch that was made together with a lost one', async (t) => {
  const registry = new TestRegistry();
  registry.intervene = ({ sequence }) => {
    if (sequence !== 2) return undefined;
    registry.intervene = () => undefined;
    registry.stored.splice(0); // the first batch is stored and acknowledged, and then lost
    throw new Error('the registry does not reply');
  };
  const { clock, count, sender } = startSender(t, registry);
  for (let number = 0; number < 600; number += 1)
    sender.counter.count(exchangeOf(clock.time, 'agent'), ownerOf(number));
  await until(() => registry.received.length >= 2);
  count(7);
  await until(() => registry.total === 7);
  t.same(
    registry.stored.map(({ sequence }) => sequence),
    [2, 3],
  );
  t.same(registry.gaps, [[1, 1]], 'the loss is recorded');
  const made = await parseBatch(registry.received[1] ?? '');
  t.match(made, { sequence: 2, acknowledged: 0 });
  t.same(registry.stored[0], { ...made, acknowledged: 1 }, 'its counts are unchanged');
  await sender.close(1_000);
});

t.test('a refusal that arrives while the last batch is made does not lose the end mark', async (t) => {
  const registry = new TestRegistry();
  const { send } = registry;
  const held: { refuse: (() => void) | null } = { refuse: null };
  Object.assign(registry, {
    send: (message: Message): Promise<string> => {
      if (held.refuse !== null) return send(message);
      return new Promise((resolve) => {
        held.refuse = () => {
          resolve(JSON.stringify({ problem: 'it is malformed' }));
        };
      });
    },
  });
  const { count, sender } = startSender(t, registry);
  count();
  await until(() => held.refuse !== null);
  const closed = sender.close(10_000);
  // Another thread deflates the last batch, which takes longer than these microtasks. So the refusal arrives before the
  // last batch is ready.
  for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
  held.refuse?.();
  await closed;
  t.same(
    registry.stored.map(({ sequence, isLast }) => [sequence, isLast]),
    [[1, true]],
  );
  t.equal(sender.stats.refused, 1);
});

t.test('after a refusal the process begins a new order, and says so', async (t) => {
  const registry = new TestRegistry();
  let isRefusing = true;
  registry.intervene = () => (isRefusing ? JSON.stringify({ problem: 'version 1 is unknown' }) : undefined);
  const { count, problems, sender } = startSender(t, registry);
  count();
  await until(() => sender.stats.refused === 1);
  isRefusing = false;
  count(5);
  await until(() => registry.total === 5);
  t.equal(registry.stored[0]?.sequence, 1);
  t.match(problems, [
    /rejected request counts, so all counts that it had not stored yet are lost: version 1 is unknown/,
  ]);
});

t.test('operators hear of batches that wait for half a minute, and of the end of it', async (t) => {
  const registry = new TestRegistry();
  let isAway = true;
  registry.intervene = () => {
    if (isAway) throw new Error('the registry does not reply');
    return undefined;
  };
  const { clock, count, problems, sender } = startSender(t, registry);
  count();
  await until(() => registry.received.length > 1);
  clock.time += 29_000;
  await wait(4 * everyMilliseconds);
  t.same(problems, []);
  clock.time += 1_000;
  await until(() => problems.length === 1);
  t.equal(sender.delay, 30_000);
  isAway = false;
  await until(() => problems.length === 2);
  t.same(problems, ['the registry does not reply; the gateway keeps the counts and retries', null]);
});

t.test('a clock that is set back loses no counts', async (t) => {
  const registry = new TestRegistry();
  const { clock, count, sender } = startSender(t, registry);
  for (const step of [1_000, -5_000, -3_600_000, 1_000]) {
    clock.time += step;
    const stored = registry.total;
    count();
    await until(() => registry.total > stored);
  }
  t.equal(registry.total, 4);
  t.equal(sender.stats.refused, 0);
  t.same(
    registry.stored.filter(({ from, to }) => from > to),
    [],
  );
});

t.test('a process that counts nothing sends a batch every ten seconds', async (t) => {
  const registry = new TestRegistry();
  const { clock } = startSender(t, registry);
  await wait(4 * everyMilliseconds);
  t.equal(registry.stored.length, 0);
  for (let number = 1; number <= 2; number += 1) {
    clock.time += 10_000;
    await until(() => registry.stored.length === number);
  }
  t.same(
    registry.stored.map(({ keys, unknown }) => [keys, unknown.codes]),
    [
      [[], []],
      [[], []],
    ],
  );
});

t.test('what is too long for a message is sent in several batches, completely', async (t) => {
  const registry = new TestRegistry();
  const { clock, count, sender } = startSender(t, registry);
  const keys = 2_000;
  count(3);
  const agent = (): string => randomBytes(100).toString('hex');
  for (let number = 0; number < keys; number += 1) {
    for (let twice = 0; twice < 2; twice += 1) sender.counter.count(exchangeOf(clock.time, agent()), ownerOf(number));
  }
  await until(() => registry.stored.flatMap((batch) => batch.keys).length === keys);
  const counted = registry.stored.flatMap((batch) => batch.keys);
  t.equal(new Set(counted.map(({ keyId }) => keyId)).size, keys);
  t.ok(counted.every(({ codes, agents }) => codes[0]?.count === 2 && agents.length === 2));
  t.equal(registry.total, 3, 'requests without a key are in one of them');
  t.ok(registry.stored.length > 4);
  t.ok(registry.received.every((body) => body.length <= maxMessageBytes));
});

t.test('a second with few requests makes the batches of the next second no smaller', async (t) => {
  const registry = new TestRegistry();
  const { clock, sender } = startSender(t, registry);
  for (const keys of [1, 100, 2, 100]) {
    const before = registry.stored.length;
    for (let number = 0; number < keys; number += 1)
      sender.counter.count(exchangeOf(clock.time, 'an agent'), ownerOf(number));
    await until(() => registry.stored.slice(before).flatMap((batch) => batch.keys).length === keys);
    t.equal(registry.stored.length, before + 1, `${keys} keys are in one batch`);
  }
});

t.test('the details of one merchant always fit into a message, also texts that cannot be compressed', async (t) => {
  const registry = new TestRegistry();
  const { clock, sender } = startSender(t, registry);
  // Bytes from 0x80 on take the most space: two bytes each in JSON.
  const text = (length: number): string =>
    Array.from(randomBytes(length), (byte) => String.fromCharCode(byte | 0x80)).join('');
  const owner = ownerOf(0);
  for (let number = 0; number < 100; number += 1) {
    const accepted = exchangeOf(clock.time, text(300));
    const { receivedAt, headers } = accepted.data;
    const refused = {
      ...{ outcome: 'origin_not_allowed', status: 401, duration: 1, requestBodyBytes: 0, responseBodyBytes: 1 },
      data: { receivedAt, headers, method: 'OPTIONS', target: { absolute: null, path: text(2_000) } },
      found: {
        ...{ clientAddress: { text: `2001:db8::${number}` }, location: null, id: randomBytes(13).toString('hex') },
        facts: { origin: { header: 'referer', value: `https://${text(300)}` } },
      },
    } as unknown as Parameters<Count>[0];
    sender.counter.count(accepted, owner);
    sender.counter.count(refused, owner);
  }
  await until(() => registry.stored.flatMap((batch) => batch.merchants).length === 1);
  const [merchant] = registry.stored.flatMap((batch) => batch.merchants);
  t.same([merchant?.refusals.length, merchant?.hosts.length], [20, 65], 'the limits, and a row for all further hosts');
  const longest = Math.max(...registry.received.map((body) => body.length));
  t.ok(longest > 40_000 && longest <= maxMessageBytes, `${longest} bytes`);
});

type Count = UsageSender['counter']['count'];

function ownerOf(number: number): Parameters<Count>[1] {
  const credential = { keyId: randomBytes(8).toString('hex'), merchantId: `merchant-${number}` };
  owners[number] ??= { credential, keyLookup: null } as unknown as Parameters<Count>[1];
  return owners[number];
}

const owners: Parameters<Count>[1][] = [];

/** Returns an accepted request that has only the fields that the counter reads. */
function exchangeOf(receivedAt: number, agent: string): Parameters<Count>[0] {
  return {
    data: { receivedAt, headers: { userAgent: [agent] } },
    found: { clientAddress: { text: '192.0.2.1' }, location: null, facts: null },
    ...{ outcome: 'accepted', duration: 1, requestBodyBytes: 0, responseBodyBytes: 1 },
  } as unknown as Parameters<Count>[0];
}
