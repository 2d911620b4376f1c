import { deleteFound, type GivenColumns, givenRows } from '../../database/dialects.js';
import { sql } from '../../database/kysely.js';
import type { RegistryDatabase } from '../registry-database.js';
import { addressSums, agentSums, type BatchRows, hostSums } from './batch-rows.js';
import type { UsageTables } from './tables.js';

/** Maximum number of stored addresses per key and day. All further addresses are added up in one row. */
const mostAddresses = 100;
/** Maximum number of stored User-Agents per key and day. All further User-Agents are added up in one row. */
const mostAgents = 20;
/** Maximum number of stored hosts per merchant and day. All further hosts are added up in one row. */
const mostHosts = 200;
/** Maximum number of addresses per day that are stored for requests without a known key. */
const mostUnknownAddresses = 1_000;
/** Maximum number of stored refusals per merchant. */
const mostRefusals = 1_000;

const ofKey = { day: 'bigint', merchant_id: 'text', key_id: 'text' } as const;
const ofMerchant = { day: 'bigint', merchant_id: 'text' } as const;

/** A table whose rows accumulate usage: each batch adds to sums, or replaces a lowest, highest or newest value. */
interface SumTable {
  readonly name: keyof UsageTables;
  /** The primary key. */
  readonly key: GivenColumns;
  /** Columns that are added up. */
  readonly sums: GivenColumns;
  /** Columns that keep the lowest value. */
  readonly lowest?: GivenColumns;
  /** Columns that keep the highest value. */
  readonly highest?: GivenColumns;
  /** Columns that keep the newest value that is not null. */
  readonly newest?: GivenColumns;
}

const hours: SumTable = {
  name: 'usage_hours',
  key: { hour: 'bigint', merchant_id: 'text', key_id: 'text', environment: 'text', code: 'text' },
  sums: { count: 'bigint', total_milliseconds: 'double precision', request_bytes: 'bigint', response_bytes: 'bigint' },
  highest: { slowest_milliseconds: 'double precision' },
};
const addresses: SumTable = {
  name: 'usage_addresses',
  key: { ...ofKey, address: 'text' },
  sums: { accepted: 'bigint', refused: 'bigint' },
  ...{ lowest: { first_at: 'bigint' }, highest: { last_at: 'bigint' } },
  newest: { country: 'text', as_number: 'bigint' },
};
const agents: SumTable = { name: 'usage_agents', key: { ...ofKey, agent: 'text' }, sums: { count: 'bigint' } };
const hosts: SumTable = {
  name: 'usage_hosts',
  key: { ...ofMerchant, header: 'text', host: 'text' },
  sums: { accepted: 'bigint', refused: 'bigint' },
};

/** Adds the rows of a batch. Call `lockUsage` in the same transaction before this. */
export async function addRows(transaction: RegistryDatabase, rows: BatchRows): Promise<void> {
  await addSums(transaction, hours, rows.hours);
  const addressLimit = ({ merchant_id }: { merchant_id: string }): number =>
    merchant_id === '' ? mostUnknownAddresses : mostAddresses;
  const withOtherAddress = await withinLimit(transaction, rows.addresses, {
    ...{ table: addresses, owner: ofKey, items: ['address'], most: addressLimit },
    other: (row) => ({ ...row, address: '', country: null, as_number: null }),
    sums: addressSums(),
  });
  await addSums(transaction, addresses, withOtherAddress);
  const withOtherAgent = await withinLimit(transaction, rows.agents, {
    ...{ table: agents, owner: ofKey, items: ['agent'], most: () => mostAgents },
    other: (row) => ({ ...row, agent: '' }),
    sums: agentSums(),
  });
  await addSums(transaction, agents, withOtherAgent);
  const withOtherHost = await withinLimit(transaction, rows.hosts, {
    ...{ table: hosts, owner: ofMerchant, items: ['header', 'host'], most: () => mostHosts },
    other: (row) => ({ ...row, header: '', host: '' }),
    sums: hostSums(),
  });
  await addSums(transaction, hosts, withOtherHost);
  await addLastUses(transaction, rows.keys);
  await addRefusals(transaction, rows.refusals);
}

