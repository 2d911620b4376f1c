import type { Config } from '../../config/schema.js';
import type { Clock } from '../../gateway/ports.js';
import { TlsEndpoint } from './tls-endpoint.js';
import { readTlsMaterial } from '../../tls/tls-material.js';
import { TlsReload } from '../../tls/tls-reload.js';
import type { CertificateChange } from '../../tls/tls-reload.js';

/** The TLS endpoint of a listener, and the periodic reload of its files. */
export interface OpenTls {
  readonly endpoint: TlsEndpoint;
  readonly reload: TlsReload;
  /** Headers that are added to every response over TLS. */
  readonly ownHeaders: Readonly<Record<string, string>>;
}

/**
 * Creates the TLS endpoint that `https` configures, and starts the periodic reload of its files.
 * @throws OperatorError for an unusable file
 */
export async function openTls(
  https: NonNullable<Config['listen']['https']>,
  handshakeTimeoutSeconds: number,
  clock: Clock,
  onChange: (change: CertificateChange) => void,
  warn: (warning: string, isOver: boolean) => void = () => undefined,
): Promise<OpenTls> {
  const { minVersion, clientCertificates, strictTransportSecuritySeconds: seconds } = https;
  const settings = { minVersion, clientCertificates, handshakeTimeoutSeconds };
  const endpoint = new TlsEndpoint(await readTlsMaterial(https), settings);
  const reload = new TlsReload(endpoint, https, clock, { changed: onChange, warn });
  reload.warn();
  reload.start(https.reloadSeconds);
  // Clients ignore this header over plain HTTP (RFC 6797 8.1).
  const ownHeaders = seconds === 0 ? {} : { 'strict-transport-security': `max-age=${seconds}` };
  return { endpoint, reload, ownHeaders };
}
