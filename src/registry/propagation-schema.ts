import Type, { type TObject, type TProperties } from '../typebox/typebox.js';

const moment = Type.String({ format: 'date-time' });

/** Which gateways have acknowledged a change and therefore no longer use the old record. */
export const propagationSchema = Type.Object({
  /** Number of gateways that have to acknowledge (confirm) the change; null if the store is unavailable. */
  gateways: Type.Union([Type.Null(), Type.Integer()]),
  confirmed: Type.Integer(),
  pending: Type.Array(
    Type.Object({
      instanceId: Type.String(),
      host: Type.String(),
      /**
       * Time until which the gateway could use the old record. Null if this time is unknown, for example while the
       * change is not yet in the store.
       */
      staleUntil: Type.Union([Type.Null(), moment]),
    }),
  ),
  milliseconds: Type.Integer(),
  /**
   * False if the change is not yet in the store from which gateways read. The registry writes the change to the store
   * as soon as possible, unless a failover of the database has lost it. Absent if the change is in the store.
   */
  projected: Type.Optional(Type.Literal(false)),
});

/** Adds `propagation` (which gateways have confirmed the change) to the schema of the changed record. */
export function withPropagation<Properties extends TProperties>({ properties }: TObject<Properties>): TObject {
  return Type.Object({ ...properties, propagation: propagationSchema });
}
