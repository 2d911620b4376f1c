import { credentialRules, requestRules, Undecidable } from './decision-table.js';
import type { DenialCode } from './decision-table.js';
import type { Credential, RequestFacts } from './facts.js';

/** The result of one access rule, and the names of the facts that the rule read about the request and the key. */
export interface RuleOutcome {
  readonly code: DenialCode;
  /** `undecidable` means that a fact that the rule needs is unknown. */
  readonly result: 'passes' | 'fails' | 'undecidable';
  readonly sawFacts: readonly (keyof RequestFacts)[];
  /** Which fields of the credential the rule read. Empty for a request rule, and if the key is unknown. */
  readonly sawCredential: readonly (keyof Credential)[];
}

/**
 * Evaluates the rules in table order, and records which facts each rule read. The first failing rule decides on the
 * request; the later results are for the explanation only. If the key was not looked up, evaluates only the rules that
 * need no key.
 * @param credential null if the key is unknown; undefined if the key was not looked up
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

/** Returns a proxy of the object. When a property is read, the proxy adds the property's name to `seen`. */
function watched<Watched extends object>(value: Watched, seen: Set<keyof Watched>): Watched {
  return new Proxy(value, {
    get(target, name) {
      seen.add(name as keyof Watched);
      return Reflect.get(target, name) as unknown;
    },
  });
}
