import { actorForm } from '../../rest/actor.js';
import Type, { type Static } from '../../typebox/typebox.js';

const moment = Type.String({ format: 'date-time' });
const momentOrNull = Type.Union([Type.Null(), moment]);

/** The body of `POST /console-links`. */
export const newLinkBody = Type.Object({
  administrator: Type.Optional(
    Type.String({
      pattern: actorForm,
      description:
        'the name or the id of an administrator; default: the caller or, with the shared token, the only active owner',
    }),
  ),
});

/** A one-time link to the console. The registry returns the URL only once, when the link is created. */
export const linkSchema = Type.Object({
  url: Type.String(),
  expiresAt: moment,
  administratorId: Type.String(),
  name: Type.String(),
});

/** A one-time link, as the admin API shows it. */
export type ConsoleLink = Static<typeof linkSchema>;

/** The body of `POST /console/api/enter`. */
export const enterBody = Type.Object({
  token: Type.String({ pattern: /^[A-Za-z0-9_-]{43}$/, description: 'the part of the link after #' }),
});

/** A session of the console, as the admin API shows it. */
export const consoleSessionSchema = Type.Object({
  id: Type.String(),
  administratorId: Type.String(),
  name: Type.String({ description: 'the name of the administrator' }),
  createdAt: moment,
  lastSeenAt: moment,
  provenAt: momentOrNull,
  provenBy: Type.Enum(['link', 'oidc']),
  expiresAt: moment,
  source: Type.String({ description: 'the IP address from which the person signed in' }),
  browser: Type.String({ description: 'the User-Agent of the browser' }),
  isCurrent: Type.Boolean({ description: 'true: the session that makes this request' }),
});

/** A session of the console in the admin API. */
export type ConsoleSession = Static<typeof consoleSessionSchema>;
