import { sql } from '../../database/kysely.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import type { RegistryDatabase } from '../registry-database.js';
import { storedForms } from './checked-batch.js';
import type { Period } from './list-response.js';
import { sumOf } from './read-hours.js';
import type { AddressRow, AgentRow, GatewayRow, HostRow } from './schema.js';

/** Which usage to list: the days of a period, for one merchant or one of its keys. */
export interface DaysFilter extends Period {
  /** Empty: requests without a known key, which belong to no merchant. */
  readonly merchantId: string;
  readonly key?: string | undefined;
}

const timeOf = (at: number): string => new Date(at).toISOString();

/**
 * Returns one page of the list of addresses by day. The newest day comes first; within a day, the address with the most
 * requests comes first.
 */
export async function listAddresses(
  database: RegistryDatabase,
  { merchantId, since, until, key, address }: DaysFilter & { readonly address?: string | undefined },
  paging: Paging,
): Promise<Page<AddressRow>> {
  let wanted = database.selectFrom('usage_addresses').where('merchant_id', '=', merchantId);
  wanted = wanted.where('day', '>=', since).where('day', '<', until);
  if (key !== undefined) wanted = wanted.where('key_id', '=', key);
  if (address !== undefined) wanted = wanted.where('address', 'in', storedForms(address));
  const { offset, limit } = rangeOf(paging);
  const all = wanted.select(['day', 'address']).groupBy(['day', 'address']);
  const { total } = await database
    .selectFrom(all.as('counted'))
    .select((it) => it.fn.countAll<number>().as('total'))
    .executeTakeFirstOrThrow();
  const rows = await all
    .select([
      ...[sumOf('accepted').as('accepted'), sumOf('refused').as('refused')],
      (it) => it.fn.max('country').as('country'),
      (it) => it.fn.max('as_number').as('as_number'),
      (it) => it.fn.min<number>('first_at').as('first_at'),
      (it) => it.fn.max<number>('last_at').as('last_at'),
    ])
    .orderBy('day', 'desc')
    .orderBy(sql`sum(accepted) + sum(refused)`, 'desc')
    .orderBy('address')
    .offset(offset)
    .limit(limit)
    .execute();
  const items = rows.map((row) => ({
    ...{ day: timeOf(row.day), address: orOthers(row.address), country: row.country, asNumber: row.as_number },
    ...{ accepted: row.accepted, refused: row.refused, firstAt: timeOf(row.first_at), lastAt: timeOf(row.last_at) },
  }));
  return { items, totalRecords: total };
}

function orOthers(name: string): string | null {
  return name === '' ? null : name;
}

/**
 * Returns one page of the list of hosts (from Origin or Referer) by day. The newest day comes first; within a day, the
 * host with the most requests comes first.
 */
export async function listHosts(
  database: RegistryDatabase,
  { merchantId, since, until }: DaysFilter,
  paging: Paging,
): Promise<Page<HostRow>> {
  const ofMerchant = database.selectFrom('usage_hosts').where('merchant_id', '=', merchantId);
  const wanted = ofMerchant.where('day', '>=', since).where('day', '<', until);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const { offset, limit } = rangeOf(paging);
  const rows = await wanted
    .select(['day', 'header', 'host', 'accepted', 'refused'])
    .orderBy('day', 'desc')
    .orderBy(sql`accepted + refused`, 'desc')
    .orderBy('host')
    .orderBy('header')
    .offset(offset)
    .limit(limit)
    .execute();
  const items = rows.map(({ day, header, host, accepted, refused }) => ({
    ...{ day: timeOf(day), header: orOthers(header), host: orOthers(host), accepted, refused },
  }));
  return { items, totalRecords: total };
}

/**
 * Returns one page of the list of a key's User-Agents by day. The newest day comes first; within a day, the User-Agent
 * with the most requests comes first.
 */
export async function listAgents(
  database: RegistryDatabase,
  { merchantId, since, until, key = '' }: DaysFilter,
  paging: Paging,
): Promise<Page<AgentRow>> {
  const ofKey = database.selectFrom('usage_agents').where('merchant_id', '=', merchantId).where('key_id', '=', key);
  const wanted = ofKey.where('day', '>=', since).where('day', '<', until);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const { offset, limit } = rangeOf(paging);
  const rows = await wanted
    .select(['day', 'agent', 'count'])
    .orderBy('day', 'desc')
    .orderBy('count', 'desc')
    .orderBy('agent')
    .offset(offset)
    .limit(limit)
    .execute();
  const items = rows.map(({ day, agent, count }) => ({ day: timeOf(day), agent: orOthers(agent), requests: count }));
  return { items, totalRecords: total };
}

/**
 * Maximum age of the newest batch of a running gateway process. A process whose newest batch is older is listed as
 * incomplete, unless the process has sent its closing batch.
 */
const silentMilliseconds = 30_000;

/** Returns one page of the gateway processes. The process whose newest batch arrived last comes first. */
export async function listGateways(
  database: RegistryDatabase,
  filter: { readonly environment?: string | undefined; readonly state?: string | undefined; readonly now: number },
  paging: Paging,
): Promise<Page<GatewayRow>> {
  const { environment, state, now } = filter;
  let wanted = database.selectFrom('usage_processes');
  if (environment !== undefined) wanted = wanted.where('environment', '=', environment);
  if (state !== undefined) wanted = wanted.where('is_ended', '=', state === 'ended' ? 1 : 0);
  if (state === 'running') wanted = wanted.where('received_at', '>=', now - silentMilliseconds);
  if (state === 'incomplete') wanted = wanted.where('received_at', '<', now - silentMilliseconds);
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const { offset, limit } = rangeOf(paging);
  const rows = await wanted
    .selectAll()
    .select((it) =>
      it
        .selectFrom('usage_gaps')
        .whereRef('usage_gaps.process', '=', 'usage_processes.process')
        .select(sql<number>`cast(coalesce(sum(last - first + 1), 0) as bigint)`.as('lost'))
        .as('lost'),
    )
    .orderBy('received_at', 'desc')
    .orderBy('process')
    .offset(offset)
    .limit(limit)
    .execute();
  return { items: rows.map((row) => toGateway(row, now)), totalRecords: total };
}

interface ProcessRow {
  readonly process: string;
  readonly instance: string;
  readonly environment: string;
  readonly sequence: number;
  readonly first_at: number;
  readonly last_at: number;
  readonly received_at: number;
  readonly is_ended: number;
  readonly dropped_refusals: number;
  readonly dropped_rows: number;
  readonly lost: number | null;
}

function toGateway(row: ProcessRow, now: number): GatewayRow {
  const { process, instance, environment, sequence, lost } = row;
  const isSilent = row.received_at < now - silentMilliseconds;
  const state = row.is_ended === 1 ? 'ended' : isSilent ? 'incomplete' : 'running';
  return {
    ...{ process, instance, environment, sequence, firstAt: timeOf(row.first_at), lastAt: timeOf(row.last_at) },
    ...{ receivedAt: timeOf(row.received_at), state },
    incompleteSince: state === 'incomplete' ? timeOf(row.last_at) : null,
    lostBatches: lost ?? 0,
    ...{ droppedRefusals: row.dropped_refusals, droppedRows: row.dropped_rows },
  };
}
