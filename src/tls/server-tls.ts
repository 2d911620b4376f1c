import { isIP } from 'node:net';
import type { Server, TlsOptions } from 'node:tls';
import type { Certificate } from './certificate.js';
import { showsBadCertificate, TlsCredentials } from './credentials.js';
import { readTlsMaterial, type TlsFiles } from './tls-material.js';
import { TlsReload } from './tls-reload.js';

/** Receives messages about replaced certificates, and warnings about certificates. */
interface ServerTlsLog {
  info(details: object, message: string): void;
  warn(details: object, message: string): void;
  error(details: object, message: string): void;
}

const reloadSeconds = 10;
const handshakeTimeoutMilliseconds = 10_000;

/**
 * TLS of the listener of the admin API, the console or the operators' API. Allows only HTTP/1.1, and reloads
 * certificates when their files change.
 */
export class ServerTls {
  readonly #credentials: TlsCredentials;
  readonly #reload: TlsReload;
  readonly #clientCertificates: 'none' | 'request';

  private constructor(credentials: TlsCredentials, reload: TlsReload, clientCertificates: 'none' | 'request') {
    this.#credentials = credentials;
    this.#reload = reload;
    this.#clientCertificates = clientCertificates;
  }

  /**
   * Reads the files, and then checks them for changes every 10 seconds until `stop`. Without `clientCaFile`, no client
   * certificates are requested.
   * @param option the configuration option of the listener, for the log
   * @throws OperatorError for an unusable file
   */
  static async open(
    files: Pick<TlsFiles, 'certFile' | 'keyFile' | 'clientCaFile'>,
    option: 'registry.listen' | 'registry.console.listen' | 'services.operators.listen',
    clock: { now(): number },
    log?: ServerTlsLog,
  ): Promise<ServerTls> {
    const clientCertificates = files.clientCaFile === null ? 'none' : 'request';
    const all = { ...files, certificates: [], ticketKeysFile: null };
    const credentials = new TlsCredentials(await readTlsMaterial(all), { minVersion: 'TLSv1.2', clientCertificates });
    const reload = new TlsReload(credentials, all, clock, {
      changed: ({ result, problem }) => {
        if (result === 'refused') {
          log?.error({ option, problem }, 'the new certificate cannot be used; the previous one stays in use');
        } else if (result === 'replaced') log?.info({ option }, 'the new certificate is in use');
        else log?.info({ option }, 'the certificate files are valid again and match the certificate in use');
      },
      warn: (warning, isOver) => {
        log?.[isOver ? 'error' : 'warn']({ option }, warning);
      },
    });
    reload.warn();
    reload.start(reloadSeconds);
    return new ServerTls(credentials, reload, clientCertificates);
  }

  /** Options for the constructor of the server. The server must then be passed to `serve`. */
  get options(): TlsOptions {
    return {
      ...this.#credentials.contexts.defaults,
      ALPNProtocols: ['http/1.1'],
      handshakeTimeout: handshakeTimeoutMilliseconds,
      requestCert: this.#clientCertificates === 'request',
      rejectUnauthorized: false,
    };
  }

  /** Applies certificate changes to a server, and closes connections whose client certificate is invalid. */
  serve(server: Server): void {
    this.#credentials.keepCurrent(server);
    server.prependListener('secureConnection', (socket) => {
      if (showsBadCertificate(socket, this.#clientCertificates)) socket.destroy();
    });
  }

  /** The certificate in use. */
  get certificate(): Certificate {
    return this.#credentials.material.certificates[0];
  }

  /** Why the files were unusable at the last check; null if they were usable. */
  get problem(): string | null {
    return this.#reload.problem;
  }

  /**
   * Whether the certificate in use covers a host.
   * @param host a DNS name in lower case, or an IP address without brackets
   */
  covers(host: string): boolean {
    const { x509 } = this.certificate;
    return (isIP(host) === 0 ? x509.checkHost(host, { subject: 'never' }) : x509.checkIP(host)) !== undefined;
  }

  /** Checks the files now. Resolves when changed files are in use or were rejected. */
  check(): Promise<void> {
    return this.#reload.check();
  }

  /** Stops checking the files for changes. */
  stop(): Promise<void> {
    return this.#reload.stop();
  }
}
