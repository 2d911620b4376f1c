import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { freePort, type Teardown } from '../adapters/redis-server.js';

/**
 * What a relay does with bytes. `open`: passes them on. `cut`: closes connections and takes none. `lost`: swallows them, and closes
 * what has lost some when it opens again. `held`: keeps them, and delivers them when it opens again.
 */
export type Passage = 'open' | 'cut' | 'lost' | 'held';

/** Changes bytes that come from the server; their number stays the same. */
export type Rewrite = (bytes: Buffer) => Buffer;

/** One direction of a connection: what was sent and is yet to be delivered, in its order. */
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

  /** Delivers what was held. */
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

/** A port in front of another one, whose connections can be cut, silenced and delayed. */
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

  /** From now on each chunk arrives so many milliseconds later, either way. */
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
        // The other side does not learn of it while nothing gets through.
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
