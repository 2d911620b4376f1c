import { existsSync } from 'node:fs';
import { access, constants, stat } from 'node:fs/promises';
import net from 'node:net';
import path from 'node:path';
import { readRecordsFile } from '../../adapters/memory/records-file.js';
import { inspectRedis } from '../../adapters/redis/inspect/inspect-redis.js';
import { readListFile } from '../../adapters/tor/list-files.js';
import { listenProblemOf, OperatorError } from '../../config/operator-error.js';
import { fileProblemOf, readOperatorFile, readSecretFile } from '../../config/operator-file.js';
import type { Config } from '../../config/schema.js';
import type { ServerCommand } from '../../config/config-notes.js';
import { readToken } from '../../rest/bearer-token.js';
import { NotARegularFile } from '../../telemetry/log-file.js';
import { createLogger } from '../../telemetry/logger.js';
import type { TlsFiles } from '../../tls/tls-material.js';
import { openDestinations, witnessKeyOf } from '../compose/checkpoints.js';
import { readInstanceKey, type SignerOptions } from '../compose/note-signer.js';
import { readWitnessKey } from '../compose/witness.js';
import { openGeoIp } from '../compose/gateway-ports.js';
import { openOperatorsApi } from '../compose/operators-api.js';
import { openServicesTokenKey, readLogSecret, readPepper, readRecordSeals } from '../compose/secrets.js';
import { readTraceCa, readTraceToken } from '../compose/traces.js';
import { readWebhookSecrets } from '../compose/unusual.js';
import { inspectionOf } from '../compose/redis-self-check.js';

/**
 * A problem with a file, port or connection that the configuration names. Severity `error`: the command cannot work.
 * Severity `warning`: the command can start, but a part of the command may fail.
 */
export interface Finding {
  readonly severity: 'error' | 'warning';
  readonly option: string;
  readonly message: string;
}

type Check = () => Promise<readonly Finding[]>;

const reachMilliseconds = 2_000;
const maxPemBytes = 1024 * 1024;

/**
 * Opens all files and tests all connections that a command uses, without writing anything. An expected failure becomes
 * a finding in the result; only an unexpected error rejects the promise.
 */
export async function checkConnections(command: ServerCommand, config: Config): Promise<Finding[]> {
  const checks = { gateway: checksOfGateway, registry: checksOfRegistry, services: checksOfServices }[command](config);
  return (await Promise.all(checks.map((check) => check()))).flat();
}

function checksOfGateway(config: Config): Check[] {
  const { accessLog, keyStore, listen, torExits, traces, upstreams } = config;
  const { recordsFile } = keyStore.memory;
  const { checkpoints } = accessLog;
  return [
    ...(keyStore.kind === 'redis' ? [redis(config, 'gateway')] : []),
    ...(keyStore.kind === 'memory' && recordsFile !== null
      ? [works('keyStore.memory.recordsFile', () => readRecordsFile(recordsFile))]
      : []),
    ...(listen.https === null ? [] : [certificates('listen.https', listen.https)]),
    works('keys.pepperFile', () => readPepper(config.keys.pepperFile)),
    works('keys.recordSecretFile', () => readRecordSeals(config.keys.recordSecretFile)),
    works('accessLog.secretFile', () => readLogSecret(accessLog.secretFile)),
    ...(accessLog.destination === 'stdout' ? [] : [canWrite('accessLog.destination', accessLog.destination, 'error')]),
    ...(checkpoints === null
      ? []
      : [
          signerOf('accessLog.checkpoints', checkpoints, () => readInstanceKey(checkpoints)),
          ...(checkpoints.file === null ? [] : [canWrite('accessLog.checkpoints.file', checkpoints.file, 'error')]),
          works('accessLog.checkpoints', () => openDestinations(checkpoints)),
          works('accessLog.checkpoints.witness.publicKey', () => witnessKeyOf(checkpoints.witness)),
          ...(checkpoints.https === null ? [] : [reach('accessLog.checkpoints.https.url', checkpoints.https.url)]),
          ...(checkpoints.syslog === null ? [] : [reach('accessLog.checkpoints.syslog.url', checkpoints.syslog.url)]),
        ]),
    works('geoip', async () => (await openGeoIp(config, createLogger('silent')))?.close()),
    ...(torExits.enabled ? torExits.sources.map((source, index) => exitSource(source, index)) : []),
    ...(torExits.enabled ? [canWrite('torExits.snapshotFile', torExits.snapshotFile, 'warning')] : []),
    works('identity.signingKeyFile', async () => (await import('../compose/identity.js')).openIdentity(config)),
    works('identity.publishedKeyFiles', async () => (await import('../compose/identity.js')).openPublishedKeys(config)),
    ...Object.entries(upstreams).flatMap(([name, { url, caFile }]) => [
      reach(`upstreams.${name}.url`, url),
      ...(caFile === null
        ? []
        : [works(`upstreams.${name}.caFile`, () => readOperatorFile(caFile, 'The CA certificate', maxPemBytes))]),
    ]),
    ...(traces.endpoint === null ? [] : [reach('traces.endpoint', traces.endpoint)]),
    works('traces.tokenFile', () => readTraceToken(traces)),
    works('traces.caFile', () => readTraceCa(traces)),
    ...Object.entries(listen).flatMap(([name, at]) => (at === null ? [] : [portIsFree(`listen.${name}`, at)])),
  ];
}

