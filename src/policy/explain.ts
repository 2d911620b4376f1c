import { credentialRules, requestRules, Undecidable } from './decision-table.js';
import type { DenialCode } from './decision-table.js';
import type { Credential, RequestFacts } from './facts.js';

/** Result of a rule, and the facts that it read. */
export interface RuleOutcome {
  readonly code: DenialCode;
  /** `undecidable`: a fact that the rule needs is unknown. */
  readonly result: 'passes' | 'fails' | 'undecidable';
  readonly sawFacts: readonly (keyof RequestFacts)[];
  /** Empty for a request rule, and if the key is unknown. */
  readonly sawCredential: readonly (keyof Credential)[];
}

/**
 * Evaluates every rule in table order and records which facts each one read. The first failing rule is the decision;
 * the later rules run only for the explanation.
 * @param credential null: the key is unknown. Undefined: not looked up; the credential rules are skipped
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

/** A proxy of an object that records which properties are read. */
function watched<Watched extends object>(value: Watched, seen: Set<keyof Watched>): Watched {
  return new Proxy(value, {
    get(target, name) {
      seen.add(name as keyof Watched);
      return Reflect.get(target, name) as unknown;
    },
  });
}
