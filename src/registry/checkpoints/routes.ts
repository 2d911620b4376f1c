import { type NoteSigner, keyText } from '../../evidence/signed-note.js';
import { success, successPage } from '../../rest/envelope.js';
import { parseDateTime } from '../../rest/moment.js';
import { type Page, pagingOf, type Paging, pagingQuery, rangeOf } from '../../rest/paging.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery } from '../../rest/rest-app.js';
import type { RegistryDatabase } from '../registry-database.js';
import { authorOf } from '../administrators/request-author.js';
import type { Routes } from '../routes.js';
import { listFindings } from './findings.js';
import { confirmKey, endKey, listInstanceKeys, pinKey } from './instance-keys.js';
import { signedHead } from './list.js';
import {
  checkpointSchema,
  checkpointsQuery,
  confirmBody,
  endBody,
  findingSchema,
  instanceKeySchema,
  pinBody,
  witnessSchema,
} from './schema.js';

/**
 * Adds the routes for checkpoints, instance keys and findings. A checkpoint is a signed state of a gateway's access
 * log. Gateways sign checkpoints with their instance keys. Findings are problems with the logs. With a receipt, the
 * registry proves that it accepted a checkpoint.
 * @param signer signs the head (size and root hash) of the checkpoint list; null if this registry signs no receipts
 */
export function checkpointRoutes(signer: NoteSigner | null): Routes {
  return (app, context) => {
    const { database, clock } = context;
    app.get(
      '/instance-keys',
      {
        schema: { querystring: pagingQuery },
        config: {
          operation: { summary: 'The keys that sign access logs, newest first', page: instanceKeySchema },
          access: { permission: 'checkpoints:read' },
        },
      },
      async ({ query }) => {
        const paging = pagingOf(query);
        return successPage('Instance keys retrieved', await listInstanceKeys(database, paging), paging);
      },
    );

    app.post(
      '/instance-keys',
      {
        schema: { body: pinBody, querystring: noQuery },
        config: {
          operation: {
            summary: 'Pin (trust) a key with which a gateway signs its access log',
            status: 201,
            data: instanceKeySchema,
          },
          access: { permission: 'checkpoints:write' },
        },
      },
      async (request, reply) => {
        const { publicKey, from, to } = request.body;
        const span = { from: momentOr(from, 'from', clock.now()), to: momentOr(to, 'to', null) };
        const key = await pinKey(context, authorOf(request), publicKey, span);
        reply.code(201);
        return success('Instance key pinned', key);
      },
    );

    app.post(
      '/instance-keys/confirm',
      {
        schema: { body: confirmBody, querystring: noQuery },
        config: {
          operation: {
            summary: 'Confirm that a signing key (instance key) belongs to the gateway that it names',
            data: instanceKeySchema,
          },
          access: { permission: 'checkpoints:write' },
        },
      },
      async (request) => {
        const key = await confirmKey(context, authorOf(request), request.body.publicKey);
        return success('Instance key confirmed', key);
      },
    );

    app.post(
      '/instance-keys/end',
      {
        schema: { body: endBody, querystring: noQuery },
        config: {
          operation: { summary: 'End the validity of a signing key (instance key)', data: instanceKeySchema },
          access: { permission: 'checkpoints:write' },
        },
      },
      async (request) => {
        const { publicKey, to } = request.body;
        const key = await endKey(context, authorOf(request), publicKey, momentOr(to, 'to', clock.now()));
        return success('Instance key ended', key);
      },
    );

    app.get(
      '/checkpoints',
      {
        schema: { querystring: checkpointsQuery },
        config: {
          operation: { summary: 'Signed checkpoints of access logs', page: checkpointSchema },
          access: { permission: 'checkpoints:read' },
        },
      },
      async ({ query }) => {
        const paging = pagingOf(query);
        const page = await (query.of === 'list' ? listed(database, paging) : newestOfRuns(database, paging));
        return successPage('Checkpoints retrieved', page, paging);
      },
    );

    app.get(
      '/checkpoints/head',
      {
        schema: { querystring: noQuery },
        config: {
          operation: { summary: 'The signed size and root hash of the checkpoint list', data: witnessSchema },
          access: { permission: 'checkpoints:read' },
        },
      },
      async () => {
        if (signer === null)
          throw new Refusal(404, 'This registry signs no receipts for checkpoints: set registry.witness');
        const head = await signedHead(database, signer);
        return success('Head retrieved', { publicKey: keyText(signer.receiptKey), head });
      },
    );

    app.get(
      '/checkpoints/findings',
      {
        schema: { querystring: pagingQuery },
        config: {
          operation: { summary: 'Findings about access logs, newest first', page: findingSchema },
          access: { permission: 'checkpoints:read' },
        },
      },
      async ({ query }) => {
        const paging = pagingOf(query);
        const { items, totalRecords } = await listFindings(database, paging);
        const shown = items.map(({ found_at, kind, origin, message }) => ({
          ...{ foundAt: new Date(found_at).toISOString(), kind, run: origin, message },
        }));
        return successPage('Findings retrieved', { items: shown, totalRecords }, paging);
      },
    );
  };
}

interface KeptCheckpoint {
  readonly index: number | null;
  readonly receivedAt: number;
  readonly note: string;
}

async function listed(database: RegistryDatabase, paging: Paging): Promise<Page<KeptCheckpoint>> {
  const { offset, limit } = rangeOf(paging);
  const { size } = await database.selectFrom('checkpoint_tree').select('size').executeTakeFirstOrThrow();
  const some = database.selectFrom('checkpoint_list').selectAll().where('seq', '>=', offset).where('seq', '<', size);
  const rows = await some.orderBy('seq').limit(limit).execute();
  const items = rows.map(({ seq, received_at, note }) => ({ index: seq, receivedAt: received_at, note }));
  return { items, totalRecords: size };
}

async function newestOfRuns(database: RegistryDatabase, paging: Paging): Promise<Page<KeptCheckpoint>> {
  const { offset, limit } = rangeOf(paging);
  const all = database.selectFrom('runs');
  const { total } = await all.select((it) => it.fn.countAll<number>().as('total')).executeTakeFirstOrThrow();
  const some = all.select(['received_at', 'note']).orderBy('began_at').orderBy('origin');
  const rows = await some.offset(offset).limit(limit).execute();
  const items = rows.map(({ received_at, note }) => ({ index: null, receivedAt: received_at, note }));
  return { items, totalRecords: total };
}

/**
 * Parses the time in a field of the request body. Returns `otherwise` if the field is missing.
 * @throws Refusal if the time is invalid
 */
function momentOr<Default>(text: string | undefined, path: string, otherwise: Default): number | Default {
  const moment = text === undefined ? otherwise : parseDateTime(text);
  if (text !== undefined && moment === null)
    throw Refusal.invalid([{ path, message: `${path} must be a valid date and time` }]);
  return moment as number | Default;
}
