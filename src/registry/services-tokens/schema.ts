import Type from '../../typebox/typebox.js';
import { identifierForm } from '../fields.js';

/** The query of `POST /services-tokens`. */
export const servicesTokenQuery = Type.Object({
  approvalId: Type.Optional(
    Type.String({ pattern: identifierForm, description: 'the id of your approved request to fund a wallet' }),
  ),
});

/** The response of `POST /services-tokens`. */
export const servicesTokenSchema = Type.Object({
  token: Type.String({ description: 'a JWT for the header authorization: Bearer' }),
  expiresAt: Type.String({ format: 'date-time' }),
  permissions: Type.Array(Type.String()),
});
