import { Command } from 'commander';
import type { CommandIo } from '../command-io.js';
import { searchCommand } from './search.js';
import { summaryCommand } from './summary.js';
import { verifyCommand } from './verify.js';

/** `audit verify`, `search` and `summary`: what reads access logs. */
export function auditCommand(io: CommandIo): Command {
  return new Command('audit')
    .description('verify, search and sum up access logs')
    .addCommand(verifyCommand(io))
    .addCommand(searchCommand(io))
    .addCommand(summaryCommand(io));
}
