import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import type { FastifyInstance } from 'fastify';
import { asListenError, OperatorError } from '../../config/operator-error.js';
import type { Clock, Logger } from '../../gateway/store-ports.js';
import { ServerTls } from '../../tls/server-tls.js';
import type { ConsoleSettings, MerchantApi } from './create-console.js';

/** Where the console listens (`registry.console`). */
export interface ConsoleStart {
  readonly listen: {
    readonly host: string;
    /** Port; 0 selects any free port. */
    readonly port: number;
    /** PEM file of the certificate; null: plain HTTP. */
    readonly certFile: string | null;
    /** PEM file of the certificate's private key; null: plain HTTP. */
    readonly keyFile: string | null;
  };
  /** The origin of the console in browsers' URLs; null: the scheme, address and port of the listener. */
  readonly origin: string | null;
  /**
   * Returns the addresses at which merchants reach the gateways. This is a function, because the command `dev` knows
   * the addresses only after the console has started.
   */
  readonly merchantApi: () => MerchantApi;
}

/** The directory with the built `src/console`: `index.html` and `assets`. */
const directory = fileURLToPath(new URL('../../console', import.meta.url));

/**
 * The settings of a console that does not listen yet. If no origin is configured, `listenConsole` sets the origin when
 * the port is known.
 */
interface OpenedConsole extends ConsoleSettings {
  readonly setOrigin: (origin: string) => void;
}

/** Reads the certificate and the settings of the console. @throws OperatorError for an unusable file */
export async function openConsole(
  { listen: { certFile, keyFile }, origin: configured, merchantApi }: ConsoleStart,
  shared: {
    readonly behindProxy: readonly string[] | null;
    readonly clock: Clock;
    readonly logger: Logger | undefined;
  },
): Promise<OpenedConsole> {
  const tls =
    certFile === null || keyFile === null
      ? null
      : await ServerTls.open(
          { certFile, keyFile, clientCaFile: null },
          'registry.console.listen',
          shared.clock,
          shared.logger,
        );
  let origin = configured;
  return {
    ...{ directory, merchantApi, tls, behindProxy: shared.behindProxy },
    origin: () => {
      if (origin === null) throw new OperatorError('The console does not listen yet.');
      return origin;
    },
    setOrigin: (listening) => {
      origin ??= listening;
    },
  };
}

/** Makes the console listen. @throws OperatorError for an unusable address or port, for example a port in use */
export async function listenConsole(
  app: FastifyInstance,
  { listen: { host, port } }: ConsoleStart,
  { tls, setOrigin }: OpenedConsole,
): Promise<void> {
  try {
    await app.listen({ host, port });
  } catch (error) {
    throw asListenError(error, 'registry.console.listen', { host, port });
  }
  const { address, family, port: actual } = app.server.address() as AddressInfo;
  const name = family === 'IPv6' ? `[${address}]` : address;
  setOrigin(new URL(`${tls === null ? 'http' : 'https'}://${name}:${actual}`).origin);
}
