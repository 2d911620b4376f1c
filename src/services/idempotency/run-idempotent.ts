import type { FastifyReply, FastifyRequest } from 'fastify';
import { sql } from '../../database/kysely.js';
import { tryLock } from '../../database/dialects.js';
import { Refusal } from '../../rest/refusal.js';
import { keyReused } from '../failure-codes.js';
import { tenantOf } from '../identity.js';
import type { RouteContext } from '../routes.js';
import type { ServicesDatabase, ServicesTransaction } from '../services-database.js';
import { idempotencyKeyIn } from './idempotency-key.js';
import { findStoredResponse, storeResponse, type ResponseToStore } from './repository.js';
import { requestFingerprint } from './request-fingerprint.js';

/**
 * Creates a record in the given database transaction and returns the response body. If the function throws a Refusal,
 * the record is rolled back.
 */
type Create = (transaction: ServicesDatabase) => Promise<object>;

const created = 201;

/**
 * Runs a request that creates a record, and returns the response body. If the request has an idempotency key, it runs
 * only once for this key. The response is stored in the same database transaction as the record, so a crash cannot
 * leave only one of the two. A Refusal thrown by `create` is stored too, but a database failure is not, so that the
 * client can retry.
 * @throws Refusal 422 for an invalid key; 409 `idempotency_in_progress`, 422 `idempotency_key_reused`
 */
export async function runIdempotent(
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
  const inProgress = (): Refusal => {
    reply.header('retry-after', '1');
    return new Refusal(409, inProgressMessage, [], 'idempotency_in_progress');
  };
  if (running.has(name)) throw inProgress();
  running.add(name);
  try {
    const { response, isRepeated } = await database.transaction().execute(async (transaction) => {
      // `tryLock` fails while another process runs a request with this key. If that process crashes, clients that retry
      // get a 409 until PostgreSQL ends the database session of that process, which releases the lock.
      if (!(await tryLock(transaction, name))) throw inProgress();
      const kept = await findStoredResponse(transaction, tenant, key);
      if (kept !== null && kept.fingerprint !== fingerprint)
        throw Refusal.invalid([keyReused], 'idempotency_key_reused');
      if (kept !== null) return { response: kept, isRepeated: true };
      const response = await attempt(transaction, create);
      await storeResponse(transaction, tenant, key, { ...response, fingerprint }, clock.now());
      return { response, isRepeated: false };
    });
    if (isRepeated) reply.header('idempotency-replayed', 'true');
    reply.code(response.status);
    return response.body;
  } finally {
    running.delete(name);
  }
}

const inProgressMessage = 'A request with this Idempotency-Key is still being carried out: try again';

async function attempt(transaction: ServicesTransaction, create: Create): Promise<ResponseToStore> {
  await sql`savepoint attempt`.execute(transaction);
  try {
    return { status: created, body: await create(transaction) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    await sql`rollback to savepoint attempt`.execute(transaction);
    return { status: error.statusCode, body: error.body };
  }
}
