import Type, { type Static } from 'typebox';
import { line } from '../../rest/line.js';

const email = Type.String({
  pattern: /^(?=.{3,254}$)[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+$/,
  description: 'an email address, such as ada@example.com',
});
const name = line(100);
const phoneForm = 'a phone number of 5 to 15 digits, with or without a + before them';
const phone = Type.String({
  pattern: /^\+?[0-9]{5,15}$/,
  description: phoneForm,
});

/** The body of `POST /dev/customers`. */
export const newCustomerBody = Type.Object({
  email,
  firstName: name,
  lastName: name,
  phone: Type.Optional(phone),
});

/** The body of `PATCH /dev/customers/:id`: the fields to change, of which null takes the phone number away. */
export const customerChangesBody = Type.Object(
  {
    email: Type.Optional(email),
    firstName: Type.Optional(name),
    lastName: Type.Optional(name),
    phone: Type.Optional(Type.Union([phone, Type.Null()], { description: `${phoneForm}, or null` })),
  },
  { minProperties: 1 },
);

/** What a new customer is made of. */
export type NewCustomer = Static<typeof newCustomerBody>;

/** What may be changed of a customer. */
export type CustomerChanges = Static<typeof customerChangesBody>;

/** A merchant's customer. */
export interface Customer {
  readonly id: string;
  /** In lower case, and no other customer of the merchant has it. */
  readonly email: string;
  readonly firstName: string;
  readonly lastName: string;
  readonly phone: string | null;
  readonly createdAt: string;
  readonly updatedAt: string;
}
