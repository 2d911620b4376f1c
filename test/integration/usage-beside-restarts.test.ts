import { createReadStream } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';
import Libsql from 'libsql';
import t, { type Test } from 'tap';
import { logSecretOf } from '../../src/telemetry/chain.js';
import { keyFingerprint } from '../../src/telemetry/key-fingerprint.js';
import { hourMilliseconds } from '../../src/usage/batch.js';
import { withoutRedis } from '../adapters/redis-server.js';
import { benchKey } from '../bench/key-file.js';
import { benchKeyId, isFilled, seedKeys } from '../bench/seed.js';
import { type Deployment, type GatewayProcess, startDeployment } from '../deployment/deployment.js';

const keys = Number(process.env.USAGE_KEYS ?? 50);
/**
 * Number of gateways. Two are enough: while one restarts, the other one serves and counts. A third one would only
 * repeat that, and start six more processes. USAGE_GATEWAYS sets another number.
 */
const gateways = Number(process.env.USAGE_GATEWAYS ?? 2);
const workers = 2;
/** How often each gateway is restarted. */
const restarts = Number(process.env.USAGE_RESTARTS ?? 1);
/** Requests of each round, sent to all gateways by turns. USAGE_REQUESTS sets the total of all rounds. */
const requestsOfRound = Math.ceil(Number(process.env.USAGE_REQUESTS ?? 3_000) / (4 + restarts));
const atOnce = 16;
/**
 * The secret of the access logs. With this secret, each line contains the fingerprint of the request's key, even if the
 * gateway does not know that key.
 */
const logSecret = 'a-secret-of-the-access-logs-0123456789';
/** The key with which the deployment polls a gateway until it is ready. */
const pollingKey = 'svc_live_nobody';

t.test(
  'the counts equal the access logs, beside restarts of Redis, registry and gateways',
  { skip: withoutRedis, timeout: 3_600_000 },
  async (t) => {
    const { deployment, logs, start } = await fixture(t);
    const running = await Promise.all(Array.from({ length: gateways }, start));
    const restart = async (index: number): Promise<void> => {
      await end(running[index]);
      running[index] = await start();
    };
    const beside = async (act: () => Promise<void>): Promise<void> => {
      await Promise.all([act(), sendRound(running)]);
    };

    await beside(() => Promise.resolve());
    await beside(() => deployment.restartRegistry());
    await beside(async () => {
      await deployment.redis.kill();
      await wait(500);
      await deployment.redis.restart();
    });
    while (!(await isFilled(deployment))) await wait(50);
    for (let time = 0; time < restarts; time += 1)
      await beside(async () => {
        for (let index = 0; index < gateways; index += 1) await restart(index);
      });
    await beside(() => deployment.restartRegistry());
    await Promise.all(running.map(end));

    const expected = cellsOf(await linesOf(logs));
    let counted = cellsOfRegistry(deployment);
    const ended = `select sum(is_ended) as ended, count(*) as all_of_them from usage_processes`;
    const areEnded = (): boolean => query(deployment, ended)[0]?.ended === logs.length;
    const isAllThere = (): boolean => isSame(counted, expected) && areEnded();
    for (const until = performance.now() + 60_000; performance.now() < until && !isAllThere();) {
      await wait(100);
      counted = cellsOfRegistry(deployment);
    }
    t.same([...counted].toSorted(), [...expected].toSorted());
    t.comment(`${[...expected.values()].reduce((sum, count) => sum + count, 0)} requests in ${expected.size} cells`);
    t.same(
      query(deployment, ended),
      [{ ended: logs.length, all_of_them: logs.length }],
      'each process has its end mark',
    );
    t.same(query(deployment, 'select * from usage_gaps'), []);
  },
);

