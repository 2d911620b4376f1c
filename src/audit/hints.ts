import type { Finding } from './finding.js';

/** What findings that are many may come from, where whoever verifies may have made a mistake. */
export function hintsOf(findings: readonly Finding[], isProvedAnywhere: boolean): string[] {
  const isAnywhere = (...kinds: readonly Finding['kind'][]): boolean =>
    findings.some(({ kind }) => kinds.includes(kind));
  return [
    ...(isAnywhere('edited') && !isProvedAnywhere ? ['not one line is proved: is it the right secret?'] : []),
    ...(isAnywhere('repeated', 'reordered')
      ? ['lines stand behind later ones: are the files in order, oldest first?']
      : []),
  ];
}
