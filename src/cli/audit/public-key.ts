import { existsSync } from 'node:fs';
import { Command } from 'commander';
import { loadConfig } from '../../config/load.js';
import { OperatorError } from '../../config/operator-error.js';
import { keyText } from '../../evidence/signed-note.js';
import { printableJson } from '../admin/printable.js';
import type { CommandIo } from '../command-io.js';
import { readInstanceKey } from '../compose/checkpoints.js';

interface Options {
  readonly config?: string;
  readonly keyFile?: string;
  readonly name: string;
  readonly json?: true;
}

/** `audit public-key`. */
export function publicKeyCommand(io: CommandIo): Command {
  return new Command('public-key')
    .description('print the public key with which checkpoints of the log are verified')
    .option('--config <file>', 'configuration file that names the key (accessLog.checkpoints)')
    .option('--key-file <file>', 'the instance key itself, in place of a configuration')
    .option('--name <name>', 'the name of the instance, beside --key-file', 'merchant-gateway')
    .option('--json', 'print JSON, and nothing else')
    .addHelpText(
      'after',
      '\nKeep it where whoever can change the log cannot change it: audit verify --public-key needs it, and no secret.',
    )
    .action(async ({ config, keyFile, name, json }: Options) => {
      const key = keyFile === undefined ? loadConfig({ file: config }).accessLog.checkpoints : { keyFile, name };
      if (key === null)
        throw new OperatorError('No checkpoints are signed: set accessLog.checkpoints, or name the key by --key-file.');
      if (!existsSync(key.keyFile))
        throw new OperatorError(`There is no instance key ${key.keyFile}: the first start of the gateway makes it.`);
      const publicKey = keyText((await readInstanceKey(key)).key);
      io.out(json === true ? `${printableJson({ publicKey })}\n` : `${publicKey}\n`);
    });
}
