import type { Migrations } from '../../database/open-database.js';
import { services } from './0001-services.js';
import { payoutsDue } from './0002-payouts-due.js';
import { ledger } from './0003-ledger.js';
import { payoutReference } from './0004-payout-reference.js';
import { operatorEvents } from './0005-operator-events.js';

/** The services' migrations, oldest first. Never change a released migration: add a new one. */
export const migrations: Migrations = {
  '0001-services': services,
  '0002-payouts-due': payoutsDue,
  '0003-ledger': ledger,
  '0004-payout-reference': payoutReference,
  '0005-operator-events': operatorEvents,
};