/**
 * Creates a check of the file of a signing key. An existing file must hold a valid key. If the file is missing, its
 * directory must be writable, because the server creates the file at startup.
 */
function signerOf(path: string, { keyFile }: SignerOptions, read: () => Promise<unknown>): Check {
  return existsSync(keyFile) ? works(`${path}.keyFile`, read) : canWrite(`${path}.keyFile`, keyFile, 'error');
}

function checksOfRegistry(config: Config): Check[] {
  const { listen, database, tokenFile, bootstrap, witness, servicesToken, unusual, oidc, console } = config.registry;
  const services = console?.services ?? null;
  return [
    redis(config, 'registry'),
    ...(witness === null ? [] : [signerOf('registry.witness', witness, () => readWitnessKey(witness))]),
    works('registry.servicesToken.keyFile', () => openServicesTokenKey(servicesToken)),
    ...(services === null
      ? []
      : [
          reach('registry.console.services.url', services.url),
          works('registry.console.services.caFile', async () => (await openOperatorsApi(config))?.close()),
        ]),
    ...unusual.webhooks.map(({ secretFile }, index) =>
      works(`registry.unusual.webhooks.${index}.secretFile`, () => readWebhookSecrets(secretFile)),
    ),
    ...(bootstrap === 'off' ? [] : [works('registry.tokenFile', () => readToken(tokenFile, 'registry.tokenFile'))]),
    works('keys.pepperFile', () => readPepper(config.keys.pepperFile)),
    works('keys.recordSecretFile', () => readRecordSeals(config.keys.recordSecretFile)),
    works('registry.database.url', async () => {
      const { checkRegistryDatabase } = await import('../../registry/registry-database.js');
      await checkRegistryDatabase({ url: database.url, existingOf: 'registry' });
    }),
    ...(oidc === null
      ? []
      : [works('registry.oidc.clientSecretFile', () => readSecretFile(oidc.clientSecretFile, 'The client secret'))]),
    ...listener('registry.listen', listen),
    ...(console === null ? [] : listener('registry.console.listen', console.listen)),
  ];
}

function checksOfServices(config: Config): Check[] {
  const { listen, database, operators } = config.services;
  const { url, ...pool } = database;
  const { publicKeysUrl } = config.identity;
  return [
    works('services.database.url', async () => {
      const { checkServicesDatabase } = await import('../../services/services-database.js');
      await checkServicesDatabase({ url, pool, existingOf: 'services' });
    }),
    ...(publicKeysUrl === null
      ? [works('identity', async () => (await import('../compose/services.js')).openAssertionVerifier(config))]
      : [reach('identity.publicKeysUrl', publicKeysUrl)]),
    portIsFree('services.listen', listen),
    works('services.operators', async () => {
      const { operatorsListener } = await import('../compose/services.js');
      await (await operatorsListener(operators, createLogger('silent')))?.tls?.stop();
    }),
    ...(operators.trail === null ? [] : [reach('services.operators.trail.url', operators.trail.url)]),
    ...(operators.tokenFile === null && operators.registryKeys.length === 0
      ? []
      : [portIsFree('services.operators.listen', operators.listen)]),
  ];
}

/** Creates a check that reports an error if `act` throws or its promise rejects. */
function works(option: string, act: () => unknown): Check {
  return async () => {
    try {
      await act();
      return [];
    } catch (error) {
      if (!(error instanceof Error)) throw error;
      return [{ severity: 'error', option, message: error.message }];
    }
  };
}

function redis(config: Config, part: 'gateway' | 'registry'): Check {
  return async () => {
    try {
      return await inspectRedis(await inspectionOf(config, part));
    } catch (error) {
      if (!(error instanceof OperatorError)) throw error;
      return [{ severity: 'error', option: 'keyStore.redis', message: error.message }];
    }
  };
}

