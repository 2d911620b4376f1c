import type { AddressInfo } from 'node:net';
import { openSession } from '../database/session.js';
import { asListenError } from '../config/operator-error.js';
import { readToken } from '../rest/bearer-token.js';
import { ServerTls } from '../tls/server-tls.js';
import type { GatewayInbox } from '../gateway/channel-ports.js';
import { type ApprovalRules, noRules } from './approvals/guard.js';
import { applyConfiguredRules } from './approvals/rules.js';
import { SilentRuns } from './checkpoints/findings.js';
import { Witness } from './checkpoints/witness.js';
import { type ConsoleStart, listenConsole, openConsole } from './console/start-console.js';
import { createServers, longestLifetime, type RegistryOptions, type RegistryUnusual } from './create-registry.js';
import { EventCheckpoints } from './events/checkpoints.js';
import { OldEvents } from './events/old-events.js';
import { Roster } from './gateways/roster.js';
import { Projector } from './projection/projector.js';
import { newId } from './registry-context.js';
import { openRegistryDatabase, type RegistryDatabase } from './registry-database.js';
import type { UnusualUse } from './unusual/unusual-use.js';
import { WebhookSender } from './unusual/webhooks.js';
import type { AddressDetail } from './usage/checked-batch.js';
import { OldUsage } from './usage/old-usage.js';
import { UsageBatches, type UsageObserver } from './usage/usage-batches.js';

/**
 * The rules that detect unusual use of keys, the webhooks to which the findings of these rules are sent, and how many
 * days findings are kept.
 */
export interface StartUnusual extends RegistryUnusual {
  readonly use: Pick<UnusualUse, 'off' | 'observe'>;
  readonly keepDays: number;
}

/**
 * Options of a registry process. The `close()` of the running registry does not close the store: the caller opened the
 * store and closes it afterwards.
 */
export interface StartOptions extends Omit<
  RegistryOptions,
  'database' | 'projector' | 'token' | 'access' | 'unusual' | 'console'
> {
  /** Where the console listens; null, the default: no console. */
  readonly console?: ConsoleStart | null | undefined;
  /** The rules that detect unusual use of keys; null, the default: no rules. The caller closes the webhook targets. */
  readonly unusual?: StartUnusual | null | undefined;
  readonly host: string;
  /** Port; 0 selects any free port. */
  readonly port: number;
  /** PEM file of the certificate. Default: plain HTTP. */
  readonly certFile?: string | null;
  /** PEM file of the certificate's private key. Default: plain HTTP. */
  readonly keyFile?: string | null;
  /** PEM file of the CAs that issue client certificates. Default: clients need no certificates. */
  readonly clientCaFile?: string | null;
  /** Addresses and CIDRs of the reverse proxies; null, the default: no proxies. */
  readonly behindProxy?: readonly string[] | null;
  /**
   * Host names that the API accepts in the Host header, besides the names in its certificate, loopback names and its
   * own address. Default: no further names.
   */
  readonly hosts?: readonly string[];
  /** The URL of the database: `sqlite:PATH`, `sqlite::memory:` or `postgres://…`. */
  readonly databaseUrl: string;
  /** Whether to create the database if it is missing or empty. Default: true. */
  readonly mayCreate?: boolean | undefined;
  /** Path of the file with the shared token; null: there is no shared token. */
  readonly tokenFile: string | null;
  /** Whether the shared token is accepted. Default: `on`. */
  readonly bootstrap?: 'on' | 'off' | undefined;
  /** The changes that need the approval of another administrator; null, the default: no change needs approval. */
  readonly approvals?: ApprovalRules | null | undefined;
  /**
   * Receives messages of gateways, such as checkpoints (signed states of access logs). Default: no messages are
   * received. The caller closes this inbox.
   */
  readonly inbox?: GatewayInbox | null | undefined;
  /**
   * Receives the gateways' counts of API requests. Default: the registry receives no counts. The caller closes this
   * inbox.
   */
  readonly usageInbox?: GatewayInbox | null | undefined;
  /** Retention period of events in days; null, the default, means no limit. */
  readonly eventsDays?: number | null | undefined;
  /**
   * How many days the usage (counts of API requests) is stored, and with which detail of client addresses. Default:
   * `defaultUsage`.
   */
  readonly usage?: UsageSettings | undefined;
}

/** How many days the usage (counts of API requests) is stored, and with which detail of client addresses. */
interface UsageSettings {
  readonly hoursDays: number;
  readonly refusalsDays: number;
  readonly addresses: AddressDetail;
}

/** The defaults of `registry.usage`. */
const defaultUsage: UsageSettings = { hoursDays: 90, refusalsDays: 7, addresses: 'full' };

/** A registry that accepts requests and writes changes to the store. */
export interface RunningRegistry {
  readonly url: string;
  /** The origin of the console; null if the console is off. */
  readonly consoleUrl: string | null;
  /** The registry's database, which is open until `close()`. */
  readonly database: RegistryDatabase;
  /**
   * Call this when the store is reachable again. The registry then writes pending changes at once, instead of at the
   * next retry.
   */
  storeFound(): void;
  /** Checks the certificate files now. If they have changed, resolves after the new files were accepted or rejected. */
  reloadCertificate(): Promise<void>;
  /** Completes running requests, stops writing to the store, then closes the database. */
  close(): Promise<void>;
}

/**
 * How long to wait for gateways' reports of inactive records (whose status denies requests), in milliseconds. A gateway
 * writes its report during a heartbeat. It sends two heartbeats a second, and tries to reconnect at least once a
 * second. So this time is enough.
 */
