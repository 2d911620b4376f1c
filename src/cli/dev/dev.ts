import type { AddressInfo } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Command } from 'commander';
import { ConfigError } from '../../config/config-error.js';
import { unprotectedRegistry } from '../../config/rules/registry-rules.js';
import { loadConfig } from '../../config/load.js';
import { fitToMemory } from '../../config/memory-plan.js';
import { OperatorError } from '../../config/operator-error.js';
import type { Config, DeepPartial } from '../../config/schema.js';
import { lookupIdOf } from '../../gateway/api-key.js';
import type { Records } from '../../gateway/record-key-store.js';
import { startGateway } from '../../edge/start-gateway.js';
import { readToken } from '../../rest/bearer-token.js';
import { createLogger } from '../../telemetry/logger.js';
import { trustCertificate } from '../../tls/client-trust.js';
import { AdminClient } from '../admin/admin-client.js';
import type { CommandIo } from '../command-io.js';
import { keyText } from '../../evidence/signed-note.js';
import type { MerchantApi } from '../../registry/console/create-console.js';
import { linkSchema } from '../../registry/console/schema.js';
import { instanceKeySchema } from '../../registry/checkpoints/schema.js';
import { ensureSigner, type SignerOptions } from '../compose/note-signer.js';
import { openPorts } from '../compose/gateway-ports.js';
import { readPepper } from '../compose/secrets.js';
import { ensureDemoAdministrators } from './demo-administrators.js';
import { DataDirectory } from './data-directory.js';
import { ensureDemoMerchant, sendDemoRequests } from './demo-merchant.js';
import { welcomeText } from './welcome.js';
import { drainGateway, runServer, saveMilliseconds } from '../run-server.js';

interface DevOptions {
  readonly config?: string;
  readonly dataDir?: string;
  readonly resetKey?: true;
  readonly json?: true;
}

const pollMilliseconds = 10;
const longestWaitMilliseconds = 10_000;
const exampleExits = fileURLToPath(new URL('../../../tor-exit-list/example-snapshot.txt', import.meta.url));

/**
 * Creates the command `dev`. It runs gateway, registry and services in one process with embedded stores and a demo
 * merchant.
 */
export function devCommand(io: Pick<CommandIo, 'out'>): Command {
  return new Command('dev')
    .description('run a demo: all parts in one process, with self-signed TLS and a demo merchant')
    .option(
      '--config <file>',
      'configuration file; options that it omits get defaults for a demo, such as listeners on 127.0.0.1',
    )
    .option(
      '--data-dir <dir>',
      'directory for the certificate, secrets, databases and logs of the demo (default: a temporary directory)',
    )
    .option('--reset-key', 'replace the key of the demo merchant and show the new key')
    .option('--json', 'print the addresses, file paths, ids and the API key as JSON instead of commands to paste')
    .action((options: DevOptions) => dev(options, io));
}

