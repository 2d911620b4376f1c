import { success } from '../../rest/envelope.js';
import { Refusal } from '../../rest/refusal.js';
import { noQuery } from '../../rest/rest-app.js';
import Type from '../../typebox/typebox.js';
import type { RecordsStore } from '../ports.js';
import type { Routes } from '../routes.js';

const gatewaySchema = Type.Object({
  instanceId: Type.String(),
  revision: Type.Integer(),
  environment: Type.Enum(['live', 'test']),
  host: Type.String(),
  startedAt: Type.String({ format: 'date-time' }),
});

/** The live gateways, as the store knows them. */
export function gatewayRoutes(store: Pick<RecordsStore, 'gateways'>): Routes {
  return (app) => {
    const operation = {
      summary: 'The live gateways and the revision that each has acknowledged',
      data: Type.Array(gatewaySchema),
    };
    app.get('/gateways', { schema: { querystring: noQuery }, config: { operation } }, async () => {
      const gateways = await store.gateways().catch(() => {
        throw new Refusal(503, 'The store of the gateways cannot be asked now');
      });
      const sorted = [...gateways].sort((a, b) => (a.instanceId < b.instanceId ? -1 : 1));
      const shown = sorted.map(({ instanceId, revision, environment, host, startedAt }) => {
        return { instanceId, revision, environment, host, startedAt };
      });
      return success('Gateways retrieved', shown);
    });
  };
}