type Listener = Omit<Config['registry']['listen'], 'clientCaFile'> & { readonly clientCaFile?: string | null };

/** Creates the checks of a listener that uses TLS if it has a certificate. */
function listener(option: string, at: Listener): Check[] {
  const { certFile, keyFile, clientCaFile = null } = at;
  const isPlain = certFile === null || keyFile === null;
  return [...(isPlain ? [] : [certificates(option, { certFile, keyFile, clientCaFile })]), portIsFree(option, at)];
}

function certificates(
  option: string,
  files: Pick<TlsFiles, 'certFile' | 'keyFile' | 'clientCaFile'> & Partial<TlsFiles>,
): Check {
  return async () => {
    const { expiryWarnings, readTlsMaterial } = await import('../../tls/tls-material.js');
    try {
      const warnings = expiryWarnings(
        await readTlsMaterial({ certificates: [], ticketKeysFile: null, ...files }),
        Date.now(),
      );
      return warnings.map(({ warning, isOver }) => ({
        severity: isOver ? 'error' : 'warning',
        option,
        message: `${warning}; replace it`,
      }));
    } catch (error) {
      if (!(error instanceof OperatorError)) throw error;
      return [{ severity: 'error', option, message: error.message }];
    }
  };
}

function exitSource(source: string, index: number): Check {
  const option = `torExits.sources[${index}]`;
  return /^https?:/i.test(source)
    ? reach(option, source)
    : works(option, async () => {
        await readListFile(source).catch((error: unknown) => {
          throw new OperatorError(`The Tor exit list ${(error as Error).message}`, { cause: error });
        });
      });
}

/**
 * Creates a check that a file is writable. If the file does not exist, its nearest existing parent directory must be
 * writable.
 */
function canWrite(option: string, file: string, severity: Finding['severity']): Check {
  return async () => {
    try {
      let nearest = file;
      while (nearest !== path.dirname(nearest) && !existsSync(nearest)) nearest = path.dirname(nearest);
      const found = await stat(nearest);
      const isDirectory = found.isDirectory();
      if (isDirectory === (nearest === file)) {
        const why = isDirectory ? 'is a directory' : `cannot be created, because ${nearest} is a file`;
        return [{ severity, option, message: `${file} ${why}; configure a file that this user may write` }];
      }
      if (!isDirectory && !found.isFile()) {
        const { message } = new NotARegularFile(found);
        return [{ severity, option, message: `${file}: ${message}; configure a file that this user may write` }];
      }
      await access(nearest, constants.W_OK);
      return [];
    } catch (error) {
      const message = `${file} cannot be written: ${fileProblemOf(error)}; configure a file that this user may write`;
      return [{ severity, option, message }];
    }
  };
}

const defaultPorts: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443, 'tls:': 6514, 'tcp:': 601 };

/**
 * Creates a check that a TCP connection can be opened. A failure is only a warning, because the service could start
 * later.
 */
function reach(option: string, url: string): Check {
  const { hostname, port, protocol } = new URL(url);
  const at = { host: hostname.replace(/^\[(.*)\]$/, '$1'), port: Number(port || defaultPorts[protocol]) };
  return async () =>
    new Promise((resolve) => {
      const socket = net.connect(at);
      const end = (why: string | null): void => {
        socket.destroy();
        const message = `${at.host}:${at.port} cannot be reached (${why ?? ''}); start the service or correct the URL`;
        resolve(why === null ? [] : [{ severity: 'warning', option, message }]);
      };
      socket.setTimeout(reachMilliseconds, () => {
        end('timeout');
      });
      socket.once('connect', () => {
        end(null);
      });
      socket.once('error', (error: NodeJS.ErrnoException) => {
        end(error.code ?? error.message);
      });
    });
}

/**
 * Creates a check that a port is free. A used port is only a warning, because the checked server itself could be using
 * it.
 */
function portIsFree(option: string, { host, port }: { readonly host: string; readonly port: number }): Check {
  return async () =>
    new Promise((resolve) => {
      const server = net.createServer();
      server.once('error', (error: NodeJS.ErrnoException) => {
        const why = listenProblemOf(error) ?? error.message;
        const hint =
          error.code === 'EADDRINUSE' ? '. If the process is the server that you check, ignore this warning' : '';
        resolve([{ severity: 'warning', option, message: `cannot listen on ${host}:${port}, because ${why}${hint}` }]);
      });
      server.listen({ host, port, exclusive: true }, () => {
        server.close(() => {
          resolve([]);
        });
      });
    });
}
