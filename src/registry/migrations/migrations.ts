import type { Migrations } from '../../database/open-database.js';
import { registry } from './0001-registry.js';
import { eventsOfChange } from './0002-events-of-change.js';
import { formerGenerations } from './0003-former-generations.js';
import { roster } from './0004-roster.js';
import { seals } from './0005-seals.js';
import { checkpoints } from './0006-checkpoints.js';
import { statusChanges } from './0007-status-changes.js';
import { nextRuns } from './0008-next-runs.js';
import { earlierCheckpoints } from './0009-earlier-checkpoints.js';
import { administrators } from './0010-administrators.js';
import { eventChain } from './0011-event-chain.js';
import { signIns } from './0012-sign-ins.js';
import { approvals } from './0013-approvals.js';
import { eventsOfServices } from './0014-events-of-services.js';
import { usage } from './0016-usage.js';
import { unusualUse } from './0017-unusual-use.js';
import { eventRights } from './0019-event-rights.js';
import { console } from './0020-console.js';
import { search } from './0021-search.js';
import { issuers } from './0022-issuers.js';
import { credentials } from './0023-credentials.js';

/**
 * The registry's migrations, oldest first. A released migration never changes, because databases have already applied
 * it. Each later change gets a new migration.
 */
export const migrations: Migrations = {
  '0001-registry': registry,
  '0002-events-of-change': eventsOfChange,
  '0003-former-generations': formerGenerations,
  '0004-roster': roster,
  '0005-seals': seals,
  '0006-checkpoints': checkpoints,
  '0007-status-changes': statusChanges,
  '0008-next-runs': nextRuns,
  '0009-earlier-checkpoints': earlierCheckpoints,
  '0010-administrators': administrators,
  '0011-event-chain': eventChain,
  '0012-sign-ins': signIns,
  '0013-approvals': approvals,
  '0014-events-of-services': eventsOfServices,
  '0016-usage': usage,
  '0017-unusual-use': unusualUse,
  '0019-event-rights': eventRights,
  '0020-console': console,
  '0021-search': search,
  '0022-issuers': issuers,
  '0023-credentials': credentials,
};
