import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { parseRemoteAddress } from './client-address.js';

/** What a connection was, for the log; asked while it lives, because a closed socket knows it no more. */
export interface ConnectionFacts {
  readonly remoteAddress: string | undefined;
  /** Null on a plain connection. */
  readonly tls: { readonly version: string | null; readonly cipher: string } | null;
}

const known = new WeakMap<Socket, ConnectionFacts>();

/** The facts of a connection; they are the same for all of its requests. */
export function connectionFactsOf(socket: Socket): ConnectionFacts {
  const before = known.get(socket);
  if (before !== undefined) return before;
  const facts: ConnectionFacts = {
    remoteAddress: parseRemoteAddress(socket.remoteAddress)?.text,
    tls: socket instanceof TLSSocket ? { version: socket.getProtocol(), cipher: socket.getCipher().name } : null,
  };
  known.set(socket, facts);
  return facts;
}
