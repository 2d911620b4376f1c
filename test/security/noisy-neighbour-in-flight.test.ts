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
/** Number of payouts of the modest merchant. `npm run soak:greed` sets a higher number. */
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
        // `memory` has room for a hundred incomplete bodies.
        limits: { connections, connectionsPerAddress: connections, memory: 67_108_864, handshakesPerSecond: 100_000 },
        upstreams: { payouts: { url: upstream.url, maxInFlight: 16 } },
      },
    });
    const greedy = new GreedyMerchant(gateway);
    t.teardown(() => {
      greedy.end();
    });
    await greedy.full();

    const agent = new https.Agent({ keepAlive: true, maxSockets: 8, ca: gateway.ca, localAddress: '127.0.0.3' });
    t.teardown(() => {
      agent.destroy();
    });
    const outcomes: Record<string, number> = {};
    let remaining = requests;
    const sendAll = async (): Promise<void> => {
      while (remaining > 0) {
        remaining -= 1;
        const outcome = await payOnce(agent, gateway.https);
        outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
      }
    };
    await Promise.all(Array.from({ length: 8 }, sendAll));
    t.same(outcomes, { 200: requests });
    const { merchant_share: closed = 0, memory: refused = 0 } = await countsByReason(gateway);
    t.ok(closed > 0, `the greedy merchant lost ${closed} connections to newcomers`);
    t.ok(refused > 0, `${refused} of its bodies were refused for lack of memory`);
  },
);

/** Sends a payout whose body comes in two parts. Resolves with the status, or with the error. */
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

/** A merchant that opens all connections, leaves bodies incomplete, and reconnects whenever one is closed. */
class GreedyMerchant {
  readonly #gateway: GatewayUnderTest;
  readonly #open = new Set<tls.TLSSocket>();
  /** Every connection, also one whose handshake has not ended. */
  readonly #all = new Set<net.Socket>();
  #isOver = false;

  constructor(gateway: GatewayUnderTest) {
    this.#gateway = gateway;
    for (let index = 0; index < connections + 20; index += 1) void this.#keepOpen(index);
  }

  /** Resolves when it holds nearly all connections. */
  async full(): Promise<void> {
    while (this.#open.size < connections - 10) await wait(5);
  }

  end(): void {
    this.#isOver = true;
    for (const socket of this.#all) socket.destroy();
  }

  async #keepOpen(index: number): Promise<void> {
    const { https: port, ca } = this.#gateway;
    while (!this.#isOver) {
      const tcp = net.connect({ port, host: '127.0.0.1', localAddress: '127.0.0.2' }).on('error', () => undefined);
      this.#all.add(tcp);
      const socket = tls.connect({ socket: tcp, ca, servername: 'localhost' }).on('error', () => undefined);
      const closed = new Promise((resolve) => socket.once('close', resolve));
      socket.once('secureConnect', () => {
        this.#open.add(socket);
        // A third of the connections is idle after a request. The others
        // send incomplete bodies, which together exceed the memory.
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
      this.#all.delete(tcp);
      await wait(20);
    }
  }
}

/** The gateway's counts of connections closed to make room, and of bodies refused for lack of memory, by reason. */
async function countsByReason(gateway: GatewayUnderTest): Promise<Record<string, number>> {
  const text = await (await fetch(`http://127.0.0.1:${gateway.management}/metrics`)).text();
  const lines = text.matchAll(/^gateway_(?:connections_evicted|bodies_refused)_total\{reason="(\w+)"\} (\d+)$/gm);
  return Object.fromEntries([...lines].map(([, reason = '', value]) => [reason, Number(value)]));
}
