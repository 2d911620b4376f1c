import Type, { type TObject, type TProperties } from '../typebox/typebox.js';

const moment = Type.String({ format: 'date-time' });

/** How far a change has come. */
export const propagationSchema = Type.Object({
  /** How many gateways live; null where that could not be asked. */
  gateways: Type.Union([Type.Null(), Type.Integer()]),
  confirmed: Type.Integer(),
  pending: Type.Array(
    Type.Object({
      instanceId: Type.String(),
      host: Type.String(),
      /** From when on it cannot honour the old record any more; null where the change is not in its store yet. */
      staleUntil: Type.Union([Type.Null(), moment]),
    }),
  ),
  milliseconds: Type.Integer(),
  /** False where the change could not be written to the gateways' store yet. It is kept, and written as soon as possible. */
  projected: Type.Optional(Type.Literal(false)),
});

/** What a change answers with besides the record. */
export function withPropagation<Properties extends TProperties>({ properties }: TObject<Properties>): TObject {
  return Type.Object({ ...properties, propagation: propagationSchema });
}
