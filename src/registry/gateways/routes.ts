import { success } from '../../rest/envelope.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery } from '../../rest/rest-app.js';
import Type from '../../typebox/typebox.js';
import type { Routes } from '../routes.js';
import { knownGateways, type GatewaySources } from './known-gateways.js';

const gatewaySchema = Type.Object({
  instanceId: Type.String(),
  host: Type.String(),
  environment: Type.Enum(['live', 'test']),
  /** The version of the gateway; null for a gateway of an earlier release, which does not report its version. */
  version: Type.Union([Type.String(), Type.Null()]),
  /** Start time of the gateway; null if the store has no acknowledgement (confirmation of changes) of this gateway. */
  startedAt: Type.Union([Type.String({ format: 'date-time' }), Type.Null()]),
  /**
   * Revision (number) of the newest change that the gateway has acknowledged since the last complete rewrite of the
   * store. Null if the gateway has acknowledged no change since that rewrite.
   */
  revision: Type.Union([Type.Integer(), Type.Null()]),
  /** Whether the gateway is in the roster, the registry's list of gateways that are allowed to use cached records. */
  enrolled: Type.Boolean(),
  /**
   * Whether the gateway can confirm changes. A gateway of an earlier release cannot, so the response to each change
   * lists it as pending (not yet confirmed).
   */
  confirms: Type.Boolean(),
  /** How long the gateway is allowed to use cached records after its last heartbeat, in seconds. */
  lifetimeSeconds: Type.Number(),
  /** Time of the last heartbeat, according to the registry's clock. */
  lastSeenAt: Type.String({ format: 'date-time' }),
  /** How far the gateway's clock is ahead of the registry's clock; null if unknown. */
  clockSkewMilliseconds: Type.Union([Type.Integer(), Type.Null()]),
});

/** Adds the route that lists the gateways, each with the newest change that it has acknowledged (confirmed). */
export function gatewayRoutes(sources: GatewaySources): Routes {
  return (app, { clock }) => {
    const operation = {
      summary: 'Gateways that may use cached records, and the newest change that each has confirmed',
      data: Type.Array(gatewaySchema),
    };
    app.get(
      '/gateways',
      { schema: { querystring: noQuery }, config: { operation, access: { permission: 'gateways:read' } } },
      async () => {
        const { gateways } = await knownGateways(sources).catch(() => {
          throw new Refusal(503, "The gateways' key store is unavailable");
        });
        const sorted = gateways.toSorted((a, b) => (a.instanceId < b.instanceId ? -1 : 1));
        const shown = sorted.map(({ instanceId, host, environment, version, startedAt, revision, ...one }) => ({
          ...{ instanceId, host, environment, version, startedAt, revision },
          ...{ enrolled: one.isEnrolled, confirms: one.namesGeneration },
          lifetimeSeconds: one.lifetimeMilliseconds / 1000,
          lastSeenAt: new Date(clock.now() - one.silentMilliseconds).toISOString(),
          clockSkewMilliseconds: one.clockSkewMilliseconds,
        }));
        return success('Gateways retrieved', shown);
      },
    );
  };
}
