import Type from '../../typebox/typebox.js';

/** The response of `POST /services-tokens`. */
export const servicesTokenSchema = Type.Object({
  token: Type.String({ description: 'a JWT for the header authorization: Bearer' }),
  expiresAt: Type.String({ format: 'date-time' }),
  permissions: Type.Array(Type.String()),
});
