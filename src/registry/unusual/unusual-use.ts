import { ulid } from 'ulid';
import type { UsageBatch, KeyUsage } from '../../usage/batch.js';
import type { KeyState } from '../../usage/unusual/key-state.js';
import type { Finding, Thresholds, UnusualRule } from '../../usage/unusual/finding.js';
import { observe } from '../../usage/unusual/observe.js';
import { lockRevision } from '../change.js';
import { registryAuthor } from '../events/author.js';
import { recordEvents } from '../events/repository.js';
import type { RegistryDatabase } from '../registry-database.js';
import { aheadMilliseconds, toFinding } from './findings.js';
import type { UnusualFinding } from './schema.js';
import { enqueueWebhooks } from './webhooks.js';

/** Maximum number of rows per statement, because SQLite and PostgreSQL limit the number of parameters. */
const rowsPerStatement = 400;
/**
 * If no usage arrives for this long, the registry cannot know which keys were idle meanwhile, so observation starts
 * anew.
 */
const interruptionMilliseconds = 24 * 60 * 60 * 1000;
const watchMilliseconds = 60_000;

interface KnownKey {
  readonly keyId: string;
  readonly merchantId: string;
  readonly usages: KeyUsage[];
}

interface Found {
  readonly key: KnownKey;
  readonly finding: Finding;
}

/** The thresholds of the rules about unusual use, and the webhooks that get their findings. */
export interface UnusualOptions {
  readonly thresholds: Thresholds;
  /** Digests of the webhook URLs. */
  readonly targets: readonly string[];
}

/** Compares the usage in gateways' batches with the earlier use of the keys, and stores unusual use as findings. */
export class UnusualUse {
  readonly #options: UnusualOptions;

  constructor(options: UnusualOptions) {
    this.#options = options;
  }

  /** The rules that the configuration turns off. */
  get off(): readonly UnusualRule[] {
    return this.#options.thresholds.off;
  }

