import type { Migrations } from '../../database/migrate.js';
import { initial } from './0001-initial.js';

/** The services' migrations, oldest first. A released one never changes: the next change is a new one. */
export const migrations: Migrations = { '0001-initial': initial };