async function dev(
  { config: file, dataDir, resetKey, json }: DevOptions,
  { out }: Pick<CommandIo, 'out'>,
): Promise<void> {
  const now = new Date();
  const directory = await DataDirectory.open(dataDir ?? null);
  const config = await directory.orClose(() => loadConfig({ file, presets: presetsFor(directory) }));
  await directory.orClose(() => {
    const problems = unprotectedRegistry(config);
    if (problems.length > 0) throw new ConfigError(problems, file ?? null);
  });
  const log = createLogger(config.log.level);
  // Load these modules lazily, because most commands need no SQL.
  const { startEmbeddedRegistry } = await import('./embedded-registry.js');
  const { startConfiguredServices } = await import('../compose/services.js');
  const { seedDemo } = await import('../../services/demo.js');
  // SIGHUP means that the terminal was closed. The user can then neither see the output nor press Ctrl-C, so stop the
  // process.
  process.on('SIGHUP', () => process.kill(process.pid, 'SIGTERM'));
  await runServer(config, log, async (closeLater, saveAnyhow) => {
    closeLater(() => directory.close());
    await directory.ensureFiles(now);
    let merchantApi: MerchantApi = { liveUrl: null, testUrl: null, caFile: null };
    let operatorsUrl: string | null = null;
    const embedded = await startEmbeddedRegistry(config, log, {
      temporaryPrefix: directory.kept ? null : directory.redisPrefix,
      merchantApi: () => merchantApi,
      operatorsUrl: () => operatorsUrl,
      closeLater,
    });
    const registryUrl = reachable(embedded.registry.url);
    const token = await readToken(config.registry.tokenFile, 'registry.tokenFile');
    const { certFile: registryCertFile } = config.registry.listen;
    const trust = registryCertFile === null ? null : await trustCertificate(registryCertFile);
    // With `registry.reasonFor`, the registry rejects requests without a reason.
    const admin = new AdminClient({ address: new URL(registryUrl), token, trust, reason: 'demo' });
    const { environment } = config;
    const { merchantId, key } = await ensureDemoMerchant(admin, environment, resetKey === true);
    await ensureDemoAdministrators(admin, merchantId, directory.demoTokenFiles);
    const consoleLink = embedded.registry.consoleUrl === null ? null : await demoLink(admin);

    // Load the configuration again with the URL of the registry, to which the services send their events.
    const trail = { url: registryUrl, tokenFile: directory.demoTokenFiles.services, caFile: registryCertFile };
    const operators = { registryKeys: [directory.servicesTokenKeyFiles.publicKey], trail };
    const joined = loadConfig({ file, presets: presetsFor(directory, operators) });
    const services = await startConfiguredServices(joined, log);
    closeLater(() => services.close());
    operatorsUrl = services.operatorsUrl && reachable(services.operatorsUrl);
    const { walletId } = await seedDemo(services.database, { merchantId, environment, now: now.getTime() });

    // Load the configuration again with the URL of the services, which can listen on any free port.
    const upstream = { url: services.url, readsBodies: true };
    const upstreams = { transactions: upstream, payouts: upstream, customers: upstream };
    const wired = fitToMemory(loadConfig({ file, presets: { ...presetsFor(directory, operators), upstreams } }));
    await pinOwnKey(admin, wired.accessLog.checkpoints);
    const ports = await openPorts(wired, log, embedded);
    saveAnyhow(() => ports.accessLog.close(saveMilliseconds));
    const gateway = await startGateway(wired, ports);
    closeLater(() => drainGateway(gateway, ports.accessLog));
    await untilAvailable(embedded.records, config);
    if (key !== null)
      await untilKnown(embedded.records, lookupIdOf(key, await readPepper(config.keys.pepperFile)), config);

    const { https, http, management } = gateway.addresses;
    if (https === null)
      throw new OperatorError('The command "merchant-gateway dev" requires TLS: do not set listen.https to null.');
    const baseUrl = `${urlOf('https', https)}${wired.basePath}`;
    const certFile = wired.listen.https?.certFile ?? directory.certFile;
    const [liveUrl, testUrl] = environment === 'live' ? [baseUrl, null] : [null, baseUrl];
    merchantApi = { liveUrl, testUrl, caFile: certFile };
    if (key !== null) await sendDemoRequests(admin, { merchantId, environment, key }, { baseUrl, certFile });
    const welcome = {
      baseUrl,
      plainUrl: http && urlOf('http', http),
      managementUrl: management && urlOf('http', management),
      servicesUrl: services.url,
      operatorsUrl: services.operatorsUrl,
      operatorsTokenFile: joined.services.operators.tokenFile ?? directory.operatorsTokenFile,
      hasTreasurer: config.registry.servicesToken !== null && joined.services.operators.registryKeys.length > 0,
      environment,
      consoleLink,
      registryUrl,
      adminTokenFile: config.registry.tokenFile ?? directory.adminTokenFile,
      demoTokenFiles: directory.demoTokenFiles,
      dataDirectory: directory.path,
      kept: directory.kept,
      certFile,
      accessLog: wired.accessLog.destination,
      checkpoints: wired.accessLog.checkpoints?.file ?? null,
      instanceKeyFile: wired.accessLog.checkpoints?.keyFile ?? null,
      logSecretFile: wired.accessLog.secretFile ?? directory.logSecretFile,
      merchantId,
      walletId,
      key,
    };
    out(json === true ? `${JSON.stringify(welcome)}\n` : welcomeText(welcome));
  });
}

/** Returns the URL by which this machine reaches a listener, also one on a wildcard address (0.0.0.0, ::). */
function reachable(url: string): string {
  return url.replace('//0.0.0.0:', '//127.0.0.1:').replace('//[::]:', '//[::1]:');
}