  /**
   * Observes one batch of usage counts. Call this in the transaction that adds the batch, so that each batch is
   * observed exactly once. Locks the rows of the keys, so that concurrent processes see each other's changes.
   */
  async observe(transaction: RegistryDatabase, batch: UsageBatch, now: number): Promise<void> {
    // Test keys are not observed, because developers use them from anywhere.
    if (batch.environment !== 'live') return;
    const watchedSince = await watch(transaction, batch, now);
    const keys = await knownKeys(transaction, batch.keys);
    const found: Found[] = [];
    for (let from = 0; from < keys.length; from += rowsPerStatement) {
      const some = keys.slice(from, from + rowsPerStatement);
      const states = await lockedStates(transaction, some);
      const changed: { key_id: string; state: string }[] = [];
      for (const key of some) {
        const text = states.get(key.keyId) ?? '';
        let state = stateIn(text);
        for (const usage of key.usages) {
          const observed = observe(state, usage, { now, from: batch.from, watchedSince }, this.#options.thresholds);
          state = observed.state;
          found.push(...observed.findings.map((finding) => ({ key, finding })));
        }
        const after = JSON.stringify(state);
        if (after !== text) changed.push({ key_id: key.keyId, state: after });
      }
      await writeStates(transaction, changed);
    }
    await this.#report(transaction, await withoutUsual(transaction, found), now);
  }

  async #report(transaction: RegistryDatabase, found: readonly Found[], now: number): Promise<void> {
    if (found.length === 0) return;
    // Locks the revision (number of the newest change) until the commit, because events must be stored in the order of
    // their revisions.
    const revision = await lockRevision(transaction);
    const findings: UnusualFinding[] = [];
    for (const { key, finding } of found) {
      const { rule, pattern, at, message, address, country, asNumber } = finding;
      const row = await transaction
        .insertInto('unusual_findings')
        .values({
          ...{ id: `unu_${ulid(now)}`, key_id: key.keyId, merchant_id: key.merchantId, rule, pattern, found_at: now },
          ...{ seen_at: at, message, address, country, as_number: asNumber },
          ...{ decision: null, decided_at: null, decided_by: null },
        })
        .returningAll()
        .executeTakeFirstOrThrow();
      findings.push(toFinding(row));
    }
    const events = findings.map(
      (after) =>
        ({ action: 'key.unusual-use', merchantId: after.merchantId, keyId: after.keyId, before: null, after }) as const,
    );
    await recordEvents(transaction, events, { at: now, author: registryAuthor, revision });
    await enqueueWebhooks(transaction, findings, this.#options.targets, now);
  }
}

/**
 * Stores when usage last arrived, and when usage with countries or networks last arrived. Writes these times at most
 * once a minute. A rule about countries or networks is off if no such data has arrived for a day.
 * @returns the start of the period in which usage has arrived without an interruption of a day, in milliseconds since
 *   1970
 */
async function watch(transaction: RegistryDatabase, batch: UsageBatch, now: number): Promise<number> {
  const addresses = batch.keys.flatMap((key) => key.addresses);
  const has = {
    country: addresses.some(({ country }) => country !== null),
    network: addresses.some(({ country, asNumber }) => country !== null || asNumber !== null),
  };
  const row = await transaction.selectFrom('usage_watch').selectAll().where('id', '=', 1).executeTakeFirst();
  // A stored time that is more than a minute in the future comes from a wrong clock, so it is replaced.
  const isAhead = (at: number | null | undefined): boolean => (at ?? 0) > now + aheadMilliseconds;
  const isNew = row === undefined || now - row.last_at > interruptionMilliseconds;
  const since = isNew ? now : Math.min(row.since, now);
  const isDue = (at: number | null | undefined): boolean => now - (at ?? 0) >= watchMilliseconds || isAhead(at);
  const isNews =
    isDue(row?.last_at) || (has.country && isDue(row?.country_at)) || (has.network && isDue(row?.network_at));
  if (!isNews) return since;
  const next = {
    ...{ since, last_at: isAhead(row?.last_at) ? now : Math.max(now, row?.last_at ?? 0) },
    country_at: has.country ? now : (row?.country_at ?? null),
    network_at: has.network ? now : (row?.network_at ?? null),
  };
  await transaction
    .insertInto('usage_watch')
    .values({ id: 1, ...next })
    .onConflict((conflict) => conflict.column('id').doUpdateSet(next))
    .execute();
  return since;
}

/**
 * Finds the active keys of a batch by id or lookup id (the hash of a key). Sorts them: concurrent transactions then
 * lock rows in the same order and cannot deadlock.
 */
async function knownKeys(transaction: RegistryDatabase, usages: readonly KeyUsage[]): Promise<KnownKey[]> {
  const known = new Map<string, KnownKey>();
  for (let from = 0; from < usages.length; from += rowsPerStatement) {
    const some = usages.slice(from, from + rowsPerStatement);
    const ids = some.flatMap(({ keyId }) => keyId ?? []);
    const lookupIds = some.flatMap(({ keyId, lookupId }) => (keyId === null && lookupId !== null ? [lookupId] : []));
    const active = transaction.selectFrom('api_keys').select(['key_id', 'merchant_id', 'lookup_id']);
    const rows = [
      ...(ids.length === 0 ? [] : await active.where('status', '=', 'ACTIVE').where('key_id', 'in', ids).execute()),
      ...(lookupIds.length === 0
        ? []
        : await active.where('status', '=', 'ACTIVE').where('lookup_id', 'in', lookupIds).execute()),
    ];
    const byName = new Map(rows.flatMap((row) => [[row.key_id, row] as const, [row.lookup_id, row] as const]));
    for (const usage of some) {
      const row = byName.get(usage.keyId ?? usage.lookupId ?? '');
      if (row === undefined) continue;
      const key = known.get(row.key_id) ?? { keyId: row.key_id, merchantId: row.merchant_id, usages: [] };
      key.usages.push(usage);
      known.set(row.key_id, key);
    }
  }
  return [...known.values()].sort((one, other) => (one.keyId < other.keyId ? -1 : 1));
}

/** Returns the stored states of keys ('' for a new key), and locks their rows until the end of the transaction. */
async function lockedStates(transaction: RegistryDatabase, keys: readonly KnownKey[]): Promise<Map<string, string>> {
  if (keys.length === 0) return new Map();
  const rows = await transaction
    .insertInto('key_habits')
    .values(keys.map(({ keyId }) => ({ key_id: keyId, state: '' })))
    // Sets an existing state to itself. This changes nothing, but locks the row and returns it in the same statement.
    .onConflict((conflict) => conflict.column('key_id').doUpdateSet((it) => ({ state: it.ref('key_habits.state') })))
    .returning(['key_id', 'state'])
    .execute();
  return new Map(rows.map(({ key_id, state }) => [key_id, state]));
}

async function writeStates(
  transaction: RegistryDatabase,
  changed: readonly { readonly key_id: string; readonly state: string }[],
): Promise<void> {
  if (changed.length === 0) return;
  await transaction
    .insertInto('key_habits')
    .values(changed)
    .onConflict((conflict) => conflict.column('key_id').doUpdateSet((it) => ({ state: it.ref('excluded.state') })))
    .execute();
}

/**
 * Parses the stored state of a key. Returns null if the text is empty, or if another release wrote a version of the
 * state that this release cannot read. The key's history then starts anew.
 */
function stateIn(text: string): KeyState | null {
  const state = text === '' ? null : (JSON.parse(text) as KeyState | { readonly version: unknown });
  return state?.version === 1 ? (state as KeyState) : null;
}

/** Returns the findings without those whose pattern an administrator accepted for the key. */
async function withoutUsual(transaction: RegistryDatabase, found: readonly Found[]): Promise<Found[]> {
  if (found.length === 0) return [];
  const ids = [...new Set(found.map(({ key }) => key.keyId))];
  const usual = new Set<string>();
  for (let from = 0; from < ids.length; from += rowsPerStatement) {
    const some = ids.slice(from, from + rowsPerStatement);
    const rows = await transaction.selectFrom('usual_patterns').selectAll().where('key_id', 'in', some).execute();
    for (const { key_id, pattern } of rows) usual.add(`${key_id} ${pattern}`);
  }
  return found.filter(({ key, finding }) => !usual.has(`${key.keyId} ${finding.pattern}`));
}
