import type { Migrations } from '../../database/open-database.js';
import { registry } from './0001-registry.js';
import { eventsOfChange } from './0002-events-of-change.js';
import { formerGenerations } from './0003-former-generations.js';
import { roster } from './0004-roster.js';
import { seals } from './0005-seals.js';

/** The registry's migrations, oldest first. A released one never changes: the next change is a new one. */
export const migrations: Migrations = {
  '0001-registry': registry,
  '0002-events-of-change': eventsOfChange,
  '0003-former-generations': formerGenerations,
  '0004-roster': roster,
  '0005-seals': seals,
};
