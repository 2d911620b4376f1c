import { Command } from 'commander';
import type { CommandIo } from '../command-io.js';
import { checkProofCommand, proveCommand } from './prove.js';
import { publicKeyCommand } from './public-key.js';
import { searchCommand } from './search.js';
import { summaryCommand } from './summary.js';
import { verifyCommand } from './verify.js';

/** Creates the `audit` commands, which verify and read access logs, and prove that a line is in a log. */
export function auditCommand(io: CommandIo): Command {
  return new Command('audit')
    .description('verify, search and summarise access logs, and prove that a line is in a log')
    .addCommand(verifyCommand(io))
    .addCommand(searchCommand(io))
    .addCommand(summaryCommand(io))
    .addCommand(proveCommand(io))
    .addCommand(checkProofCommand(io))
    .addCommand(publicKeyCommand(io));
}
