import { keylessLine, line } from '../../rest/line.js';
import { withPurpose } from '../../rest/openapi/json-schema.js';
import { pagingQuery } from '../../rest/paging.js';
import Type, { type Static } from '../../typebox/typebox.js';
import { id, timestamp, optionalOrNull, textOrNull, uuid } from '../fields.js';
import { upTo } from '../list-query.js';

const email = Type.String({
  pattern: /^(?=.{3,254}$)[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+$/,
  description: 'an email address, such as ada@example.com',
  examples: ['ada@example.com'],
});
const phone = Type.String({
  pattern: /^\+?[0-9]{5,15}$/,
  description: 'a phone number of 5 to 15 digits, optionally with a leading +',
  examples: ['+2348012345678'],
});

/** The message of the response that reports a created customer. Stored responses contain it, so it never changes. */
export const created = 'Customer created';

/** The body of `POST /dev/customers`. */
export const newCustomerBody = Type.Object({
  email,
  firstName: keylessLine(100, 'Ada'),
  lastName: keylessLine(100, 'Obi'),
  phone: optionalOrNull(phone),
});

/** The body of `PATCH /dev/customers/:id`: the fields to change. `phone: null` removes the phone number. */
export const customerChangesBody = Type.Object(
  {
    email: Type.Optional(email),
    firstName: Type.Optional(keylessLine(100, 'Ada')),
    lastName: Type.Optional(keylessLine(100, 'Obi')),
    phone: optionalOrNull(phone),
  },
  { minProperties: 1 },
);

/** The query of the list of customers. */
export const customersQuery = Type.Object({
  ...pagingQuery.properties,
  search: Type.Optional(
    withPurpose(line(100, 'ada'), 'A part of the name, the email address or the phone number; case-insensitive'),
  ),
  up_to: Type.Optional(upTo(uuid)),
});

/** The fields of a new customer. */
export type NewCustomer = Static<typeof newCustomerBody>;

/** The fields of a customer that a request changes. */
export type CustomerChanges = Static<typeof customerChangesBody>;

/** The parsed query of the list of customers. */
export type CustomersQuery = Static<typeof customersQuery>;

/** A merchant's customer. The email address is in lower case and unique per merchant and environment. */
export const customerSchema = Type.Object(
  {
    id,
    email: Type.String({ examples: ['ada@example.com'] }),
    firstName: Type.String({ examples: ['Ada'] }),
    lastName: Type.String({ examples: ['Obi'] }),
    phone: textOrNull('+2348012345678'),
    createdAt: timestamp,
    updatedAt: timestamp,
  },
  { title: 'Customer' },
);

/** A merchant's customer. */
export type Customer = Readonly<Static<typeof customerSchema>>;
