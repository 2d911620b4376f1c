import { Socket } from 'node:net';
import type { OnReadOpts, SocketConstructorOpts } from 'node:net';

/** What Node's types do not tell of a socket: what it reads and writes with, and that another socket can be made of it. */
interface WithHandle {
  _handle?: object | null;
}

/** As much as Node reads at once. */
const buffer = Buffer.allocUnsafeSlow(64 * 1024);

/**
 * Has a connection that was just accepted, and has read nothing yet, read into one buffer that all connections share. Node
 * would make a buffer for each packet, and free it: 8 % of what a 401 costs. Node's `onread` spares that, but it is an
 * option of sockets, not of servers. Who listens to `data` has to copy what it keeps, as Node's own HTTP parser does.
 * @returns the connection: another socket on the same handle, or, if Node should not have one to give, as it was
 */
export function readIntoSharedBuffer(accepted: Socket): Socket {
  const { _handle: handle } = accepted as WithHandle;
  if (typeof handle !== 'object' || handle === null) return accepted;
  const options: SocketConstructorOpts & { readonly handle: object; readonly onread: OnReadOpts } = {
    handle,
    allowHalfOpen: accepted.allowHalfOpen,
    readable: true,
    writable: true,
    onread: {
      buffer,
      callback: (length) => {
        connection.emit('data', buffer.subarray(0, length));
        return true;
      },
    },
  };
  (accepted as WithHandle)._handle = null;
  const connection = new Socket(options);
  // Its server counts the first one, until that is gone.
  connection.once('close', () => accepted.destroy());
  return connection;
}
