import type { FastifyReply, FastifyRequest } from 'fastify';
import { sql } from '../../database/kysely.js';
import { tryLock } from '../../database/dialects.js';
import { Refusal } from '../../rest/refusal.js';
import { tenantOf } from '../identity.js';
import type { RouteContext } from '../routes.js';
import type { ServicesDatabase, ServicesTransaction } from '../services-database.js';
import { idempotencyKeyIn } from './idempotency-key.js';
import { findAnswer, keepAnswer, type Answer } from './repository.js';
import { requestFingerprint } from './request-fingerprint.js';

/** Makes a record inside a database transaction; a Refusal undoes it. The result is the body of the answer. */
type Create = (transaction: ServicesDatabase) => Promise<object>;

const created = 201;

/**
 * Carries out a creating request, and where it has an idempotency key, once: the answer is kept in the database transaction
 * of the effect, so that a crash leaves both or neither. A refusal that came of looking at the records is kept as well; what
 * failed for want of a database is not, and may be sent again.
 */
export async function answerOnce(
  context: RouteContext,
  request: FastifyRequest,
  reply: FastifyReply,
  create: Create,
): Promise<object> {
  const { database, clock, running } = context;
  const key = idempotencyKeyIn(request);
  if (key === null) {
    const body = await database.transaction().execute(create);
    reply.code(created);
    return body;
  }
  const tenant = tenantOf(request);
  const fingerprint = requestFingerprint(`${request.method} ${request.routeOptions.url ?? ''}`, request.body);
  const name = JSON.stringify([tenant.merchantId, tenant.environment, key]);
  const stillRunning = (): Refusal => {
    reply.header('retry-after', '1');
    return new Refusal(409, stillRunningMessage, [], 'idempotency_in_progress');
  };
  if (running.has(name)) throw stillRunning();
  running.add(name);
  try {
    const { answer, isRepeated } = await database.transaction().execute(async (transaction) => {
      // Another process may be at it, or have been killed while it was.
      if (!(await tryLock(transaction, name))) throw stillRunning();
      const kept = await findAnswer(transaction, tenant, key);
      if (kept !== null && kept.fingerprint !== fingerprint)
        throw Refusal.invalid([otherRequest], 'idempotency_key_reused');
      if (kept !== null) return { answer: kept, isRepeated: true };
      const answer = await attempt(transaction, create);
      await keepAnswer(transaction, tenant, key, { ...answer, fingerprint }, clock.now());
      return { answer, isRepeated: false };
    });
    if (isRepeated) reply.header('idempotency-replayed', 'true');
    reply.code(answer.status);
    return answer.body;
  } finally {
    running.delete(name);
  }
}

const stillRunningMessage = 'A request with this Idempotency-Key is still being carried out: try again';

const otherRequest = {
  path: 'Idempotency-Key',
  message: 'This Idempotency-Key was used for another request: give each request a key of its own',
};

async function attempt(transaction: ServicesTransaction, create: Create): Promise<Answer> {
  await sql`savepoint attempt`.execute(transaction);
  try {
    return { status: created, body: await create(transaction) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    await sql`rollback to savepoint attempt`.execute(transaction);
    return { status: error.statusCode, body: error.body };
  }
}
