import { sql, type SqlBool } from '../../database/kysely.js';
import { Refusal } from '../../rest/refusal.js';
import type { RegistryDatabase } from '../registry-database.js';
import type { Author } from './author.js';
import type { NewEvent } from './repository.js';
import type { Action } from './schema.js';

/** Length of the time window of the three limits below. */
const windowMilliseconds = 60 * 60 * 1000;
/** Limit of changes of one kind by the members of one merchant within the time window. */
const mostChanges = 300;
/** Limit of the changes that one member makes to their own account (`ofEverybody`) within the time window. */
const mostOfOne = 50;
/**
 * Limit of the characters that the events of these changes store in `before` and `after` within the time window. The
 * number of changes alone is no limit for the disk: one change of an allowlist can store two lists of 300,000
 * characters.
 */
const mostCharacters = 5_000_000;

/**
 * The actions that count, one for each change. A reset of a key counts as the creation of the new key. Actions in
 * `ofEverybody` count if members do them for their own account. They have their own limit: otherwise a member who can
 * only read could use up the limit of the admins. Actions in `ofAdmins` count if they are not about the member's own
 * account. So a link that invites another member counts. A sign-in that creates or changes the person's own account
 * does not count.
 */
const kinds: Readonly<Record<'ofAdmins' | 'ofEverybody', readonly Action[]>> = {
  ofAdmins: [
    'merchant.changed',
    'key.created',
    'administrator.created',
    'administrator.changed',
    'console-link.created',
  ],
  ofEverybody: ['token.created', 'console-link.created'],
};

/**
 * The SQL condition that the administrator who caused an event is also its subject. The quotes in the patterns
 * prevent matches within other texts of the event, because JSON puts a backslash before each quote in a text.
 */
const isAboutAuthor = sql<SqlBool>`(
  "after" like ('%"administratorId":"' || administrator_id || '"%')
  or "after" like ('%"id":"' || administrator_id || '"%')
)`;

/**
 * Limits how fast the members of one merchant make changes. Otherwise they could fill the database and the gateways'
 * store, and then no revocation of any merchant would be in force. Other administrators have no limit, and their
 * changes do not count. Call this in the transaction of the change, before its events are stored.
 * @throws Refusal 429 if the members have reached the limit
 */
export async function limitMemberChanges(
  transaction: RegistryDatabase,
  { memberOf, administratorId }: Author,
  events: readonly NewEvent[],
  now: number,
): Promise<void> {
  if (memberOf === undefined || events.some((event) => isEmergencyReset(event, now))) return;
  for (const [kind, actions] of Object.entries(kinds)) {
    const isOfEverybody = kind === 'ofEverybody';
    const counts = (event: NewEvent): boolean =>
      isLimited(event, actions) && isAbout(event, administratorId) === isOfEverybody;
    if (!events.some(counts)) continue;
    let [changes, own, characters] = [0, 0, 0];
    for (const recent of await recentChanges(transaction, memberOf, { actions, isOfEverybody }, now)) {
      changes += 1;
      own += recent.administrator_id === administratorId ? 1 : 0;
      characters += (recent.charactersBefore ?? 0) + (recent.charactersAfter ?? 0);
      const isOver = changes >= mostChanges || characters >= mostCharacters;
      // Once `recent` has left the time window, the newer changes are below the limit.
      if (isOver || (isOfEverybody && own >= mostOfOne)) throw tooManyChanges(recent.at + windowMilliseconds - now);
    }
  }
}

/** Returns the changes by a merchant's members within the time window, newest first. */
async function recentChanges(
  transaction: RegistryDatabase,
  memberOf: string,
  { actions, isOfEverybody }: { readonly actions: readonly Action[]; readonly isOfEverybody: boolean },
  now: number,
) {
  const ofMerchant = transaction.selectFrom('events').where('merchant_id', '=', memberOf);
  // The index of events contains the sequence number but not the time. With this number, the next query reads only the
  // events within the time window, not all events of the merchant.
  const earlier = await ofMerchant
    .select('seq')
    .where('at', '<=', now - windowMilliseconds)
    .orderBy('seq', 'desc')
    .limit(1)
    .executeTakeFirst();
  return ofMerchant
    .select([
      ...(['at', 'administrator_id'] as const),
      (it) => it.fn<number | null>('length', ['before']).as('charactersBefore'),
      (it) => it.fn<number | null>('length', ['after']).as('charactersAfter'),
    ])
    .where('seq', '>', earlier?.seq ?? 0)
    .where('action', 'in', actions)
    .where((it) => (isOfEverybody ? isAboutAuthor : it.not(isAboutAuthor)))
    .where('administrator_id', 'in', (it) =>
      it.selectFrom('administrators').select('administrators.id').where('administrators.merchant_id', '=', memberOf),
    )
    .orderBy('seq', 'desc')
    .limit(mostChanges)
    .execute();
}

/**
 * Whether an event is about a change that the limit can refuse. It refuses no revocation: a merchant must be able to
 * stop a stolen key or token at any time. Disabling a member is a revocation too, because it stops the member's tokens.
 * Each revocation needs an earlier change that counts, so members cannot fill the database with revocations either.
 */
function isLimited({ action, before, after }: NewEvent, actions: readonly Action[]): boolean {
  const isDisabled = fieldOf(before, 'status') !== 'DISABLED' && fieldOf(after, 'status') === 'DISABLED';
  return actions.includes(action) && !(action === 'administrator.changed' && isDisabled);
}

/**
 * Whether an event is about a reset without a grace period, of a key that is older than the time window. The limit does
 * not refuse such a reset: the key could be stolen, and other members could have used up the limit on purpose. The new
 * key is younger than the time window, so the limit applies to a reset of the new key.
 */
function isEmergencyReset({ action, before, after }: NewEvent, now: number): boolean {
  if (action !== 'key.reset' || fieldOf(after, 'status') !== 'REVOKED') return false;
  const createdAt = fieldOf(before, 'createdAt');
  return typeof createdAt === 'string' && Date.parse(createdAt) <= now - windowMilliseconds;
}

/** Whether an administrator is the subject of an event; `isAboutAuthor` is the same condition for stored events. */
function isAbout({ after }: NewEvent, administratorId: string | null): boolean {
  return fieldOf(after, 'administratorId') === administratorId || fieldOf(after, 'id') === administratorId;
}

function fieldOf(state: object | null, name: string): unknown {
  return state === null ? null : (state as Readonly<Record<string, unknown>>)[name];
}

function tooManyChanges(waitMilliseconds: number): Refusal {
  // The clocks of two registries can differ, so the time of an event can be in the future.
  const seconds = Math.min(Math.max(1, Math.ceil(waitMilliseconds / 1000)), windowMilliseconds / 1000);
  const wait = seconds === 1 ? '1 second' : `${seconds} seconds`;
  const message = `You or the other members of this merchant have made too many changes within an hour: try again in ${wait}, or ask an operator. You can still revoke keys and tokens, and disable members. You can also reset a key without a grace period if the key is older than an hour`;
  return new Refusal(429, message, [], 'too_many_changes', {}, seconds);
}
