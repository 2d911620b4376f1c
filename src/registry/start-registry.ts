import type { AddressInfo } from 'node:net';
import { openSession } from '../database/session.js';
import { asListenError } from '../config/operator-error.js';
import { readToken } from '../rest/bearer-token.js';
import { createRegistry, longestLifetime, type RegistryOptions } from './create-registry.js';
import { OldEvents } from './events/old-events.js';
import { Roster } from './gateways/roster.js';
import { Projector } from './projection/projector.js';
import { newId } from './registry-context.js';
import { openRegistryDatabase, type RegistryDatabase } from './registry-database.js';

/** How the registry is started. Whoever opened the store closes it, after `close()`. */
export interface StartOptions extends Omit<RegistryOptions, 'database' | 'projector' | 'token'> {
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** `sqlite:PATH`, `sqlite::memory:` or `postgres://…`. */
  readonly databaseUrl: string;
  /** Whether a database that is not there, or is empty, is made; left out: it is. */
  readonly mayCreate?: boolean | undefined;
  /** File with the bearer token of administrators. */
  readonly tokenFile: string | null;
  /** For how many days an event is kept; null, as without it: for ever. */
  readonly eventsDays?: number | null | undefined;
}

/** A registry that takes requests and projects. */
export interface RunningRegistry {
  readonly url: string;
  /** Open until `close()`. */
  readonly database: RegistryDatabase;
  /** The store was away and can be asked again: what waits is projected at once. */
  storeFound(): void;
  /** Answers what has begun, ends the projection, then closes the database. */
  close(): Promise<void>;
}

/** A gateway beats twice a second, and tries to connect at least once a second. */
const reportMilliseconds = 1_500;
/** A store that answers is compared within that, unless everything has to be written anew. */
const firstPassMilliseconds = 1_000;

/**
 * Opens the database, brings it up to date, takes requests, and projects. It starts also while the store is away.
 * @throws DatabaseError
 * @throws OperatorError for a token that cannot be used, or a port that is taken
 */
export async function startRegistry({
  host,
  port,
  databaseUrl,
  mayCreate = true,
  tokenFile,
  eventsDays = null,
  ...options
}: StartOptions): Promise<RunningRegistry> {
  const { clock, random } = options;
  const token = await readToken(tokenFile, 'registry.tokenFile');
  const newGeneration = (): string => newId('r', clock.now(), random);
  const database = await openRegistryDatabase({
    url: databaseUrl,
    generation: newGeneration(),
    existingOf: mayCreate ? undefined : 'registry',
  });
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
  const oldEvents =
    eventsDays === null ? null : new OldEvents({ ...shared, projection: projector.projection, days: eventsDays });
  const app = createRegistry({ ...options, database, projector, token });
  app.addHook('onClose', async () => {
    await oldEvents?.stop();
    await roster.stop();
    await projector.stop();
    await session.close();
    await database.destroy();
  });
  projector.wake();
  // Compared before its first change, a new database can have forgotten nobody.
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
  roster.start();
  oldEvents?.start();
  const address = app.server.address() as AddressInfo;
  const name = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  return {
    url: `http://${name}:${address.port}`,
    database,
    storeFound: () => {
      projector.storeFound();
    },
    close: () => app.close(),
  };
}
