import { constants, createHash } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { SecureContext, SecureContextOptions } from 'node:tls';
import { covers } from './certificate.js';
import type { Certificate } from './certificate.js';
import type { TlsMaterial } from './tls-material.js';

/** Whether clients are asked for a certificate of their own: not at all, or one that is valid if there is one, or always. */
type ClientCertificates = 'none' | 'request' | 'require';

/** What TLS is beside its files. */
export interface TlsSettings {
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  readonly clientCertificates: ClientCertificates;
}

/** Forward secrecy and authenticated encryption alone. */
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
 * Cheap groups alone, with post-quantum keys beside one where OpenSSL has them. By itself it also takes P-384 and P-521, which
 * cost the event loop three and six times as much as X25519, and the finite-field groups of TLS 1.3, which cost up to a
 * hundred times as much; a client that sends recorded bytes pays nothing. Every TLS library has one of these.
 */
const groups = ['X25519MLKEM768', 'X25519', 'P-256'].filter(isKnownGroup).join(':');

/** How long a session can be resumed, in seconds. */
const sessionTimeout = 3_600;

/** The contexts that handshakes are made with. */
export interface SecureContexts {
  /** For whoever names no host, or one that no certificate covers. */
  readonly defaults: SecureContextOptions;
  /** By the host that a client names (SNI); undefined: the default one. */
  find(serverName: string): SecureContext | undefined;
}

/** Makes the contexts of TLS's material: for each name, one certificate of each type of key that covers it. */
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

/** Whether OpenSSL has a group. One that it does not know would have it refuse the whole list. */
function isKnownGroup(name: string): boolean {
  try {
    createSecureContext({ ecdhCurve: name });
    return true;
  } catch {
    return false;
  }
}

/** The certificates that cover a name, those that name it itself before wildcards. */
function exactFirst(certificates: readonly Certificate[], name: string): Certificate[] {
  const covering = certificates.filter((one) => covers(one, name));
  return [...covering.filter(({ names }) => names.includes(name)), ...covering];
}

/** Whether a certificate can stand for another one towards clients that take another type of key. */
function isTwin(one: Certificate, { names }: Certificate): boolean {
  return names.length > 0 && names.every((name) => covers(one, name));
}

function onePerKeyType(certificates: readonly Certificate[]): Certificate[] {
  return certificates.filter(
    (one, index) => certificates.findIndex(({ keyType }) => keyType === one.keyType) === index,
  );
}

/**
 * Sessions are resumed only where clients are asked for the same. A ticket of a gateway that shares the keys, but asks
 * for no certificate, would else stand for one.
 */
function sessionIdContextOf({ clientCa }: TlsMaterial, { clientCertificates }: TlsSettings): string {
  return createHash('sha256')
    .update(`merchant-gateway\0${clientCertificates}\0`)
    .update(clientCa ?? '')
    .digest('hex')
    .slice(0, 32); // OpenSSL takes no more
}