t.test(
  'a gateway killed with SIGKILL loses only what it counted after its last batch, and has no end mark',
  { skip: withoutRedis, timeout: 120_000 },
  async (t) => {
    const { deployment, logs, start } = await fixture(t);
    const gateway = await start();
    let isKilled = false;
    const asked = Array.from({ length: keys }, () => 0);
    const sending = Array.from({ length: 4 }, async (_, first) => {
      for (let sent = first; !isKilled; sent += 4) {
        const number = sent % keys;
        asked[number] = (asked[number] ?? 0) + 1;
        await gateway.ask(benchKey(number)).catch(() => undefined);
      }
    });
    const isCounted = () => query(deployment, 'select * from usage_processes').length === workers;
    while (!isCounted()) await wait(50);
    await wait(1_500);
    const [primary] = [gateway.pid];
    const children = (await readFile(`/proc/${primary}/task/${primary}/children`, 'utf8')).trim().split(' ');
    for (const pid of [...children, primary]) process.kill(Number(pid), 'SIGKILL');
    const killedAt = Date.now();
    isKilled = true;
    await Promise.all(sending);
    t.equal(children.length, workers);

    while ((await deployment.redis.client.xlen('mg:usage')) > 0) await wait(20);
    const processes = query(deployment, 'select last_at, is_ended from usage_processes');
    t.match(
      processes,
      [{ is_ended: 0 }, { is_ended: 0 }],
      'neither has an end mark, so that it is named as incomplete',
    );
    const lastBatch = Math.min(...processes.map(({ last_at }) => Number(last_at)));
    const lines = await linesOf(logs);
    // A request can have ended a millisecond later than `endedAt`, because its start is cut to whole milliseconds.
    const [all, until] = [cellsOf(lines), cellsOf(lines.filter(({ endedAt }) => endedAt + 1 <= lastBatch))];
    const counted = cellsOfRegistry(deployment);
    for (const [cell, count] of until)
      t.ok((counted.get(cell) ?? 0) >= count, `everything before the last batch: ${cell}`);
    const sum = (cells: ReadonlyMap<string, number>): number =>
      [...cells.values()].reduce((one, other) => one + other, 0);
    // A worker writes a line up to 10 ms after it has counted the request, so the kill can lose the lines of counted
    // requests. For each key, the counts without a line must be at most the sent requests without a line.
    const beyond = new Map<string, number>();
    for (const [cell, count] of counted) {
      const [, keyId = ''] = cell.split(' ');
      beyond.set(keyId, (beyond.get(keyId) ?? 0) + Math.max(0, count - (all.get(cell) ?? 0)));
    }
    const secret = logSecretOf(Buffer.from(logSecret));
    const linesWith = (key: string): number => {
      const ofKey = keyFingerprint(secret, key);
      return lines.filter(({ fingerprint }) => fingerprint === ofKey).length;
    };
    const repeated: string[] = [];
    let [logged, unlogged] = [linesWith(pollingKey), 0];
    for (const [number, sent] of asked.entries()) {
      const [withLine, more] = [linesWith(benchKey(number)), beyond.get(benchKeyId(number)) ?? 0];
      if (more > sent - withLine) repeated.push(`${benchKey(number)}: ${more} of at most ${sent - withLine}`);
      logged += withLine;
      unlogged += sent - withLine;
    }
    t.equal(logged, lines.length, 'each line is about one of these keys');
    t.same(repeated, [], 'no request of a key twice');
    t.ok(sum(beyond) <= unlogged, `no request twice: ${sum(beyond)} without a line, of at most ${unlogged}`);
    t.comment(
      `${sum(all) - sum(counted)} of ${sum(all)} missing; last batch ${killedAt - lastBatch} ms before the kill`,
    );
  },
);

