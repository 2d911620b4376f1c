import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import { fundingSchema } from '../../rest/services-token.js';
import { recordingRefusals } from '../administrators/recorded-refusals.js';
import { authorOf, callerOf } from '../administrators/request-author.js';
import type { Attempts } from '../administrators/attempts.js';
import { idIn } from '../fields.js';
import type { Propagation } from '../propagation.js';
import { withPropagation } from '../propagation-schema.js';
import { respondToChange, type Routes } from '../routes.js';
import { approve, reject } from './decisions.js';
import { requestFunding } from './funding.js';
import { findRow, listApprovals, requesterOf, toApproval } from './requests.js';
import { approvalSchema, approvalsQuery } from './schema.js';

/**
 * The propagation of a change that gateways need not know. It is not null, because commands of former releases require
 * an object.
 */
const noGateway: Propagation = { gateways: 0, confirmed: 0, pending: [], milliseconds: 0 };

/** Adds the routes that list, approve and reject requests for approval, and that request approval to fund a wallet. */
export function approvalRoutes(attempts: Attempts): Routes {
  return (app, context) => {
    const { database, clock, confirm } = context;
    app.get(
      '/approvals',
      {
        schema: { querystring: approvalsQuery },
        config: {
          operation: { summary: 'Requests for approval, newest first', page: approvalSchema },
          access: { permission: 'approvals:read' },
        },
      },
      async ({ query }) => {
        const paging = pagingOf(query);
        const page = await listApprovals(database, query.status, clock.now(), paging);
        return successPage('Approvals retrieved', page, paging);
      },
    );

    app.get(
      '/approvals/:id',
      {
        schema: { params: idParams, querystring: noQuery },
        config: {
          operation: { summary: 'A request for approval, by its id', data: approvalSchema },
          access: { permission: 'approvals:read' },
        },
      },
      async ({ params }) => {
        const row = await findRow(database, idIn(params, 'Approval'));
        return success('Approval retrieved', toApproval(row, clock.now()));
      },
    );

    app.post(
      '/approvals',
      {
        schema: { body: fundingSchema, querystring: noQuery },
        config: {
          operation: { summary: 'Request approval to fund a wallet', status: 201, data: approvalSchema },
          access: { permission: 'wallets:fund', isProven: true },
        },
      },
      async (request, reply) => {
        const approval = await requestFunding(context, requesterOf(request), request.body);
        reply.code(201);
        return success('Approval requested: another administrator has to approve the funding', approval);
      },
    );

    app.post(
      '/approvals/:id/approve',
      {
        schema: { params: idParams, querystring: noQuery },
        config: {
          operation: {
            summary:
              'Approve a request. The registry then makes the requested change, unless it is the funding of a wallet',
            data: withPropagation(approvalSchema),
          },
          access: { permission: 'approvals:decide', isProven: true },
        },
      },
      async (request, reply) => {
        const id = idIn(request.params, 'Approval');
        const { approval, revision } = await recordingRefusals(request, attempts, () =>
          approve(context, authorOf(request), callerOf(request), id),
        );
        const propagation = revision === null ? noGateway : await confirm(revision, null);
        return respondToChange(reply, 200, 'Request approved', approval, propagation);
      },
    );

    app.post(
      '/approvals/:id/reject',
      {
        schema: { params: idParams, querystring: noQuery },
        config: {
          operation: { summary: 'Reject a request, or withdraw your own', data: approvalSchema },
          access: { permission: 'approvals:decide' },
        },
      },
      async (request) => {
        const id = idIn(request.params, 'Approval');
        return success(
          'Rejected',
          await recordingRefusals(request, attempts, () => reject(context, authorOf(request), callerOf(request), id)),
        );
      },
    );
  };
}
