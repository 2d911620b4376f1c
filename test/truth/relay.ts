import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { freePort, type Teardown } from '../adapters/redis-server.js';

/**
 * The state of a relay. `open`: forwards bytes. `cut`: closes connections and accepts none. `lost`: discards bytes, and
 * on reopening closes the connections that lost some. `held`: buffers bytes, and delivers them on reopening.
 */
export type Passage = 'open' | 'cut' | 'lost' | 'held';

/** Rewrites bytes from the server, without changing their number. */
export type Rewrite = (bytes: Buffer) => Buffer;

/** One direction of a connection: the sent but undelivered bytes, in order. */
class Lane {
  readonly #to: Socket;
  readonly #waiting: { readonly bytes: Buffer; readonly due: number }[] = [];
  #timer: NodeJS.Timeout | null = null;

  constructor(to: Socket) {
    this.#to = to;
  }

  send(bytes: Buffer, delay: number, isHeld: boolean): void {
    if (!isHeld && delay === 0 && this.#waiting.length === 0) this.#to.write(bytes);
    else {
      this.#waiting.push({ bytes, due: isHeld ? Infinity : performance.now() + delay });
      this.#schedule();
    }
  }

  /** Delivers the buffered bytes. */
  release(): void {
    for (const { bytes } of this.#waiting.splice(0)) this.#to.write(bytes);
  }

  #schedule(): void {
    const [first] = this.#waiting;
    if (this.#timer !== null || first === undefined || first.due === Infinity) return;
    this.#timer = setTimeout(
      () => {
        this.#timer = null;
        while (this.#waiting[0] !== undefined && this.#waiting[0].due <= performance.now()) {
          const next = this.#waiting.shift();
          if (next !== undefined) this.#to.write(next.bytes);
        }
        this.#schedule();
      },
      Math.max(first.due - performance.now(), 0),
    );
  }
}

interface Connection {
  readonly sockets: readonly [Socket, Socket];
  readonly lanes: readonly [Lane, Lane];
  hasLost: boolean;
}

/** A TCP relay in front of a port; its connections can be cut, silenced and delayed. */
export class Relay {
  readonly port: number;
  readonly #target: () => number;
  readonly #rewrite: Rewrite | null;
  readonly #connections = new Set<Connection>();
  #passage: Passage = 'open';
  #delay = 0;

  private constructor(port: number, target: () => number, rewrite: Rewrite | null) {
    this.port = port;
    this.#target = target;
    this.#rewrite = rewrite;
  }

  static async open(t: Teardown, target: () => number, rewrite: Rewrite | null = null): Promise<Relay> {
    const relay = new Relay(await freePort(), target, rewrite);
    const server = net.createServer((socket) => {
      relay.#accept(socket);
    });
    await once(server.listen(relay.port, '127.0.0.1'), 'listening');
    t.teardown(() => {
      server.close();
      relay.set('cut');
    });
    return relay;
  }

  set(passage: Passage): void {
    this.#passage = passage;
    for (const connection of this.#connections) {
      if (passage === 'cut' || (passage === 'open' && connection.hasLost)) this.#close(connection);
      else if (passage === 'open') for (const lane of connection.lanes) lane.release();
    }
  }

  /** Delays each chunk by this many milliseconds from now on, in both directions. */
  delay(milliseconds: number): void {
    this.#delay = milliseconds;
  }

  #accept(socket: Socket): void {
    if (this.#passage === 'cut') {
      socket.destroy();
      return;
    }
    const behind = net.connect(this.#target(), '127.0.0.1');
    const connection: Connection = {
      sockets: [socket, behind],
      lanes: [new Lane(behind), new Lane(socket)],
      hasLost: false,
    };
    this.#connections.add(connection);
    const [ahead, back] = connection.lanes;
    socket.on('data', (bytes: Buffer) => {
      this.#pass(connection, ahead, bytes);
    });
    behind.on('data', (bytes: Buffer) => {
      this.#pass(connection, back, this.#rewrite === null ? bytes : this.#rewrite(bytes));
    });
    for (const one of connection.sockets) {
      one.setNoDelay(true);
      one.on('error', () => undefined);
      one.on('close', () => {
        // The other side must not see the close while the relay blocks all traffic.
        if (this.#passage === 'lost' || this.#passage === 'held') connection.hasLost = true;
        else this.#close(connection);
      });
    }
  }

  #pass(connection: Connection, lane: Lane, bytes: Buffer): void {
    if (this.#passage === 'lost') connection.hasLost = true;
    else lane.send(bytes, this.#delay, this.#passage === 'held');
  }

  #close(connection: Connection): void {
    this.#connections.delete(connection);
    destroy(connection);
  }
}

function destroy({ sockets }: Connection): void {
  for (const socket of sockets) socket.destroy();
}
