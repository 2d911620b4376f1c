import { dateTimeForm } from '../../rest/moment.js';
import { withPurpose } from '../../rest/openapi/json-schema.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { identifierForm } from '../fields.js';

const count = Type.Integer({ minimum: 0 });
const moment = Type.String({ format: 'date-time' });
const orNull = <Schema extends Parameters<typeof Type.Union>[0][number]>(schema: Schema) =>
  Type.Union([Type.Null(), schema]);
const text = orNull(Type.String());

/** Requests of one hour, day, key or result code, depending on `by` in the query. */
export const usageRowSchema = Type.Object({
  from: orNull(
    Type.String({ format: 'date-time', description: 'The start of the hour or day; only with by=hour or by=day' }),
  ),
  keyId: orNull(Type.String({ description: 'The id of the key; only with by=key' })),
  code: orNull(Type.String({ description: 'The result code; only with by=code' })),
  ...{ requests: count, accepted: count, refused: count },
  averageMilliseconds: Type.Number({ minimum: 0 }),
  slowestMilliseconds: Type.Number({ minimum: 0 }),
  ...{ requestBytes: count, responseBytes: count },
  codes: Type.Array(Type.Object({ code: Type.String(), requests: count })),
});

/** Requests from one address on one day. */
export const addressRowSchema = Type.Object({
  day: moment,
  address: orNull(
    Type.String({
      description:
        'An address, or the network that is stored in its place; null in the row for the other addresses of the day, which have no row of their own',
    }),
  ),
  country: text,
  asNumber: orNull(count),
  ...{ accepted: count, refused: count, firstAt: moment, lastAt: moment },
});

/**
 * Requests with one host on one day. The host comes from Origin, or from Referer if the request has no Origin. Requests
 * with neither header are not in this list.
 */
export const hostRowSchema = Type.Object({
  day: moment,
  header: orNull(
    Type.String({
      description: 'The header that named the host: Origin, or Referer in a request without Origin',
    }),
  ),
  host: orNull(
    Type.String({
      description:
        'The host in the header; null in the row for the other hosts of the day, which have no row of their own',
    }),
  ),
  ...{ accepted: count, refused: count },
});

/** Accepted requests with one User-Agent on one day. */
export const agentRowSchema = Type.Object({
  day: moment,
  agent: orNull(
    Type.String({
      description:
        'The User-Agent; null in the row for the other User-Agents of the day, which have no row of their own',
    }),
  ),
  requests: count,
});

/** The last accepted request with a key; null if no request with the key was accepted. */
export const lastUse = orNull(Type.Object({ at: moment, address: Type.String(), country: text }));

/** A key and its last use. */
export const lastUseSchema = Type.Object({ keyId: Type.String(), merchantId: Type.String(), lastUse });

/** A refused request. */
export const refusalSchema = Type.Object({
  id: Type.Integer({ minimum: 1 }),
  ...{ at: moment, environment: Type.String(), code: Type.String(), status: Type.Integer() },
  message: orNull(
    Type.String({
      description: 'The message of the response; null if this release of the registry does not know the code',
    }),
  ),
  /** What the refusal means, and what to do about it; null if this release does not know the code. */
  ...{ meaning: text, remedy: text },
  ...{ method: Type.String(), path: Type.String(), address: text, keyId: text },
  header: orNull(Type.Object({ name: Type.String(), value: Type.String() })),
  requestId: Type.String(),
});

/** A gateway process that sends usage counts. */
export const gatewayRowSchema = Type.Object({
  ...{ process: Type.String(), instance: Type.String(), environment: Type.String(), sequence: count },
  ...{ firstAt: moment, lastAt: moment, receivedAt: moment },
  state: Type.Enum(['running', 'ended', 'incomplete']),
  incompleteSince: orNull(moment),
  lostBatches: count,
  ...{ droppedRefusals: count, droppedRows: count },
});

/** The verdict on an IP allowlist: which of the accepted requests the list would have refused. */
export const verdictSchema = Type.Object({
  allow: Type.Array(Type.String()),
  ...{ since: moment, until: moment },
  requests: Type.Integer({
    minimum: 0,
    description: 'Number of accepted requests in the period from `since` to `until`',
  }),
  refused: Type.Object({
    ...{ requests: count, addresses: count },
    ...{ firstAt: orNull(moment), lastAt: orNull(moment) },
  }),
  // Optional, because a registry of the previous release does not send this field.
  entries: Type.Optional(
    Type.Array(
      Type.Object({
        entry: Type.String(),
        addresses: Type.String({ description: 'Number of addresses that the entry admits, as a decimal string' }),
        concern: orNull(
          Type.String({
            description:
              'Why a request that sets the allowlist must confirm this entry; null if no confirmation is needed',
          }),
        ),
      }),
      { description: 'The entries of the allowlist in their canonical form' },
    ),
  ),
  uncertain: Type.Integer({
    minimum: 0,
    description:
      'Number of accepted requests that the allowlist might have refused. The registry has stored no address or network for them, or the allowlist admits only a part of the stored network',
  }),
  addresses: Type.Array(
    Type.Object({ address: Type.String(), country: text, requests: count, firstAt: moment, lastAt: moment }),
    {
      description:
        'At most 100 addresses that the allowlist would have refused; those with the most requests come first',
    },
  ),
});

