import { success, successPage } from '../../rest/envelope.js';
import { pagingOf } from '../../rest/paging.js';
import { idParams, noQuery } from '../../rest/rest-app.js';
import { fundingSchema } from '../../rest/services-token.js';
import { recordingRefusals } from '../administrators/access.js';
import { authorOf, callerOf } from '../administrators/request-author.js';
import type { Attempts } from '../administrators/attempts.js';
import { idIn } from '../fields.js';
import { withPropagation } from '../propagation-schema.js';
import { respondToChange, type Routes } from '../routes.js';
import { approve, reject } from './decisions.js';
import { requestFunding } from './funding.js';
import { findRow, listApprovals, toApproval } from './requests.js';
import { approvalSchema, approvalsQuery } from './schema.js';

/** Adds the routes that list, approve and reject requests for approval, and that request approval to fund a wallet. */
export function approvalRoutes(attempts: Attempts): Routes {
  return (app, context) => {
    const { database, clock, confirm } = context;
    app.get(
      '/approvals',
      {
        schema: { querystring: approvalsQuery },
        config: {
          operation: { summary: 'Changes that wait for approval or were decided, newest first', page: approvalSchema },
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
          operation: { summary: 'One request for approval', data: approvalSchema },
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
        const approval = await requestFunding(context, authorOf(request), request.body);
        reply.code(201);
        return success('Requested: another administrator has to approve', approval);
      },
    );

    app.post(
      '/approvals/:id/approve',
      {
        schema: { params: idParams, querystring: noQuery },
        config: {
          operation: { summary: 'Approve a request and make its change', data: withPropagation(approvalSchema) },
          access: { permission: 'approvals:decide' },
        },
      },
      async (request, reply) => {
        const id = idIn(request.params, 'Approval');
        const { approval, revision } = await recordingRefusals(request, attempts, () =>
          approve(context, authorOf(request), callerOf(request), id),
        );
        return respondToChange(reply, 200, 'Approved and changed', approval, await confirm(revision, null));
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
