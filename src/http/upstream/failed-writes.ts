import type { Socket } from 'node:net';

type Done = (error?: Error | null) => void;

/** The other side has closed or reset the connection. */
const gone: ReadonlySet<unknown> = new Set(['EPIPE', 'ECONNRESET']);

/**
 * Has a socket be read to its end where a write says that the other side is gone. Node would destroy it, and with it what
 * lies there unread: the answer of a service that did not want the rest of a body. Nothing is written from then on: to Node
 * that write is never over.
 * @param onFailed told of it
 */
export function outliveFailedWrites(socket: Socket, onFailed: () => void): void {
  const watched =
    (done: Done): Done =>
    (error) => {
      if (gone.has((error as NodeJS.ErrnoException | null | undefined)?.code)) onFailed();
      else done(error);
    };
  const write = socket._write.bind(socket);
  const writeWatched: Socket['_write'] = (chunk, encoding, done) => {
    write(chunk, encoding, watched(done));
  };
  socket._write = writeWatched;
  const writev = socket._writev?.bind(socket);
  if (writev === undefined) return;
  const writevWatched: typeof writev = (chunks, done) => {
    writev(chunks, watched(done));
  };
  socket._writev = writevWatched;
}
