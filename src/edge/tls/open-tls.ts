import type { Config } from '../../config/schema.js';
import type { Clock } from '../../gateway/ports.js';
import { TlsEndpoint } from './tls-endpoint.js';
import { readTlsMaterial } from './tls-material.js';
import { TlsReload } from './tls-reload.js';
import type { CertificateChange } from './tls-reload.js';

/** The TLS of a listener, and what keeps it up to date. */
export interface OpenTls {
  readonly endpoint: TlsEndpoint;
  readonly reload: TlsReload;
  /** What every response over it has. */
  readonly ownHeaders: Readonly<Record<string, string>>;
}

/**
 * Opens the TLS that the configuration describes, and looks after its files from then on.
 * @throws OperatorError for a file that cannot be used
 */
export async function openTls(
  https: NonNullable<Config['listen']['https']>,
  handshakeTimeoutSeconds: number,
  clock: Clock,
  tell: (change: CertificateChange) => void,
  warn: (warning: string, isOver: boolean) => void = () => undefined,
): Promise<OpenTls> {
  const { minVersion, clientCertificates, strictTransportSecuritySeconds: seconds } = https;
  const settings = { minVersion, clientCertificates, handshakeTimeoutSeconds };
  const endpoint = new TlsEndpoint(await readTlsMaterial(https), settings);
  const reload = new TlsReload(endpoint, https, clock, { changed: tell, warn });
  reload.warn();
  reload.start(https.reloadSeconds);
  // RFC 6797 8.1: a client ignores it where it did not come over TLS.
  const ownHeaders = seconds === 0 ? {} : { 'strict-transport-security': `max-age=${seconds}` };
  return { endpoint, reload, ownHeaders };
}