const reportMilliseconds = 1_500;
/**
 * The listen addresses for all interfaces. They do not count as hosts of the API: a client connects to a particular
 * address of this machine, and the API accepts that address in the Host header.
 */
const anyAddress: ReadonlySet<string> = new Set(['0.0.0.0', '::']);
/**
 * How long the start waits for the first comparison with the store, in milliseconds. If the store is reachable, the
 * comparison takes longer than this only if it rewrites all records.
 */
const firstPassMilliseconds = 1_000;

/**
 * Starts a registry: opens the database, applies its migrations, accepts requests and writes changes to the gateways'
 * store. Starts even if the store is unavailable.
 * @throws DatabaseError
 * @throws OperatorError for an invalid token or certificate, or a port in use
 */
export async function startRegistry({
  host,
  port,
  certFile = null,
  keyFile = null,
  clientCaFile = null,
  behindProxy = null,
  hosts = [],
  databaseUrl,
  mayCreate = true,
  tokenFile,
  bootstrap = 'on',
  eventsDays = null,
  approvals = null,
  inbox = null,
  usageInbox = null,
  usage = defaultUsage,
  console = null,
  ...options
}: StartOptions): Promise<RunningRegistry> {
  const { clock, random } = options;
  const token = bootstrap === 'off' ? null : await readToken(tokenFile, 'registry.tokenFile');
  const tls =
    certFile === null || keyFile === null
      ? null
      : await ServerTls.open({ certFile, keyFile, clientCaFile }, 'registry.listen', clock, options.logger);
  const access = { tls, behindProxy, hosts: anyAddress.has(host) ? hosts : [...hosts, host] };
  const settings = console && (await openConsole(console, { behindProxy, clock, logger: options.logger }));
  const newGeneration = (): string => newId('r', clock.now(), random);
  const database = await openRegistryDatabase({
    url: databaseUrl,
    generation: newGeneration(),
    existingOf: mayCreate ? undefined : 'registry',
  });
  await applyConfiguredRules({ database, clock, random }, approvals ?? noRules, options.logger);
  const session = openSession({ url: databaseUrl }, () => {
    projector.wake();
  });
  const shared = { ...options, database, longestLifetimeMilliseconds: longestLifetime(options.maxStaleSeconds) };
  const untilReported = (): Promise<void> =>
    new Promise((resolve) => void options.timers.after(reportMilliseconds, resolve));
  const projector = new Projector({ ...shared, session, newGeneration, untilReported, holder: newGeneration() });
  const roster = new Roster({
    ...shared,
    projection: projector.projection,
    onWork: () => {
      projector.changed();
    },
  });
  const { witness: signer = null } = options;
  const oldEvents =
    eventsDays === null
      ? null
      : new OldEvents({ ...shared, projection: projector.projection, days: eventsDays, signer });
  const witness = signer && new Witness({ ...shared, signer });
  const silentRuns = inbox && new SilentRuns({ ...shared, inbox });
  const eventCheckpoints = signer && new EventCheckpoints({ ...shared, signer });
  const { unusual = null } = options;
  const webhooks = unusual && new WebhookSender({ ...shared, ...unusual });
  const observers: UsageObserver[] =
    unusual === null ? [] : [(transaction, batch, now) => unusual.use.observe(transaction, batch, now)];
  const batchOptions = { ...shared, addresses: usage.addresses, observers };
  const usageBatches = usageInbox === null ? undefined : new UsageBatches(batchOptions);
  const oldUsage = new OldUsage({ ...shared, ...usage, projection: projector.projection });
  const servers = createServers({ ...options, database, projector, token, access, usageBatches, console: settings });
  const { app } = servers;
  app.addHook('preClose', async () => servers.console?.close());
  app.addHook('onClose', async () => {
    await silentRuns?.stop();
    await webhooks?.stop();
    await eventCheckpoints?.stop();
    await oldEvents?.stop();
    await oldUsage.stop();
    await roster.stop();
    await projector.stop();
    await session.close();
    await database.destroy();
  });
  projector.wake();
  // Waits for the first comparison with the store before the API accepts changes. If the database has no changes and
  // the store is empty, the comparison concludes that no gateway can have cached records. A change that is made before
  // the comparison would make this conclusion impossible.
  await new Promise<void>((resolve) => {
    const cancel = options.timers.after(firstPassMilliseconds, resolve);
    void projector.nextPass().then(() => {
      cancel();
      resolve();
    });
  });
  try {
    await app.listen({ host, port });
  } catch (error) {
    await app.close();
    throw asListenError(error, 'registry.listen', { host, port });
  }
  if (console !== null && servers.console !== null && settings !== null) {
    try {
      await listenConsole(servers.console, console, settings);
    } catch (error) {
      await app.close();
      throw error;
    }
  }
  roster.start();
  oldEvents?.start();
  oldUsage.start();
  eventCheckpoints?.start();
  webhooks?.start();
  if (witness !== null) inbox?.serve({ checkpoint: async (body) => JSON.stringify(await witness.take(body)) });
  if (usageBatches !== undefined) usageInbox?.serve({ usage: (body) => usageBatches.add(body) });
  if (witness !== null) silentRuns?.start();
  const address = app.server.address() as AddressInfo;
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return {
    url: `${tls === null ? 'http' : 'https'}://${name}:${address.port}`,
    consoleUrl: settings?.origin() ?? null,
    database,
    storeFound: () => {
      projector.storeFound();
    },
    reloadCertificate: async () => {
      await tls?.check();
      await settings?.tls?.check();
    },
    close: () => app.close(),
  };
}