/** A deployment with keys. `start` starts a gateway, and adds the paths of its workers' access logs to `logs`. */
async function fixture(t: Test) {
  const deployment = await startDeployment(t, { recordSecret: true });
  await seedKeys(deployment, keys);
  const secretFile = deployment.file('log-secret.txt');
  await writeFile(secretFile, logSecret, { mode: 0o600 });
  const logs: string[] = [];
  const start = async (): Promise<GatewayProcess> => {
    const gateway = await deployment.startGateway({ accessLog: { secretFile } }, { workers });
    for (let worker = 1; worker <= workers; worker += 1) logs.push(gateway.accessLog.replace(/log$/, `${worker}.log`));
    return gateway;
  };
  return { deployment, logs, start };
}

/** Sends requests with known and unknown keys to all gateways. A request to a gateway that restarts may fail. */
async function sendRound(running: readonly (GatewayProcess | undefined)[]): Promise<void> {
  let sent = 0;
  const send = async (): Promise<void> => {
    while (sent < requestsOfRound) {
      sent += 1;
      // The division makes each key go to every gateway in turn. Without it, with two gateways and an even number of
      // keys, each key would always go to the same gateway.
      const key = sent % 11 === 0 ? `svc_live_Unknown${sent % 7}` : benchKey(Math.floor(sent / gateways) % keys);
      await running[sent % gateways]?.ask(key).catch(() => wait(5));
    }
  };
  await Promise.all(Array.from({ length: atOnce }, send));
}

/** Ends a gateway as Kubernetes does. */
async function end(gateway: GatewayProcess | undefined): Promise<void> {
  await gateway?.stop();
}

/** The requests that an access log line is about: their time, merchant and key, and their number by code. */
interface Counted {
  readonly at: number;
  /** When the request ended, in milliseconds since 1970. The gateway counts it at this time. */
  readonly endedAt: number;
  readonly owner: string;
  /** The fingerprint of the key; empty without a key. */
  readonly fingerprint: string;
  readonly codes: Readonly<Record<string, number>>;
}

async function linesOf(files: readonly string[]): Promise<Counted[]> {
  const counted: Counted[] = [];
  for (const file of files) {
    for await (const text of createInterface(createReadStream(file))) {
      if (text === '') continue;
      const line = JSON.parse(text) as Record<string, Record<string, unknown> | undefined>;
      if (line.event?.code === undefined) continue; // a line about the log itself
      const merchant = (line.organization?.id as string | undefined) ?? '';
      const at = Date.parse(line['@timestamp'] as unknown as string);
      const { id = '', fingerprint = '' } = (line.gateway?.key ?? {}) as { id?: string; fingerprint?: string };
      const { codes } = (line.gateway?.aggregate ?? {}) as { codes?: Record<string, number> };
      const endedAt = at + Number(line.event.duration ?? 0) / 1e6;
      const ofOne = { [line.event.code as string]: 1 };
      counted.push({ at, endedAt, owner: `${merchant} ${id}`, fingerprint, codes: codes ?? ofOne });
    }
  }
  return counted;
}

function cellsOf(lines: readonly Counted[]): Map<string, number> {
  const cells = new Map<string, number>();
  for (const { at, owner, codes } of lines) {
    for (const [code, count] of Object.entries(codes)) {
      const cell = [owner, at - (at % hourMilliseconds), code].join(' ');
      cells.set(cell, (cells.get(cell) ?? 0) + count);
    }
  }
  return cells;
}

function cellsOfRegistry(deployment: Deployment): Map<string, number> {
  const rows = query(deployment, 'select merchant_id, key_id, hour, code, count from usage_hours');
  return new Map(rows.map((row) => [[row.merchant_id, row.key_id, row.hour, row.code].join(' '), Number(row.count)]));
}

function query({ databaseFile }: Deployment, text: string): Record<string, unknown>[] {
  const database = new Libsql(databaseFile, { timeout: 5000 });
  try {
    return database.prepare(text).all() as Record<string, unknown>[];
  } finally {
    database.close();
  }
}

function isSame(one: ReadonlyMap<string, number>, other: ReadonlyMap<string, number>): boolean {
  return one.size === other.size && [...one].every(([cell, count]) => other.get(cell) === count);
}
