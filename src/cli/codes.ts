import { Argument, Command } from 'commander';
import { responseOf } from '../policy/gateway-errors.js';
import { type Remedy, remedies, remedyOf } from '../policy/remedies.js';
import { recordLines, tableLines } from './admin/table.js';
import type { CommandIo } from './command-io.js';

/** A code in the access log, the response that the client got, and what to do. */
export interface DescribedCode extends Remedy {
  readonly code: string;
  readonly status: number;
  /** The message in the response. */
  readonly message: string;
}

/** Describes a code; null if the code is unknown or is that of an accepted request. */
export function describeCode(code: string): DescribedCode | null {
  const remedy = remedyOf(code);
  const response = responseOf(code);
  if (remedy === null || response === null) return null;
  return { code, status: response.status, message: response.message, ...remedy };
}

/** Creates the command `codes`, which says what the codes of the access log mean and what to do. */
export function codesCommand({ out }: Pick<CommandIo, 'out'>): Command {
  return new Command('codes')
    .description('explain a code of the access log, and what to do about it')
    .addArgument(new Argument('[code]', 'the code to explain (default: all codes)').choices(Object.keys(remedies)))
    .option('--json', 'print JSON')
    .action((code: string | undefined, { json }: { readonly json?: true }) => {
      const all = Object.keys(remedies).flatMap((one) => describeCode(one) ?? []);
      const one = all.find((described) => described.code === code);
      if (json === true) out(`${JSON.stringify(one ?? all)}\n`);
      else out(`${(one === undefined ? listLines(all) : lines(one)).join('\n')}\n`);
    });
}

function listLines(all: readonly DescribedCode[]): string[] {
  return tableLines(
    ['CODE', 'STATUS', 'CONCERNS', 'MEANING'],
    all.map(({ code, status, concerns, meaning }) => [code, String(status), concerns, meaning]),
    { wrap: ['MEANING'] },
  );
}

function lines({ code, status, message, meaning, remedy, concerns }: DescribedCode): string[] {
  return recordLines([
    ['code', code],
    ['response', `${status} ${message}`],
    ['meaning', meaning],
    ['what to do', remedy],
    ['concerns', concerns === 'both' ? 'merchant and operator' : concerns],
  ]);
}