/**
 * Returns presets, which the configuration file can override: loopback listeners, and files in the data directory.
 * @param operators options of the operators' API that are known only once the registry runs
 */
function presetsFor(
  directory: DataDirectory,
  operators: DeepPartial<Config['services']['operators']> = {},
): DeepPartial<Config> {
  const { certFile, keyFile } = directory;
  const redisUrl = process.env.REDIS_URL;
  return {
    listen: { https: { host: '127.0.0.1', port: 8443, certFile, keyFile }, http: { host: '127.0.0.1', port: 8080 } },
    keyStore:
      redisUrl === undefined
        ? { kind: 'memory' }
        : { kind: 'redis', redis: { url: redisUrl, prefix: directory.redisPrefix } },
    keys: { recordSecretFile: directory.recordSecretFile },
    registry: {
      database: { url: `sqlite:${directory.file('registry.db')}` },
      ...{ tokenFile: directory.adminTokenFile, witness: { keyFile: directory.file('witness-key.pem') } },
      servicesToken: { keyFile: directory.servicesTokenKeyFiles.privateKey },
      console: { listen: { port: 0 } },
    },
    // Read the Tor exit list from a file, so that `dev` works without a network.
    torExits: {
      sources: [exampleExits],
      allowReserved: true,
      maxAgeHours: 8760,
      snapshotFile: directory.file('tor-exits.json'),
    },
    identity: { signingKeyFile: directory.signingKeyFile },
    services: {
      database: { url: `sqlite:${directory.file('services.db')}` },
      operators: { listen: { port: 0 }, tokenFile: directory.operatorsTokenFile, ...operators },
    },
    accessLog: {
      ...{ destination: directory.file('access.log'), secretFile: directory.logSecretFile },
      checkpoints: {
        ...{ keyFile: directory.file('instance-key.pem'), file: directory.file('checkpoints.jsonl'), witness: {} },
      },
    },
    log: { level: 'warn' },
  };
}

/** Creates a link to the console. The link signs the user in as the demo owner. */
async function demoLink(admin: AdminClient): Promise<string> {
  const body = { administrator: 'demo-owner' };
  const { data } = await admin.ask({ method: 'POST', path: ['console-links'], body, expects: linkSchema });
  return data.url;
}

/**
 * Pins the instance key, which signs access-log checkpoints. The registry then accepts the key without confirmation by
 * an administrator. That is safe, because gateway and registry are one process.
 */
async function pinOwnKey(admin: AdminClient, key: SignerOptions | null): Promise<void> {
  if (key === null) return;
  const { signer } = await ensureSigner(key, 'The instance key');
  const body = { publicKey: keyText(signer.key) };
  await admin.ask({ method: 'POST', path: ['instance-keys'], body, expects: instanceKeySchema });
}

const anotherPrefix = 'choose another keyStore.redis.prefix, or remove that option.';

/**
 * Waits until the registry has written its records for the first time. Otherwise the first command that the user pastes
 * could fail.
 * @throws OperatorError if this takes too long
 */
async function untilAvailable(records: Records, { keyStore: { kind, redis } }: Config): Promise<void> {
  for (let waited = 0; records.unavailableReason() !== null; waited += pollMilliseconds) {
    if (waited > longestWaitMilliseconds)
      throw new OperatorError(
        `The records are unavailable: ${records.unavailableReason() ?? ''}.` +
          (kind === 'redis'
            ? ` If the records ${redis.prefix}* in Redis belong to another registry, ${anotherPrefix}`
            : ''),
      );
    await setTimeout(pollMilliseconds);
  }
}

/**
 * Waits until the gateway finds the demo key. If the gateway reads the records of another registry, it never finds the
 * key, and each request would get 401.
 * @throws OperatorError if this takes too long
 */
async function untilKnown(records: Records, lookupId: string, config: Config): Promise<void> {
  for (let waited = 0; (await records.key(lookupId)).record === null; waited += pollMilliseconds) {
    if (waited > longestWaitMilliseconds)
      throw new OperatorError(
        `The new key does not reach the gateway. If the records ${config.keyStore.redis.prefix}* in Redis ` +
          `belong to another registry, ${anotherPrefix}`,
      );
    await setTimeout(pollMilliseconds);
  }
}

function urlOf(scheme: string, { address, family, port }: AddressInfo): string {
  return `${scheme}://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
