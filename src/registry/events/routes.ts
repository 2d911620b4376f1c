import { successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { momentIn } from '../../rest/moment.js';
import type { Routes } from '../routes.js';
import { listEvents } from './repository.js';
import { eventSchema, eventsQuery } from './schema.js';

/** The registry's own audit trail. */
export const eventRoutes: Routes = (app, { database }) => {
  const operation = { summary: 'Who changed what and when, newest first', page: eventSchema };
  app.get('/events', { schema: { querystring: eventsQuery }, config: { operation } }, async ({ query }) => {
    const { since, ...filter } = query;
    const moment = since === undefined ? undefined : momentIn(since);
    if (moment === null) {
      throw Refusal.invalid([{ path: 'since', message: 'since must be a date and time that there is' }]);
    }
    const paging = pagingOf(query);
    return successPage('Events retrieved', await listEvents(database, { ...filter, since: moment }, paging), paging);
  });
};
