import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { IpAddress } from '../../policy/ip-address.js';
import { cutAtKey } from '../../telemetry/mask-keys.js';
import { cut } from '../../telemetry/serialise.js';
import { parseRemoteAddress } from './client-address.js';

/** A connection's permit in the limits of its listener, as its requests use it. */
export interface ConnectionPermit {
  /** The socket to close on eviction: over TLS the TLS socket, once it exists. */
  socket: Socket;
  /** Whether the connection was evicted to make room for another one. */
  readonly isEvicted: boolean;
  /** Called when the head of a request has arrived. */
  requestBegan(): void;
  /** Called when the current request is accepted. @param hasBody whether its body is still to arrive */
  accepted(merchantId: string, hasBody: boolean): void;
  /** Called when the body of an accepted request has arrived, or enough of it to start forwarding. */
  bodyArrived(): void;
  /** Called when a request has ended, accepted or not. */
  requestEnded(): void;
}

/** Facts of a connection, shared by all of its requests. Read early, because a closed socket no longer has them. */
export interface ConnectionFacts {
  /**
   * The source address in the PROXY header, or the socket's peer without such a header. Null if the socket is closed.
   */
  readonly remote: IpAddress | null;
  /** The port of `remote`; null if unknown. */
  readonly port: number | null;
  /**
   * Whether forwarding headers are trusted if `remote` is a trusted proxy. False for a PROXY header without an address:
   * then `remote` is the load balancer, and the unknown client could choose its own address by X-Forwarded-For.
   */
  readonly mayForward: boolean;
  /** The connection's permit in the limits of its listener; null without a listener. */
  readonly place: ConnectionPermit | null;
  /** Null on a plain connection. */
  readonly tls: TlsFacts | null;
}

/** Result of a TLS handshake, in ECS field names. */
interface TlsFacts {
  readonly version: string | undefined;
  readonly version_protocol: 'tls';
  readonly cipher: string;
  /** The client's verified certificate; undefined if the client sent none. */
  readonly client?: { readonly subject: string; readonly hash: { readonly sha256: string } } | undefined;
}

/** Source of a connection, from its PROXY header or its socket. */
export type ConnectionOrigin = Pick<ConnectionFacts, 'remote' | 'port' | 'mayForward' | 'place'>;

/** The origin of a connection without a PROXY header. */
export function originOf(socket: Socket): ConnectionOrigin {
  const remote = parseRemoteAddress(socket.remoteAddress);
  return { remote, port: socket.remotePort ?? null, mayForward: true, place: null };
}

const known = new WeakMap<Socket, ConnectionFacts>();

/** Stores the facts of a connection before its first request, because a closed socket no longer has them. */
export function noteConnection(socket: Socket, origin: ConnectionOrigin): ConnectionFacts {
  const facts = { ...origin, tls: socket instanceof TLSSocket ? tlsFactsOf(socket) : null };
  known.set(socket, facts);
  return facts;
}

function tlsFactsOf(socket: TLSSocket): TlsFacts {
  const certificate = socket.getPeerX509Certificate();
  const client = certificate && {
    subject: cutAtKey(cut(certificate.subject.replaceAll('\n', ', '))),
    hash: { sha256: certificate.fingerprint256.replaceAll(':', '') },
  };
  // ECS wants only the number, `1.3` for `TLSv1.3`.
  const version = socket.getProtocol()?.replace('TLSv', '');
  return { version, version_protocol: 'tls', cipher: socket.getCipher().name, client };
}

/** Returns the facts of a connection, and reads them from the socket if none are stored. */
export function connectionFactsOf(socket: Socket): ConnectionFacts {
  return known.get(socket) ?? noteConnection(socket, originOf(socket));
}
