import { randomBytes } from 'node:crypto';
import type tls from 'node:tls';
import type { TLSSocket } from 'node:tls';
import { compileContexts, type SecureContexts, type TlsSettings } from './secure-contexts.js';
import type { TlsMaterial } from './tls-material.js';

/**
 * Maximum age of generated session ticket keys, in milliseconds. It is limited, because a leaked key exposes every
 * session that was encrypted with it.
 */
const ticketKeysMaxAge = 24 * 3_600_000;

/**
 * The certificates and keys of a listener. They can be replaced at run time, without effect on existing connections.
 */
export class TlsCredentials {
  #material: TlsMaterial;
  #contexts: SecureContexts;
  #ownTicketKeys = randomBytes(48);
  #ownTicketKeysSince = performance.now();
  readonly #settings: TlsSettings;
  readonly #servers: tls.Server[] = [];

  constructor(material: TlsMaterial, settings: TlsSettings) {
    this.#material = material;
    this.#settings = settings;
    this.#contexts = this.#compile(material);
  }

  get material(): TlsMaterial {
    return this.#material;
  }

  get contexts(): SecureContexts {
    return this.#contexts;
  }

  /**
   * Applies each later replacement of the certificates and keys to a server. The server must have been created with
   * `contexts.defaults`.
   */
  keepCurrent(server: tls.Server): void {
    this.#servers.push(server);
  }

  /**
   * Replaces the certificates and keys, starting with the next handshake.
   * @throws if OpenSSL rejects the new certificates or keys
   */
  replace(material: TlsMaterial): void {
    const contexts = this.#compile(material); // first, because it throws if OpenSSL rejects the new certificates
    this.#material = material;
    this.#contexts = contexts;
    for (const server of this.#servers) server.setSecureContext(contexts.defaults);
  }

  /** Replaces generated session ticket keys that have reached their maximum age. */
  renewTicketKeys(): void {
    const now = performance.now();
    if (now - this.#ownTicketKeysSince < ticketKeysMaxAge) return;
    this.#ownTicketKeys = randomBytes(48);
    this.#ownTicketKeysSince = now;
    this.replace(this.#material);
  }

  #compile(material: TlsMaterial): SecureContexts {
    return compileContexts(material, material.ticketKeys ?? this.#ownTicketKeys, this.#settings);
  }
}

/**
 * Whether the client sent an invalid certificate. With `request`, a client is allowed to omit its certificate, but a
 * certificate that it sends must be valid.
 */
export function showsBadCertificate(socket: TLSSocket, wanted: TlsSettings['clientCertificates']): boolean {
  return wanted === 'request' && !socket.authorized && Object.keys(socket.getPeerCertificate()).length > 0;
}