/** Stores rows. If a stored row has the same primary key, combines the values of both rows. */
async function addSums(transaction: RegistryDatabase, table: SumTable, rows: readonly object[]): Promise<void> {
  if (rows.length === 0) return;
  const { name, key, sums, lowest = {}, highest = {}, newest = {} } = table;
  const columns = { ...key, ...sums, ...lowest, ...highest, ...newest };
  const names = sql.join(Object.keys(columns).map((column) => sql.id(column)));
  const sets = [
    ...Object.keys(sums).map((column) => sql`${sql.id(column)} = ${sql.id(name, column)} + excluded.${sql.id(column)}`),
    ...Object.keys(lowest).map((column) => chosen(name, column, '<')),
    ...Object.keys(highest).map((column) => chosen(name, column, '>')),
    ...Object.keys(newest).map(
      (column) => sql`${sql.id(column)} = coalesce(excluded.${sql.id(column)}, ${sql.id(name, column)})`,
    ),
  ];
  // Without `where true`, SQLite would parse `on conflict` as the condition of a join.
  await sql`
    insert into ${sql.table(name)} (${names})
    select ${names} from ${givenRows(transaction, rows, columns)} where true
    on conflict (${sql.join(Object.keys(key).map((column) => sql.id(column)))}) do update set ${sql.join(sets)}
  `.execute(transaction);
}

function chosen(table: string, column: string, comparison: '<' | '>') {
  const [now, given] = [sql.id(table, column), sql`excluded.${sql.id(column)}`];
  return sql`${sql.id(column)} = case when ${given} ${sql.raw(comparison)} ${now} then ${given} else ${now} end`;
}

/** The limit of a list, such as a key's addresses on one day. */
interface Limit<Row> {
  readonly table: SumTable;
  /** The columns that identify the list. */
  readonly owner: GivenColumns;
  /** The columns that identify an entry of the list. */
  readonly items: readonly (keyof Row & string)[];
  /** Returns the maximum number of entries in the list to which a row belongs. */
  readonly most: (row: Row) => number;
  /** Converts a row beyond the limit to the row that adds up all further entries of its list. */
  readonly other: (row: Row) => Row;
  readonly sums: { add(row: Row): void; readonly rows: Row[] };
}

/**
 * Returns the rows to store. If a list would exceed its limit, its further new entries are added up in one row, so that
 * the totals of the list stay correct.
 */
async function withinLimit<Row extends object>(
  transaction: RegistryDatabase,
  rows: readonly Row[],
  { table, owner, items, most, other, sums }: Limit<Row>,
): Promise<Row[]> {
  if (rows.length === 0) return [];
  const isOther = (row: Row): boolean => items.every((item) => row[item] === '');
  const textOf = (row: object, columns: readonly string[]): string =>
    JSON.stringify(columns.map((column) => Reflect.get(row, column) as unknown));
  const [keyNames, ownerNames] = [Object.keys(table.key), Object.keys(owner)];
  const same = (columns: readonly string[]) =>
    sql.join(
      columns.map((column) => sql`stored.${sql.id(column)} = given.${sql.id(column)}`),
      sql` and `,
    );
  const stored = sql`${sql.table(table.name)} as stored`;
  const known = await sql<object>`
    select ${sql.join(keyNames.map((column) => sql`stored.${sql.id(column)}`))}
    from ${givenRows(transaction, rows, table.key)} join ${stored} on ${same(keyNames)}
  `.execute(transaction);
  const knownRows = new Set(known.rows.map((row) => textOf(row, keyNames)));
  const newRows = rows.filter((row) => !isOther(row) && !knownRows.has(textOf(row, keyNames)));
  if (newRows.length === 0) return [...rows];
  const lists = new Map(newRows.map((row) => [textOf(row, ownerNames), row]));
  const named = items.map((item) => sql`stored.${sql.id(item)} <> ''`);
  const counts = await sql<{ count: number }>`
    select ${sql.join(ownerNames.map((column) => sql`given.${sql.id(column)}`))},
      (select count(*) from ${stored} where ${same(ownerNames)} and (${sql.join(named, sql` or `)})) as count
    from ${givenRows(transaction, [...lists.values()], owner)}
  `.execute(transaction);
  const lengths = new Map(counts.rows.map((row) => [textOf(row, ownerNames), row.count]));
  const fresh = new Set(newRows);
  for (const row of rows) {
    const list = textOf(row, ownerNames);
    const length = lengths.get(list) ?? 0;
    if (!fresh.has(row)) sums.add(row);
    else if (length >= most(row)) sums.add(other(row));
    else {
      lengths.set(list, length + 1);
      sums.add(row);
    }
  }
  return sums.rows;
}

