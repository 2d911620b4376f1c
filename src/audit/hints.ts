import type { ChainCheck } from './chain-check.js';
import type { Finding } from './finding.js';

/** What findings that are many may come from, where whoever verifies may have made a mistake. */
export function hintsOf(findings: readonly Finding[], chains: readonly ChainCheck[]): string[] {
  const isLate = findings.some(({ kind }) => kind === 'repeated' || kind === 'reordered');
  return [
    ...secretHint(chains),
    ...(isLate ? ['lines stand behind later ones: are the files in order, oldest first?'] : []),
  ];
}

/** Under another secret each line of a chain looks edited; one line that is alone may well be. */
function secretHint(chains: readonly ChainCheck[]): string[] {
  const isProvedAnywhere = chains.some(({ proved }) => proved > 0);
  const [first, ...more] = chains.filter(({ proved, edited }) => proved === 0 && edited > (isProvedAnywhere ? 1 : 0));
  if (first === undefined) return [];
  if (!isProvedAnywhere) return ['not one line is proved: is it the right secret?'];
  const which = `the chain ${first.id}${more.length === 0 ? '' : ` and of ${more.length} more`}`;
  return [`not one line of ${which} is proved: was the secret another one then? It is named by a second --secret-file`];
}
