import type { Selectable } from '../../database/kysely.js';
import { type Page, type Paging, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { unusualRules } from '../../usage/unusual/finding.js';
import { makeUnpublishedChange } from '../change.js';
import type { Author } from '../events/author.js';
import type { RegistryContext } from '../registry-context.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { RegistryTables } from '../tables.js';
import type { findingDecisions, UnusualFinding } from './schema.js';

type FindingRow = Selectable<RegistryTables['unusual_findings']>;

/** The decision of an administrator about a finding. */
export type FindingDecision = (typeof findingDecisions)[number];

/** A filter of findings. A finding must match each given field. */
export interface FindingFilter {
  readonly merchantId?: string | undefined;
  readonly keyId?: string | undefined;
  readonly rule?: string | undefined;
  /** `open`: findings without a decision, or with the decision `look`. `answered`: findings with another decision. */
  readonly status?: 'open' | 'answered' | undefined;
  /**
   * If the caller is a member of a merchant, the id of that merchant: only its findings are listed. Null for other
   * callers.
   */
  readonly memberOf: string | null;
}

/** Returns one page of the findings, newest first. */
export async function listUnusual(
  database: RegistryDatabase,
  { merchantId, keyId, rule, status, memberOf }: FindingFilter,
  paging: Paging,
): Promise<Page<UnusualFinding>> {
  const { offset, limit } = rangeOf(paging);
  let wanted = database.selectFrom('unusual_findings');
  if (merchantId !== undefined) wanted = wanted.where('merchant_id', '=', merchantId);
  if (memberOf !== null) wanted = wanted.where('merchant_id', '=', memberOf);
  if (keyId !== undefined) wanted = wanted.where('key_id', '=', keyId);
  if (rule !== undefined) wanted = wanted.where('rule', '=', rule);
  if (status === 'answered') wanted = wanted.where('decision', 'in', ['fine', 'revoked']);
  if (status === 'open')
    wanted = wanted.where((it) => it.or([it('decision', 'is', null), it('decision', '=', 'look')]));
  const { total } = await wanted.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const rows = await wanted
    .selectAll()
    .orderBy('found_at', 'desc')
    .orderBy('id', 'desc')
    .offset(offset)
    .limit(limit)
    .execute();
  return { items: rows.map(toFinding), totalRecords: total };
}

/**
 * Finds a finding by its id.
 * @param memberOf the id of the only merchant whose findings the caller is allowed to see; null: the caller is allowed
 *   to see all findings
 * @throws Refusal
 */
export async function findUnusual(
  database: RegistryDatabase,
  id: string,
  memberOf: string | null,
): Promise<UnusualFinding> {
  const row = await database.selectFrom('unusual_findings').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined || (memberOf !== null && row.merchant_id !== memberOf)) throw Refusal.notFound('Finding');
  return toFinding(row);
}

/**
 * Stores the decision of an administrator about a finding, and an event about the decision. After the decision `fine`,
 * the finding's pattern of use is no longer reported for this key. After any other decision, the pattern is reported
 * again.
 * @throws Refusal
 */
export function decideUnusual(
  context: Pick<RegistryContext, 'database' | 'clock'>,
  author: Author,
  id: string,
  decision: FindingDecision,
): Promise<UnusualFinding> {
  return makeUnpublishedChange(context, author, async ({ transaction, now }) => {
    const before = await findUnusual(transaction, id, null);
    const row = await transaction
      .updateTable('unusual_findings')
      .set({ decision, decided_at: now, decided_by: author.actor })
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirstOrThrow();
    const { key_id, merchant_id, pattern } = row;
    const patterns = { key_id, pattern };
    if (decision === 'fine')
      await transaction
        .insertInto('usual_patterns')
        .values(patterns)
        .onConflict((conflict) => conflict.doNothing())
        .execute();
    else
      await transaction
        .deleteFrom('usual_patterns')
        .where('key_id', '=', key_id)
        .where('pattern', '=', pattern)
        .execute();
    const after = toFinding(row);
    const event = {
      action: 'key.unusual-use-decided',
      merchantId: merchant_id,
      keyId: key_id,
      before,
      after,
    } as const;
    return { result: after, events: [event] };
  });
}

/** Converts a row to a finding of the admin API. */
export function toFinding(row: FindingRow): UnusualFinding {
  return {
    id: row.id,
    keyId: row.key_id,
    merchantId: row.merchant_id,
    rule: row.rule,
    kind: row.pattern,
    foundAt: new Date(row.found_at).toISOString(),
    seenAt: new Date(row.seen_at).toISOString(),
    message: row.message,
    address: row.address,
    country: row.country,
    asNumber: row.as_number,
    decision: row.decision,
    decidedAt: row.decided_at === null ? null : new Date(row.decided_at).toISOString(),
    decidedBy: row.decided_by,
  };
}

/** Counts the findings of each rule; 0 for a rule without findings. */
export async function countUnusual(database: RegistryDatabase): Promise<ReadonlyMap<string, number>> {
  const rows = await database
    .selectFrom('unusual_findings')
    .select(['rule', (it) => it.fn.countAll<number>().as('count')])
    .groupBy('rule')
    .execute();
  return new Map([
    ...unusualRules.map((rule): [string, number] => [rule, 0]),
    ...rows.map(({ rule, count }): [string, number] => [rule, count]),
  ]);
}

/** Deletes the findings that were found before a time, in milliseconds since 1970. */
export async function deleteOldFindings(database: RegistryDatabase, before: number): Promise<void> {
  await database.deleteFrom('unusual_findings').where('found_at', '<', before).execute();
}

/** A rule. `isOff` is the reason why the rule is off; null if the rule is on. */
export interface RuleState {
  readonly rule: string;
  readonly isOff: string | null;
}

/** Returns when the newest finding was found, in milliseconds since 1970; null without findings. */
export async function newestFinding(database: RegistryDatabase): Promise<number | null> {
  const newest = database.selectFrom('unusual_findings').select('found_at').orderBy('found_at', 'desc').limit(1);
  return (await newest.executeTakeFirst())?.found_at ?? null;
}

const dayMilliseconds = 24 * 60 * 60 * 1000;
/** How far in the future a stored time may be, because the clocks of registries differ. */
export const aheadMilliseconds = 60_000;

/**
 * Returns for each rule the reason why it is off, or null if it is on.
 * @param off the rules that the configuration turns off; null: all rules are off
 */
export async function ruleStates(
  database: RegistryDatabase,
  off: readonly string[] | null,
  now: number,
): Promise<RuleState[]> {
  const watch = await database.selectFrom('usage_watch').selectAll().executeTakeFirst();
  const isRecent = (at: number | null | undefined): boolean =>
    at !== null && at !== undefined && at <= now + aheadMilliseconds && now - at < dayMilliseconds;
  const noUsage = isRecent(watch?.last_at) ? null : 'no gateway has sent request counts in the last 24 hours';
  const without = (what: string): string => `no gateway has sent ${what} in the last 24 hours: see the option geoip`;
  const lacks = {
    'new-country': isRecent(watch?.country_at) ? null : without('the country of an address'),
    'new-network': isRecent(watch?.network_at) ? null : without('the network of an address'),
  };
  return unusualRules.map((rule) => {
    if (off === null || off.includes(rule)) return { rule, isOff: 'registry.unusual turns the rule off' };
    return { rule, isOff: noUsage ?? (lacks as Readonly<Record<string, string | null>>)[rule] ?? null };
  });
}
