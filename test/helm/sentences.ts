import { readFileSync } from 'node:fs';

/**
 * Returns the error messages in the chart's templates that no test has caused (`unsaid`), and the number of all error
 * messages in these templates (`all`).
 * @param files file names in helm/templates
 * @param outputs the output of helm
 */
export function unsaidSentences(
  files: readonly string[],
  outputs: readonly string[],
): { all: number; unsaid: string[] } {
  const source = files.map((name) => readFileSync(`helm/templates/${name}`, 'utf8')).join('');
  const texts = [...source.matchAll(/(?:append \$problems |printf )\(?(?:printf )?"([^"\n]+)"/g)].map(
    ([, text = '']) => text,
  );
  const sentences = texts
    .map((text) => text.replaceAll('\\n', ' ').replaceAll(/\s+/g, ' '))
    .filter((text) => / .* /.test(text));
  const text = outputs.join(' ').replaceAll(/\s+/g, ' ');
  const unsaid = sentences.filter((one) => !one.split(/%[vsd]/).every((part) => text.includes(part.trim())));
  return { all: sentences.length, unsaid };
}
