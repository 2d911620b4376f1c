import { databaseClock } from '../database/dialects.js';
import { openDatabase } from '../database/open-database.js';
import type { OpenApi } from '../rest/openapi/describe-routes.js';
import { createServices } from './create-services.js';
import type { ServicesTables } from './tables.js';

/** Generates the services' OpenAPI 3.1 description from the routes, without a configuration or an external database. */
export async function describeServices(): Promise<OpenApi> {
  const database = openDatabase<ServicesTables>({ url: 'sqlite::memory:' });
  try {
    const bank = { delayMilliseconds: 0, failingAccounts: [] };
    const clock = databaseClock(database, { now: () => 0 });
    return createServices({ database, bank, assertions: null, connections: null, clock }).openApi();
  } finally {
    await database.destroy();
  }
}
