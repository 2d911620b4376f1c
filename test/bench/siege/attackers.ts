import { once } from 'node:events';
import type net from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as wait } from 'node:timers/promises';
import tls from 'node:tls';

// A child process that acts as clients without a key. They keep connections idle, send bodies byte by byte, and repeat
// handshakes. The process reads one line of JSON (an Attack), prints "full" once its connections are open, and prints
// its counts (Reached) when its input ends.

/**
 * The size of an attack: the number of loopback addresses, of idle connections and of connections with an incomplete
 * body, and the rates.
 */
export interface Attack {
  readonly port: number;
  readonly addresses: number;
  readonly idle: number;
  readonly bodies: number;
  readonly handshakesPerSecond: number;
  /** Highest rate of new connections per second. */
  readonly opensPerSecond: number;
  /** Longest duration in seconds, even if the input stays open. */
  readonly seconds: number;
}

/** The results of the attack. */
export interface Reached {
  readonly idle: number;
  readonly bodies: number;
  readonly opened: number;
  readonly closedByOthers: number;
  readonly handshakes: number;
  readonly refusedHandshakes: number;
}

const bodyOf =
  'POST /v1/transactions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n';
const trickleMilliseconds = 1000;
const handshakeMilliseconds = 5000;

class Attackers {
  readonly #attack: Attack;
  readonly #counts = { opened: 0, closedByOthers: 0, handshakes: 0, refusedHandshakes: 0 };
  readonly #open = { idle: new Set<net.Socket>(), bodies: new Set<net.Socket>() };
  #next = 0;

  constructor(attack: Attack) {
    this.#attack = attack;
  }

  get reached(): Reached {
    return { ...this.#counts, idle: this.#open.idle.size, bodies: this.#open.bodies.size };
  }

  /**
   * Keeps the wanted number of connections open: replaces those that the gateway closes. Calls `onFull` once all are
   * open, or after 1.5 times as many attempts.
   */
  async keepOpen(onFull: () => void): Promise<void> {
    const { idle, bodies, opensPerSecond } = this.#attack;
    let hasBeenFull = false;
    const each = Math.max(Math.ceil(opensPerSecond / 20), 1);
    for (let attempts = 0; ; attempts += each) {
      await wait(50);
      const missing = { idle: idle - this.#open.idle.size, bodies: bodies - this.#open.bodies.size };
      const forBodies = Math.min(missing.bodies, Math.ceil(each / 2));
      for (let count = 0; count < forBodies; count += 1) this.#trickle();
      for (let count = 0; count < Math.min(missing.idle, each - forBodies); count += 1) this.#idle();
      if (hasBeenFull || ((missing.idle > 0 || missing.bodies > 0) && attempts < 1.5 * (idle + bodies))) continue;
      hasBeenFull = true;
      onFull();
    }
  }

  async shakeHands(): Promise<void> {
    const { handshakesPerSecond } = this.#attack;
    if (handshakesPerSecond === 0) return;
    const begun = performance.now();
    for (let count = 0; ;) {
      await wait(20);
      const due = ((performance.now() - begun) / 1000) * handshakesPerSecond;
      for (; count < due; count += 1) this.#shake();
    }
  }

  #where(): { port: number; host: string; localAddress: string } {
    const number = this.#next++ % this.#attack.addresses;
    const localAddress = `127.1.${Math.floor(number / 250)}.${(number % 250) + 1}`;
    return { port: this.#attack.port, host: '127.0.0.1', localAddress };
  }

  /**
   * Opens a connection and sends one request without a key. After the gateway has rejected a request, it lets the
   * connection idle longer than a connection without any request.
   */
  #idle(): void {
    const socket = tls.connect({ ...this.#where(), rejectUnauthorized: false });
    this.#hold(this.#open.idle, socket);
    socket.once('secureConnect', () => {
      socket.write('GET /v1/transactions HTTP/1.1\r\nhost: localhost\r\n\r\n');
    });
  }

  #trickle(): void {
    const socket = tls.connect({ ...this.#where(), rejectUnauthorized: false });
    this.#hold(this.#open.bodies, socket);
    socket.once('secureConnect', () => {
      socket.write(bodyOf);
      const timer = setInterval(() => {
        socket.write(' ');
      }, trickleMilliseconds);
      socket.once('close', () => {
        clearInterval(timer);
      });
    });
  }

  #hold(sockets: Set<net.Socket>, socket: net.Socket): void {
    this.#counts.opened += 1;
    sockets.add(socket);
    socket.on('error', () => undefined).resume();
    socket.once('close', () => {
      sockets.delete(socket);
      this.#counts.closedByOthers += 1;
    });
  }

  #shake(): void {
    const socket = tls.connect({ ...this.#where(), rejectUnauthorized: false });
    socket.setTimeout(handshakeMilliseconds, () => socket.destroy());
    let isDone = false;
    socket.on('error', () => undefined);
    socket.once('secureConnect', () => {
      isDone = true;
      socket.destroy();
    });
    socket.once('close', () => {
      this.#counts[isDone ? 'handshakes' : 'refusedHandshakes'] += 1;
    });
  }
}

const lines = createInterface({ input: process.stdin });
const [line] = (await once(lines, 'line')) as [string];
const attackers = new Attackers(JSON.parse(line) as Attack);
const ended = Promise.race([once(lines, 'close'), wait((JSON.parse(line) as Attack).seconds * 1000)]);
void attackers.keepOpen(() => {
  process.stdout.write('full\n');
});
void attackers.shakeHands();
await ended;
process.stdout.write(`${JSON.stringify(attackers.reached)}\n`, () => process.exit(0));
