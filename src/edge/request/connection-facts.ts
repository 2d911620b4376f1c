import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { IpAddress } from '../../policy/ip-address.js';
import { cutAtKey } from '../../telemetry/mask-keys.js';
import { cut } from '../../telemetry/serialise.js';
import { parseRemoteAddress } from './client-address.js';

/** The place of a connection in the limits of its listener, as far as its requests have to do with it. */
export interface Place {
  /** What is closed for another connection: over TLS the TLS socket, once there is one. */
  socket: Socket;
  /** Whether it was closed to make room for another connection. */
  readonly isEvicted: boolean;
  /** The head of a request has arrived. */
  requestBegan(): void;
  /** The current request is accepted. @param hasBody whether one is still to come */
  accepted(merchantId: string, hasBody: boolean): void;
  /** The body of an accepted request has arrived, or so much of it that it is sent. */
  bodyArrived(): void;
  /** A request is over, whether it was accepted or not. */
  requestEnded(): void;
}

/** What a connection is; the same for all of its requests. Asked early, because a closed socket knows it no more. */
export interface ConnectionFacts {
  /** The remote address: the source that a PROXY header names, or else the socket's peer. Null where it is gone already. */
  readonly remote: IpAddress | null;
  /** Its port; null where it is not known. */
  readonly port: number | null;
  /**
   * Whether forwarding headers may be believed if `remote` is a trusted proxy. Not so where a PROXY header named nobody:
   * the balancer's own address stands there for a client that it does not know, who would else choose one.
   */
  readonly mayForward: boolean;
  /** Its place in the limits of its listener; null where there is no listener. */
  readonly place: Place | null;
  /** Null on a plain connection. */
  readonly tls: TlsFacts | null;
}

/** What the handshake of a connection led to, in ECS field names. */
interface TlsFacts {
  readonly version: string | undefined;
  readonly version_protocol: 'tls';
  readonly cipher: string;
  /** The client's own certificate, verified; undefined where it showed none. */
  readonly client?: { readonly subject: string; readonly hash: { readonly sha256: string } } | undefined;
}

/** Where a connection comes from, as its first bytes and its socket say. */
export type ConnectionOrigin = Pick<ConnectionFacts, 'remote' | 'port' | 'mayForward' | 'place'>;

/** The origin of a connection without a PROXY header. */
export function originOf(socket: Socket): ConnectionOrigin {
  const remote = parseRemoteAddress(socket.remoteAddress);
  return { remote, port: socket.remotePort ?? null, mayForward: true, place: null };
}

const known = new WeakMap<Socket, ConnectionFacts>();

/** Notes where a connection comes from, before it carries its first request. */
export function noteConnection(socket: Socket, origin: ConnectionOrigin): ConnectionFacts {
  const facts = { ...origin, tls: socket instanceof TLSSocket ? tlsFactsOf(socket) : null };
  known.set(socket, facts);
  return facts;
}

function tlsFactsOf(socket: TLSSocket): TlsFacts {
  const certificate = socket.getPeerX509Certificate();
  const client = certificate && {
    subject: cut(cutAtKey(certificate.subject.replaceAll('\n', ', '))),
    hash: { sha256: certificate.fingerprint256.replaceAll(':', '') },
  };
  // ECS has the number alone, of `TLSv1.3`.
  const version = socket.getProtocol()?.replace('TLSv', '');
  return { version, version_protocol: 'tls', cipher: socket.getCipher().name, client };
}

/** The facts of a connection. */
export function connectionFactsOf(socket: Socket): ConnectionFacts {
  return known.get(socket) ?? noteConnection(socket, originOf(socket));
}
