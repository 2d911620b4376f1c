import { credentialRules, requestRules, Undecidable } from './decision-table.js';
import type { DenialCode } from './decision-table.js';
import type { Credential, RequestFacts } from './facts.js';

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
  const sawNothing = { sawFacts: [], sawCredential: [] };
  const ofRequest = requestRules.map(({ code, passes }): RuleOutcome => {
    const sawFacts = new Set<keyof RequestFacts>();
    const result = resultOf(() => passes(watched(facts, sawFacts)));
    return { ...sawNothing, code, result, sawFacts: [...sawFacts] };
  });
  if (credential === undefined) return ofRequest;
  const ofCredential = credentialRules.map(({ code, passes }): RuleOutcome => {
    if (credential === null) return { ...sawNothing, code, result: 'fails' };
    const [sawFacts, sawCredential] = [new Set<keyof RequestFacts>(), new Set<keyof Credential>()];
    const result = resultOf(() => passes(watched(facts, sawFacts), watched(credential, sawCredential)));
    return { code, result, sawFacts: [...sawFacts], sawCredential: [...sawCredential] };
  });
  return [...ofRequest, ...ofCredential];
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
