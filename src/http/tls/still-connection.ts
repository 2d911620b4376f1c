import type { Socket } from 'node:net';

/** How often it is looked at whether a connection still moves, in milliseconds. */
const lookMilliseconds = 1_000;

/** What Node's types do not tell of a socket: the handle that counts its bytes, and the TCP socket below a TLS socket. */
interface WithHandle {
  readonly _handle?: {
    readonly bytesRead: number;
    readonly bytesWritten: number;
    readonly writeQueueSize: number;
  } | null;
  readonly _parent?: WithHandle;
}

/**
 * Looks each second at a TLS connection until it is closed: is it still? That is one which neither read nor wrote since the
 * last look, though nothing waits for its client to take it: one that is to write now never will. Node tells nobody of a
 * client who resets its connection while TLS writes something of its own, as the tickets of a session: what is to be written
 * behind that stays in TLS for good.
 * @param onLook told when all is written that this turn of the event loop has to write
 * @returns ends the looking
 */
export function watchStillness(socket: Socket, onLook: (isStill: boolean) => void): () => void {
  let moved = -1;
  let look: NodeJS.Immediate | undefined;
  const lookNow = (): void => {
    const tcp = (socket as WithHandle)._parent?._handle;
    if (tcp === undefined || tcp === null) return; // it is closed
    const bytes = tcp.bytesRead + tcp.bytesWritten;
    onLook(bytes === moved && tcp.writeQueueSize === 0);
    moved = bytes;
  };
  const looks = setInterval(() => {
    look = setImmediate(lookNow);
  }, lookMilliseconds);
  return () => {
    clearInterval(looks);
    clearImmediate(look);
  };
}

/** Whether TLS has something that it did not give to TCP yet. */
export function waitsInTls(socket: Socket): boolean {
  return ((socket as WithHandle)._handle?.writeQueueSize ?? 0) > 0;
}
