import { constants, createHash } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { SecureContext, SecureContextOptions } from 'node:tls';
import { covers } from './certificate.js';
import type { Certificate } from './certificate.js';
import type { TlsMaterial } from './tls-material.js';

/** How client certificates are handled: not requested, requested and verified if present, or required. */
type ClientCertificates = 'none' | 'request' | 'require';

/** TLS settings other than the certificate and key files. */
export interface TlsSettings {
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  readonly clientCertificates: ClientCertificates;
}

/** The cipher suites: only those with forward secrecy and authenticated encryption. */
const ciphers = [
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
].join(':');

/**
 * The key exchange groups: only those that cost little CPU, including a post-quantum hybrid if OpenSSL supports it.
 * OpenSSL's defaults include expensive groups. P-384 costs three times as much CPU as X25519, P-521 six times, and the
 * finite-field groups of TLS 1.3 up to a hundred times. An attacker who replays recorded bytes could cause this cost
 * for free. Every TLS library supports at least one of the groups in this list.
 */
const groups = ['X25519MLKEM768', 'X25519', 'P-256'].filter(isKnownGroup).join(':');

/** How long a session can be resumed, in seconds. */
const sessionTimeout = 3_600;

/** The TLS contexts for handshakes. */
export interface SecureContexts {
  /** Options for clients without SNI, or with a name that no certificate covers. */
  readonly defaults: SecureContextOptions;
  /** Returns the context for a server name (SNI); undefined if the defaults apply. */
  find(serverName: string): SecureContext | undefined;
}

/** Compiles the TLS contexts. Each server name gets one certificate per key type. */
export function compileContexts(material: TlsMaterial, ticketKeys: Buffer, settings: TlsSettings): SecureContexts {
  const { certificates, clientCa } = material;
  const [main] = certificates;
  const optionsFor = (chosen: readonly Certificate[]): SecureContextOptions => ({
    cert: chosen.map(({ cert }) => cert),
    key: chosen.map(({ key }) => key),
    ...(clientCa === null ? {} : { ca: clientCa }),
    ciphers,
    ecdhCurve: groups,
    honorCipherOrder: true,
    minVersion: settings.minVersion,
    secureOptions: constants.SSL_OP_NO_RENEGOTIATION | constants.SSL_OP_NO_COMPRESSION,
    ticketKeys,
    sessionTimeout,
    sessionIdContext: sessionIdContextOf(material, settings),
  });
  const twins = certificates.filter((one) => one === main || isTwin(one, main));
  const contexts = new Map<string, SecureContext>();
  const bySet = new Map<string, SecureContext>();
  for (const name of new Set(certificates.flatMap(({ names }) => names))) {
    const chosen = onePerKeyType(exactFirst(certificates, name));
    const set = chosen.map((one) => certificates.indexOf(one)).join();
    const context = bySet.get(set) ?? createSecureContext(optionsFor(chosen));
    bySet.set(set, context);
    contexts.set(name, context);
  }
  return {
    defaults: optionsFor(onePerKeyType(twins)),
    find: (serverName) => {
      const name = serverName.toLowerCase();
      return contexts.get(name) ?? contexts.get(`*${name.slice(Math.max(name.indexOf('.'), 0))}`);
    },
  };
}

/** Whether OpenSSL supports a group. OpenSSL rejects the whole list if one group is unknown. */
function isKnownGroup(name: string): boolean {
  try {
    createSecureContext({ ecdhCurve: name });
    return true;
  } catch {
    return false;
  }
}

/** Returns the certificates that cover a name, exact matches before wildcards. */
function exactFirst(certificates: readonly Certificate[], name: string): Certificate[] {
  const covering = certificates.filter((one) => covers(one, name));
  return [...covering.filter(({ names }) => names.includes(name)), ...covering];
}

/**
 * Whether the certificate `one` covers all names of another certificate. It can then replace the other certificate for
 * clients that support only the key type of `one`.
 */
function isTwin(one: Certificate, { names }: Certificate): boolean {
  return names.length > 0 && names.every((name) => covers(one, name));
}

function onePerKeyType(certificates: readonly Certificate[]): Certificate[] {
  return certificates.filter(
    (one, index) => certificates.findIndex(({ keyType }) => keyType === one.keyType) === index,
  );
}

/**
 * Returns the session id context, which binds a session to the client certificate settings. Otherwise a client could
 * resume a session here without a client certificate: with a ticket from another gateway, which has the same ticket
 * keys but requires no certificate.
 */
function sessionIdContextOf({ clientCa }: TlsMaterial, { clientCertificates }: TlsSettings): string {
  return createHash('sha256')
    .update(`merchant-gateway\0${clientCertificates}\0`)
    .update(clientCa ?? '')
    .digest('hex')
    .slice(0, 32); // the maximum length in OpenSSL
}
