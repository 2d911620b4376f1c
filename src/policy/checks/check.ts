import type { credentialDenials, requestDenials } from '../denials.js';
import type { Credential, RequestFacts } from '../facts.js';

/** A rule that needs the request alone. `passes` claims that the request obeys it. */
export interface RequestCheck<Code extends string = string> {
  readonly code: Code;
  readonly passes: (facts: RequestFacts) => boolean;
}

/** A rule about a credential. A key that the store does not know is null and passes none of them. */
export interface CredentialCheck<Code extends string = string> {
  readonly code: Code;
  readonly passes: (facts: RequestFacts, credential: Credential | null) => boolean;
}

interface Row {
  readonly code: string;
}

type RequestCheckPerRow<Rows extends readonly Row[]> = {
  readonly [Index in keyof Rows]: RequestCheck<Rows[Index]['code']>;
};

type CredentialCheckPerRow<Rows extends readonly Row[]> = {
  readonly [Index in keyof Rows]: CredentialCheck<Rows[Index]['code']>;
};

/** One check for each row of the request part of the table, in its order: one too few or misplaced does not compile. */
export type RequestChecks = RequestCheckPerRow<typeof requestDenials>;

/** The same for the credential part. */
export type CredentialChecks = CredentialCheckPerRow<typeof credentialDenials>;