/** A row of a list of request counts in the admin API. */
export type UsageRow = Static<typeof usageRowSchema>;
export type AddressRow = Static<typeof addressRowSchema>;
export type HostRow = Static<typeof hostRowSchema>;
export type AgentRow = Static<typeof agentRowSchema>;
export type Refusal = Static<typeof refusalSchema>;
export type GatewayRow = Static<typeof gatewayRowSchema>;
export type Verdict = Static<typeof verdictSchema>;

const optionalMoment = (purpose: string) =>
  Type.Optional(
    withPurpose(
      Type.String({
        pattern: dateTimeForm,
        description: 'a date and time with its zone, such as 2026-01-31T12:00:00Z',
      }),
      purpose,
    ),
  );

const period = {
  since: optionalMoment('Beginning of the period, rounded down to a full hour or day; default: 7 days before the end'),
  until: optionalMoment('End of the period, rounded up to a full hour or day; default: now'),
};
const format = {
  format: Type.Optional(
    withPurpose(
      Type.Enum(['json', 'csv'], { type: 'string', description: 'json or csv' }),
      'json (the default) returns one page. csv returns the whole list as text/csv; page and per_page are then not allowed, and a list with more than 10,000 rows is rejected',
    ),
  ),
};
const key = Type.Optional(Type.String({ pattern: identifierForm, description: 'the id of a key' }));
const code = Type.Optional(
  Type.String({
    pattern: /^[a-z0-9_]{1,64}$/,
    description: 'accepted, or the code of a refusal, such as key_inactive',
  }),
);
const environment = Type.Optional(Type.Enum(['live', 'test'], { type: 'string', description: 'live or test' }));
const address = Type.Optional(
  Type.String({
    pattern: /^[0-9A-Fa-f.:/]{2,49}$/,
    description: 'an IP address, or a network that is stored in place of addresses, such as 192.0.2.0/24',
  }),
);

const listQuery = { ...pagingQuery.properties, ...format };
const timeOrCode = ['hour', 'day', 'code'] as const;

/** The query of `GET /merchants/:id/usage`. */
export const merchantUsageQuery = Type.Object({
  ...{ ...listQuery, ...period, code, environment, key },
  by: Type.Optional(
    Type.Enum([...timeOrCode, 'key'], { type: 'string', description: 'hour (the default), day, code or key' }),
  ),
});

/** The query of two lists: the usage of one key, and the requests without a known key. */
export const keyUsageQuery = Type.Object({
  ...{ ...listQuery, ...period, code, environment },
  by: Type.Optional(Type.Enum([...timeOrCode], { type: 'string', description: 'hour (the default), day or code' })),
});

/** The query of a list of addresses. */
export const addressesQuery = Type.Object({ ...listQuery, ...period, address });

/** The query of `GET /merchants/:id/addresses`. */
export const merchantAddressesQuery = Type.Object({ ...addressesQuery.properties, key });

/** The query of a list of hosts or User-Agents. */
export const daysQuery = Type.Object({ ...listQuery, ...period });

const longestAllow = 8_192;

/** The query of `GET /merchants/:id/addresses/verdict`. */
export const verdictQuery = Type.Object({
  ...period,
  allow: withPurpose(
    Type.String({
      ...{ maxLength: longestAllow, pattern: /^[0-9A-Fa-f.:/,]*$/ },
      description: 'a comma-separated list of IP addresses and CIDRs',
    }),
    'The IP allowlist to judge; empty: an allowlist that admits no address',
  ),
  key,
});

/** The query of `GET /merchants/:id/refusals`. */
export const refusalsQuery = Type.Object({
  ...{ ...listQuery, code, key, address, environment },
  requestId: Type.Optional(
    Type.String({
      pattern: /^[\x21-\x7e]{1,128}$/,
      description: 'the id of a request, as in the header x-request-id of its response',
    }),
  ),
  since: optionalMoment('Only refusals at this time or later'),
  until: optionalMoment('Only refusals before this time'),
  after: Type.Optional(
    withPurpose(
      Type.String({ pattern: /^(?:0|[1-9][0-9]{0,14})$/, description: 'a whole number: the id of a refusal' }),
      'Only refusals after the refusal with this id, oldest first',
    ),
  ),
});

/** The query of `GET /usage/gateways`. */
export const gatewaysQuery = Type.Object({
  ...listQuery,
  environment,
  state: Type.Optional(
    Type.Enum(['running', 'ended', 'incomplete'], {
      type: 'string',
      description: 'running, ended, or incomplete (sent nothing for 30 seconds and did not report its end)',
    }),
  ),
});

/** The response of `DELETE /merchants/:id/usage`. */
export const forgottenSchema = Type.Object({ rows: count });