const lastUseColumns: GivenColumns = {
  ...{ key_id: 'text', merchant_id: 'text', last_at: 'bigint', last_address: 'text', last_country: 'text' },
};

async function addLastUses(transaction: RegistryDatabase, rows: BatchRows['keys']): Promise<void> {
  if (rows.length === 0) return;
  const names = sql.join(Object.keys(lastUseColumns).map((column) => sql.id(column)));
  await sql`
    insert into usage_keys (${names})
    select ${names} from ${givenRows(transaction, rows, lastUseColumns)} where true
    on conflict (key_id) do update set merchant_id = excluded.merchant_id, last_at = excluded.last_at,
      last_address = excluded.last_address, last_country = excluded.last_country
    where excluded.last_at > usage_keys.last_at
  `.execute(transaction);
}

const refusalColumns: GivenColumns = {
  ...{ merchant_id: 'text', seq: 'bigint', at: 'bigint', environment: 'text', code: 'text', status: 'bigint' },
  ...{ method: 'text', path: 'text', address: 'text', key_id: 'text', header_name: 'text', header_value: 'text' },
  request_id: 'text',
};

/**
 * Stores refusals. Each refusal gets the next number of its merchant. Keeps only the newest refusals of each merchant,
 * up to the limit. The row of the merchant in `usage_merchants` stays locked until the commit, so numbers become
 * visible in ascending order.
 */
async function addRefusals(transaction: RegistryDatabase, rows: BatchRows['refusals']): Promise<void> {
  if (rows.length === 0) return;
  const added = new Map<string, number>();
  for (const { merchant_id } of rows) added.set(merchant_id, (added.get(merchant_id) ?? 0) + 1);
  const given = [...added].map(([merchant_id, refusals]) => ({ merchant_id, refusals }));
  const counted = await sql<UsageTables['usage_merchants']>`
    insert into usage_merchants (merchant_id, refusals)
    select merchant_id, refusals from ${givenRows(transaction, given, { merchant_id: 'text', refusals: 'bigint' })}
    where true
    on conflict (merchant_id) do update set refusals = usage_merchants.refusals + excluded.refusals
    returning merchant_id, refusals
  `.execute(transaction);
  const ends = new Map(counted.rows.map(({ merchant_id, refusals }) => [merchant_id, refusals]));
  const endOf = (merchant: string): number => ends.get(merchant) ?? 0;
  const numbered = rows
    .map((row) => ({ ...row, seq: endOf(row.merchant_id) - (added.get(row.merchant_id) ?? 0) + row.seq }))
    .filter(({ merchant_id, seq }) => seq > endOf(merchant_id) - mostRefusals);
  const names = sql.join(Object.keys(refusalColumns).map((column) => sql.id(column)));
  await sql`
    insert into usage_refusals (${names}) select ${names} from ${givenRows(transaction, numbered, refusalColumns)}
  `.execute(transaction);
  const full = counted.rows.filter(({ refusals }) => refusals > mostRefusals);
  if (full.length === 0) return;
  const ending = full.map(({ merchant_id, refusals }) => ({ merchant_id, seq: refusals - mostRefusals }));
  await deleteFound(
    transaction,
    'usage_refusals',
    sql`join ${givenRows(transaction, ending, { merchant_id: 'text', seq: 'bigint' })}
      on found.merchant_id = given.merchant_id and found.seq <= given.seq`,
  );
}
