import { credentialChecks, requestChecks } from './checks/index.js';
import type { DenialCode } from './denials.js';
import type { Credential, RequestFacts } from './facts.js';
import { Undecidable } from './undecidable.js';

/** What a rule says, and what it looked at to say so. */
export interface RuleOutcome {
  readonly code: DenialCode;
  /** `undecidable`: what it depends on is not known. */
  readonly result: 'passes' | 'fails' | 'undecidable';
  readonly sawFacts: readonly (keyof RequestFacts)[];
  /** Empty of a rule that looked at no credential, and where the key is unknown. */
  readonly sawCredential: readonly (keyof Credential)[];
}

/**
 * Asks every rule, in the order of the table, and notes what each looked at. The decision is that of the first that does
 * not pass; here the ones behind it are asked too.
 * @param credential null: the key is unknown. Undefined: nobody knows, and no rule about it is asked
 */
export function explainRules(facts: RequestFacts, credential: Credential | null | undefined): RuleOutcome[] {
  const ofRequest = requestChecks.map((check) =>
    outcomeOf(check.code, facts, null, (watchedFacts) => check.passes(watchedFacts)),
  );
  if (credential === undefined) return ofRequest;
  const ofCredential = credentialChecks.map((check) => outcomeOf(check.code, facts, credential, check.passes));
  return [...ofRequest, ...ofCredential];
}

function outcomeOf(
  code: DenialCode,
  facts: RequestFacts,
  credential: Credential | null,
  passes: (facts: RequestFacts, credential: Credential | null) => boolean,
): RuleOutcome {
  const sawFacts = new Set<keyof RequestFacts>();
  const sawCredential = new Set<keyof Credential>();
  const result = resultOf(() => passes(watched(facts, sawFacts), credential && watched(credential, sawCredential)));
  return { code, result, sawFacts: [...sawFacts], sawCredential: [...sawCredential] };
}

function resultOf(passes: () => boolean): RuleOutcome['result'] {
  try {
    return passes() ? 'passes' : 'fails';
  } catch (error) {
    if (error instanceof Undecidable) return 'undecidable';
    throw error;
  }
}

/** The same object, which notes what is read of it. */
function watched<Watched extends object>(value: Watched, seen: Set<keyof Watched>): Watched {
  return new Proxy(value, {
    get(target, name) {
      seen.add(name as keyof Watched);
      return Reflect.get(target, name) as unknown;
    },
  });
}
