import { servicesActions, type ServicesEvent } from '../../rest/trail/services-events.js';
import { makeUnpublishedChange } from '../change.js';
import type { RegistryContext } from '../registry-context.js';
import type { Author } from './author.js';
import type { NewEvent } from './repository.js';

/**
 * Stores events that the backing services (wallets, payouts and others) recorded about operators. Stores each event id
 * only once. The author of a stored event is the operator whom the services authenticated. The event's `after` also
 * contains the name of the administrator who sent the event here (`reportedBy`), and the time at which the services
 * stored the event (`at`).
 * @returns the number of events that were not stored before
 */
export function appendServicesEvents(
  context: Pick<RegistryContext, 'database' | 'clock'>,
  author: Author,
  given: readonly ServicesEvent[],
): Promise<number> {
  return makeUnpublishedChange(context, author, async ({ transaction }) => {
    const stored = await transaction
      .selectFrom('events')
      .select('request_id')
      .where(
        'request_id',
        'in',
        given.map(({ id }) => id),
      )
      .where('action', 'in', servicesActions)
      .execute();
    const known = new Set(stored.map(({ request_id }) => request_id));
    const events = [...new Map(given.map((event) => [event.id, event])).values()]
      .filter(({ id }) => !known.has(id))
      .map((event) => eventOf(event, author.actor));
    return { result: events.length, events };
  });
}

function eventOf(event: ServicesEvent, reportedBy: string): NewEvent {
  const { id, at, action, merchantId, actor, administratorId, proof, claimed, source, reason, before, after } = event;
  return {
    ...{ action, merchantId, keyId: null, before, after: { ...after, at, reportedBy } },
    author: { actor, administratorId, proof, claimed, source, requestId: id, reason },
  };
}
