import https from 'node:https';
import net from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import tls from 'node:tls';
import t from 'tap';
import { type GatewayUnderTest, liveKey, recordsOf, startTestGateway, startUpstream } from '../edge/harness.js';

const modestKey = 'svc_live_another_merchant';
const records = {
  ...recordsOf(liveKey),
  ...recordsOf(modestKey, { key: { keyId: 'key_2', merchantId: 'm_2' } }),
};
/** `npm run soak:greed` sends more. */
const requests = Number(process.env.IN_FLIGHT_REQUESTS ?? 600);
const connections = 160;

t.test(
  'noisy neighbour: a merchant that holds all connections and memory ends no request of another one',
  { timeout: 1_500_000 },
  async (t) => {
    const upstream = await startUpstream(t);
    upstream.respond = (_request, response) => setTimeout(() => response.end('{}'), 5);
    const gateway = await startTestGateway(t, {
      upstreamUrl: upstream.url,
      records,
      config: {
        // Room for a hundred bodies that do not arrive.
        limits: { connections, connectionsPerAddress: connections, memory: 67_108_864, handshakesPerSecond: 100_000 },
        upstreams: { payouts: { url: upstream.url, maxInFlight: 16 } },
      },
    });
    const greed = new Greed(gateway);
    t.teardown(() => {
      greed.end();
    });
    await greed.full();

    const agent = new https.Agent({ keepAlive: true, maxSockets: 8, ca: gateway.ca, localAddress: '127.0.0.3' });
    t.teardown(() => {
      agent.destroy();
    });
    const outcomes: Record<string, number> = {};
    let left = requests;
    const askOnAndOn = async (): Promise<void> => {
      while (left > 0) {
        left -= 1;
        const outcome = await payOnce(agent, gateway.https);
        outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
      }
    };
    await Promise.all(Array.from({ length: 8 }, askOnAndOn));
    t.same(outcomes, { 200: requests });
    const { merchant_share: closed = 0, memory: refused = 0 } = await counted(gateway);
    t.ok(closed > 0, `the greedy merchant lost ${closed} connections to newcomers`);
    t.ok(refused > 0, `and ${refused} bodies`);
  },
);

/** A payout whose body comes in two pieces; resolves with the status, or with what went wrong. */
async function payOnce(agent: https.Agent, port: number): Promise<string> {
  const headers = { 'x-api-key': modestKey, 'content-length': 2_000 };
  const request = https.request({ agent, port, servername: 'localhost', method: 'POST', path: '/v1/payouts', headers });
  request.write('x'.repeat(1_000));
  const responded = new Promise<string>((resolve) => {
    request.once('error', (error: NodeJS.ErrnoException) => {
      resolve(error.code ?? error.message);
    });
    request.once('response', (response) => {
      response.resume().once('close', () => {
        resolve(response.complete ? String(response.statusCode) : 'part of a response');
      });
    });
  });
  await wait(2);
  request.end('x'.repeat(1_000));
  return responded;
}

/** A merchant that takes all connections, begins bodies and does not end them, and comes again wherever it was closed. */
class Greed {
  readonly #gateway: GatewayUnderTest;
  readonly #open = new Set<tls.TLSSocket>();
  #isOver = false;

  constructor(gateway: GatewayUnderTest) {
    this.#gateway = gateway;
    for (let index = 0; index < connections + 20; index += 1) void this.#goOn(index);
  }

  /** Resolves when it holds nearly all connections. */
  async full(): Promise<void> {
    while (this.#open.size < connections - 10) await wait(5);
  }

  end(): void {
    this.#isOver = true;
    for (const socket of this.#open) socket.destroy();
  }

  async #goOn(index: number): Promise<void> {
    const { https: port, ca } = this.#gateway;
    while (!this.#isOver) {
      const below = net.connect({ port, host: '127.0.0.1', localAddress: '127.0.0.2' }).on('error', () => undefined);
      const socket = tls.connect({ socket: below, ca, servername: 'localhost' }).on('error', () => undefined);
      const closed = new Promise((resolve) => socket.once('close', resolve));
      socket.once('secureConnect', () => {
        this.#open.add(socket);
        // A third is idle after a request, the rest begins bodies that have no room together.
        if (index % 3 === 0)
          socket.write(`GET /v1/transactions HTTP/1.1\r\nhost: localhost\r\nx-api-key: ${liveKey}\r\n\r\n`);
        else {
          const head = `POST /v1/payouts HTTP/1.1\r\nhost: localhost\r\nx-api-key: ${liveKey}\r\ncontent-length: 65536\r\n\r\n`;
          socket.write(head + 'x'.repeat(65_000));
        }
      });
      socket.resume();
      await closed;
      this.#open.delete(socket);
      await wait(20);
    }
  }
}

/** Connections that the gateway closed to make room, and bodies that it had no memory for, by reason. */
async function counted(gateway: GatewayUnderTest): Promise<Record<string, number>> {
  const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  const lines = text.matchAll(/^gateway_(?:connections_evicted|bodies_refused)_total\{reason="(\w+)"\} (\d+)$/gm);
  return Object.fromEntries([...lines].map(([, reason = '', value]) => [reason, Number(value)]));
}
