import type { Verdict } from '../../src/audit/chain-check.js';
import { Verifier, type VerifierOptions } from '../../src/audit/verifier.js';
import { testSecret } from '../telemetry/open-log.js';

const defaults = { secrets: [testSecret], running: false, partial: false };

/** Verifies log files given by their contents; the default names are `1`, `2` and so on. */
export function verify(
  files: readonly Buffer[],
  options: Partial<VerifierOptions> = {},
  names: readonly string[] = [],
): Verdict {
  const verifier = new Verifier({ ...defaults, ...options });
  files.forEach((contents, index) => {
    const file = names[index] ?? `${index + 1}`;
    let number = 0;
    for (let from = 0; from < contents.length; number += 1) {
      const at = contents.indexOf(0x0a, from);
      const to = at === -1 ? contents.length : at;
      verifier.take({ file, number: number + 1, bytes: contents.subarray(from, to), ended: at !== -1 });
      from = to + 1;
    }
    if (number === 0) verifier.empty(file);
  });
  return verifier.end();
}

/** Verifies the lines of several files. */
export function verifyLines(
  files: readonly (readonly string[])[],
  options: Partial<VerifierOptions> = {},
  names: readonly string[] = [],
): Verdict {
  return verify(
    files.map((lines) => Buffer.from(lines.map((line) => `${line}\n`).join(''))),
    options,
    names,
  );
}

/** The lines of a file. */
export function linesOf(contents: Buffer): string[] {
  return contents.toString('utf8').trimEnd().split('\n');
}

/** The findings, each as `file:line kind`. */
export function kindsOf({ findings }: Verdict): string[] {
  return findings.map(({ file, line, kind }) => `${file}:${line} ${kind}`);
}
