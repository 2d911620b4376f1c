import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { BalanceCheck } from '../../src/services/ledger/balance-check.js';
import { openServicesDatabase, type ServicesDatabase } from '../../src/services/services-database.js';
import { ran } from '../cli/ran.js';
import { ownPostgresAlone, startOwnPostgres } from '../database/own-postgres.js';
import { productCommand } from '../product-command.js';
import { operatorsToken } from '../services/operators-fixture.js';
import { bankPayout, identityOf, patient } from '../services/services-fixture.js';

/** Number of operations; `npm run soak:ledger` sets it to 5,000. */
const count = Number(process.env.LEDGER_OPERATIONS ?? 300);
const clients = 16;
const processes = 2;
const walletsOfEach = 6;
const longestMilliseconds = 1_500_000;
t.setTimeout(longestMilliseconds);

const retryMilliseconds = 30;
/** Limit for a restart of the services, also while the database recovers. */
const startMilliseconds = 120_000;
const merchantId = 'm_1';
const below = (limit: number): number => Math.floor(Math.random() * limit);

/** A services process that is killed and restarted, on any free port. */
class ServicesProcess {
  url: string | null = null;
  operatorsUrl: string | null = null;
  /** The log of each process that had started and then ended without being killed. */
  readonly endings: string[] = [];
  #child: ChildProcess | null = null;

  constructor(readonly config: string) {}

