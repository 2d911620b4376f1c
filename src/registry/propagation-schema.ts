import Type, { type TObject, type TProperties } from '../typebox/typebox.js';

const moment = Type.String({ format: 'date-time' });

/** How far a change has come. */
export const propagationSchema = Type.Object({
  /** Number of gateways that may use records; null if the store is unavailable. */
  gateways: Type.Union([Type.Null(), Type.Integer()]),
  confirmed: Type.Integer(),
  pending: Type.Array(
    Type.Object({
      instanceId: Type.String(),
      host: Type.String(),
      /** Until when it may use the former record; null while the change is not in the store. */
      staleUntil: Type.Union([Type.Null(), moment]),
    }),
  ),
  milliseconds: Type.Integer(),
  /**
   * False if the change is stored but could not be written to the gateways' store yet. It will be, as soon as possible.
   */
  projected: Type.Optional(Type.Literal(false)),
});

/** The schema of a changed record with its propagation. */
export function withPropagation<Properties extends TProperties>({ properties }: TObject<Properties>): TObject {
  return Type.Object({ ...properties, propagation: propagationSchema });
}
