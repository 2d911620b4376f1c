import type { Migrations } from '../../database/migrate.js';
import { services } from './0001-services.js';

/** The services' migrations, oldest first. A released one never changes: the next change is a new one. */
export const migrations: Migrations = { '0001-services': services };