  async start(): Promise<void> {
    for (const begun = performance.now(); ;) {
      const child = spawn(...productCommand(['services', '--config', this.config]), {
        stdio: ['ignore', 'ignore', 'pipe'],
      });
      this.#child = child;
      let log = '';
      const found = new Promise<boolean>((resolve) => {
        child.stderr.on('data', (chunk: Buffer) => {
          log = (log + chunk.toString()).slice(-10_000);
          const line = /"url":"(http:[^"]+)","operatorsUrl":"(http:[^"]+)"/.exec(log);
          if (line === null) return;
          [, this.url = null, this.operatorsUrl = null] = line;
          resolve(true);
        });
        child.once('exit', () => {
          resolve(false);
          if (this.url !== null && this.#child === child) this.endings.push(log);
        });
      });
      // The services exit while the database is unavailable. Like a supervisor, this loop restarts them.
      if (await found) return;
      if (performance.now() - begun > startMilliseconds) throw new Error(`the services do not start: ${log}`);
      await wait(100);
    }
  }

  async kill(): Promise<void> {
    [this.url, this.operatorsUrl] = [null, null];
    const child = this.#child;
    this.#child = null;
    if (child?.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  }
}

interface FinalResponse {
  readonly status: number;
  readonly data: {
    readonly id?: string | number;
    readonly code?: string;
    readonly balanceAfter?: number;
    readonly isRepeated?: boolean;
  };
}

interface Order {
  readonly url: (one: ServicesProcess) => string | null;
  readonly headers: Record<string, string>;
  readonly body: object;
  /**
   * Whether the client waits for each response. It must do so for a withdrawal, because the services do not store a
   * rejection. Suppose that the client disconnects and repeats the request. Even if the services reject the repeated
   * request, the first one may still run, and withdraw later.
   */
  readonly isPatient?: boolean;
}

/** An operation that its client knows to have happened. */
interface Done {
  readonly kind: 'fund' | 'withdraw' | 'payout' | 'lost payout';
  readonly walletId: string;
  readonly amount: number;
  /** The operator's reference, or the payout id. */
  readonly name: string;
}

t.test(
  'the ledger is correct after random operations while the services and PostgreSQL are killed',
  ownPostgresAlone,
  async (t) => {
    const postgres = await startOwnPostgres(t);
    const { services, tokenFile } = await startServices(t, postgres.url);
    const counts = { sent: 0, cutOff: 0, repeated: 0, refused: 0, kills: 0, ended: 0, crashes: 0, commands: 0 };
    const done: Done[] = [];
    const wallets: string[] = [];

    /** Sends an order until it gets a final response, and returns it. Aborts some requests after a random time. */
    async function send(order: Order): Promise<FinalResponse> {
      for (;;) {
        const url = order.url(services[below(services.length)] ?? never());
        const isCut = order.isPatient !== true && below(6) === 0;
        counts.sent += 1;
        try {
          if (url === null) throw new Error('just killed');
          const response = await fetch(url, {
            method: 'POST',
            headers: { 'content-type': 'application/json', ...order.headers },
            body: JSON.stringify(order.body),
            signal: isCut ? AbortSignal.timeout(below(12)) : AbortSignal.timeout(20_000),
          });
          const { data } = (await response.json()) as { data: FinalResponse['data'] | null };
          const isStillRunning = response.status === 409 && data?.code !== 'reference_taken';
          if (response.status < 500 && !isStillRunning) return { status: response.status, data: data ?? {} };
        } catch {
          if (isCut) counts.cutOff += 1;
        }
        await wait(retryMilliseconds);
      }
    }

    const operatorHeaders = { authorization: `Bearer ${operatorsToken}`, 'x-actor': 'soak' };
    async function open(id: string | undefined, currency: string): Promise<string> {
      const body = { merchantId, environment: 'live', currency, ...(id === undefined ? {} : { isDefault: false, id }) };
      const { data } = await send({ url: atOperators('/wallets'), headers: operatorHeaders, body });
      return String(data.id);
    }

    async function move(kind: 'fund' | 'withdraw', number: number): Promise<void> {
      const walletId = wallets[below(wallets.length)] ?? never();
      const amount = 1 + below(1000);
      const body = { amount, currency: 'NGN', environment: 'live', reference: `operation-${number}`, reason: 'Soak' };
      const url = atOperators(`/wallets/${walletId}/${kind}`);
      const order = { url, headers: operatorHeaders, body, isPatient: kind === 'withdraw' };
      const { status, data } = await send(order);
      if (status === 422 && data.code === 'insufficient_balance') counts.refused += 1;
      else if (status === 201 || status === 200) done.push({ kind, walletId, amount, name: body.reference });
      else throw new Error(`${kind}: ${status} ${JSON.stringify(data)}`);
      if (status === 200) counts.repeated += 1;
      if (status < 300 && below(4) === 0) {
        // Repeats the request, like a client that lost the first response.
        const again = await send(order);
        if (again.status !== 200 || again.data.id !== data.id || again.data.balanceAfter !== data.balanceAfter)
          throw new Error(`the repeat of ${body.reference} has another result`);
        counts.repeated += 1;
      }
    }

    async function pay(number: number): Promise<void> {
      const walletId = wallets[below(wallets.length)] ?? never();
      const amount = 1 + below(800);
      const isLost = below(3) === 0;
      const headers = { ...identityOf({ merchantId, environment: 'live' }), 'idempotency-key': `operation-${number}` };
      const body = bankPayout(walletId, { amount, ...(isLost ? { destinationAccountNumber: '0000000000' } : {}) });
      const { status, data } = await send({ url: ({ url }) => url && `${url}/dev/payouts`, headers, body });
      if (status === 422) counts.refused += 1;
      else if (status === 201)
        done.push({ kind: isLost ? 'lost payout' : 'payout', walletId, amount, name: String(data.id) });
      else throw new Error(`payout: ${status} ${JSON.stringify(data)}`);
    }

    /** Waits until one of the services processes has started; returns the URL of its operators' API. */
    async function startedOperatorsUrl(): Promise<string> {
      for (;;) {
        const { operatorsUrl } = services[below(services.length)] ?? never();
        if (operatorsUrl !== null) return operatorsUrl;
        await wait(retryMilliseconds);
      }
    }

    /**
     * Funds a wallet with a command in a new process, which is killed after a random time. If that process did not
     * succeed, repeats the command with the same reference until it succeeds. The repeats run in this process, because
     * each new process would need one second of CPU time.
     */
    async function command(number: number): Promise<void> {
      const walletId = wallets[below(wallets.length)] ?? never();
      const amount = 1 + below(2000);
      const reference = `operation-${number}`;
      for (let attempt = 0; ; attempt += 1) {
        const line = [
          ...['wallets', 'fund', walletId, '--amount', String(amount), '--currency', 'NGN', '--environment', 'live'],
          ...['--reason', 'Soak', '--reference', reference, '--token-file', tokenFile, '--actor', 'soak'],
          ...['--services', await startedOperatorsUrl()],
        ];
        const status = attempt === 0 ? await killed(line) : (await ran(...line)).status;
        counts.commands += 1;
        if (status === 0) break;
        await wait(retryMilliseconds);
      }
      done.push({ kind: 'fund', walletId, amount, name: reference });
    }

    const ids = Array.from({ length: walletsOfEach - 1 }, () => crypto.randomUUID());
    wallets.push(await open(undefined, 'NGN'));
    for (const id of ids) wallets.push(await open(id, 'NGN'));

    let next = 0;
    const hasSeenEach = (): boolean => Math.min(counts.kills, counts.ended, counts.crashes) > 0;
    const client = async (): Promise<void> => {
      for (let number = next++; number < count || !hasSeenEach(); number = next++) {
        const kind = below(100);
        if (kind < 2) await open(ids[below(ids.length)], 'NGN');
        if (kind < 3) await command(number);
        else if (kind < 30) await move('fund', number);
        else if (kind < 50) await move('withdraw', number);
        else await pay(number);
        await wait(below(80));
      }
    };
    const working = { isOver: false };
    const killing = killer();
    await Promise.all(Array.from({ length: clients }, client));
    working.isOver = true;
    await killing;

    async function killer(): Promise<void> {
      for (let turn = 0; !working.isOver; turn += 1) {
        await wait(100 + below(900));
        const one = services[below(services.length)] ?? never();
        if (turn % 5 === 2) {
          counts.crashes += 1;
          await postgres.crash();
        } else if (turn % 2 === 0) {
          counts.kills += 1;
          await one.kill();
          await wait(below(300));
          await one.start();
        } else {
          counts.ended += 1;
          await postgres.endConnections();
        }
      }
    }

    const database = await openServicesDatabase({ url: postgres.url, pool: patient });
    t.teardown(() => database.destroy());
    await untilEnded(database);
    t.comment(JSON.stringify({ operations: next - clients, done: done.length, ...counts }));
    t.ok(hasSeenEach(), 'every process was killed');
    t.same(
      services.flatMap(({ endings }) => endings),
      [],
      'no services process ended without being killed',
    );
    t.ok(counts.cutOff > 0 && counts.repeated > 0, 'some requests were aborted and repeated');

    const check = new BalanceCheck({ database, now: () => 0 });
    await check.check();
    t.same(
      check.state,
      { mismatchedWallets: 0, unbalancedCurrencies: 0, checkedAt: 0 },
      'each balance equals the sum of its entries',
    );
    for (const walletId of wallets) {
      const { balance, isChain } = await booksOf(database, walletId);
      t.equal(balance, knownBalance(done, walletId), `${walletId}: the balance matches what the clients know`);
      t.ok(isChain, 'each entry starts from the balance that the previous one left');
    }
    const { byOperators, byPayouts } = await entriesOf(database);
    const known = (kinds: readonly Done['kind'][]): string[] =>
      done.filter(({ kind }) => kinds.includes(kind)).map(({ name }) => name);
    t.same(byOperators.toSorted(), known(['fund', 'withdraw']).toSorted(), 'no operation is lost or doubled');
    t.same(byPayouts.debits.toSorted(), known(['payout', 'lost payout']).toSorted(), 'each payout is debited once');
    t.same(byPayouts.credits.toSorted(), known(['lost payout']).toSorted(), 'each lost payout is refunded once');
  },
);

function atOperators(path: string): (one: ServicesProcess) => string | null {
  return ({ operatorsUrl }) => operatorsUrl && `${operatorsUrl}${path}`;
}

/** Runs a command line as a process, and kills it after a random time. Resolves with the status; null if killed. */
async function killed(line: readonly string[]): Promise<number | null> {
  const child = spawn(...productCommand(line), { stdio: 'ignore' });
  const killer = setTimeout(() => child.kill('SIGKILL'), 200 + below(1000));
  const [status] = (await once(child, 'exit')) as [number | null];
  clearTimeout(killer);
  return status;
}

function never(): never {
  throw new Error('there is always one');
}

async function startServices(t: Test, databaseUrl: string) {
  const directory = t.testdir();
  const config = path.join(directory, 'config.yaml');
  const tokenFile = path.join(directory, 'operators-token');
  await writeFile(tokenFile, operatorsToken, { mode: 0o600 });
  await writeFile(
    config,
    `services:
  listen: { port: 0 }
  database: { url: "${databaseUrl}" }
  operators: { listen: { port: 0 }, tokenFile: "${tokenFile}" }
  bank: { delaySeconds: 1 }
`,
  );
  await (await openServicesDatabase({ url: databaseUrl, pool: patient })).destroy();
  const services = Array.from({ length: processes }, () => new ServicesProcess(config));
  t.teardown(() => Promise.all(services.map((one) => one.kill())));
  for (const one of services) await one.start();
  return { services, tokenFile };
}

/** Waits until no payout is pending or processing. */
async function untilEnded(database: ServicesDatabase): Promise<void> {
  for (;;) {
    const open = await database.selectFrom('payouts').select('id').where('due_at', 'is not', null).execute();
    if (open.length === 0) return;
    await wait(200);
  }
}

function knownBalance(done: readonly Done[], walletId: string): number {
  const changes = { fund: 1, withdraw: -1, payout: -1, 'lost payout': 0 };
  return done
    .filter((one) => one.walletId === walletId)
    .reduce((sum, { kind, amount }) => sum + changes[kind] * amount, 0);
}

async function booksOf(database: ServicesDatabase, walletId: string) {
  const { balance } = await database
    .selectFrom('wallets')
    .select('balance')
    .where('id', '=', walletId)
    .executeTakeFirstOrThrow();
  const entries = await database
    .selectFrom('transactions')
    .selectAll()
    .where('wallet_id', '=', walletId)
    .orderBy('id')
    .execute();
  let sum = 0;
  const isChain = entries.every(
    (one) => (sum += one.type === 'credit' ? one.amount : -one.amount) === one.balance_after,
  );
  return { balance, isChain: isChain && sum === balance };
}

async function entriesOf(database: ServicesDatabase) {
  const entries = await database.selectFrom('transactions').selectAll().execute();
  const payouts = (type: 'credit' | 'debit'): string[] =>
    entries.flatMap((one) => (one.type === type && one.payout_id !== null ? [one.payout_id] : []));
  return {
    byOperators: entries.filter((one) => one.counter_account === 'float').map(({ reference }) => reference),
    byPayouts: { debits: payouts('debit'), credits: payouts('credit') },
  };
}
