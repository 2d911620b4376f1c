import { existsSync } from 'node:fs';
import { Command } from 'commander';
import { loadConfig } from '../../config/load.js';
import { OperatorError } from '../../config/operator-error.js';
import { keyText } from '../../evidence/signed-note.js';
import { printableJson } from '../admin/printable.js';
import type { CommandIo } from '../command-io.js';
import { readInstanceKey } from '../compose/note-signer.js';

interface Options {
  readonly config?: string;
  readonly keyFile?: string;
  readonly name: string;
  readonly json?: true;
}

/** Creates the command `audit public-key`. */
export function publicKeyCommand(io: CommandIo): Command {
  return new Command('public-key')
    .description('print the public key that verifies the signed checkpoints of the log')
    .option(
      '--config <file>',
      'configuration file that names the file of the instance key (accessLog.checkpoints.keyFile)',
    )
    .option('--key-file <file>', 'file of the instance key; replaces accessLog.checkpoints of the configuration')
    .option(
      '--name <name>',
      'name of the gateway in the printed key; only with --key-file, because otherwise the configuration has the name',
      'merchant-gateway',
    )
    .option('--json', 'print only JSON')
    .addHelpText(
      'after',
      '\nStore the key where people who can change the log have no write access. With the key, "audit verify --public-key" needs no secret.',
    )
    .action(async ({ config, keyFile, name, json }: Options) => {
      const key = keyFile === undefined ? loadConfig({ file: config }).accessLog.checkpoints : { keyFile, name };
      if (key === null)
        throw new OperatorError(
          'Signed checkpoints are off: set accessLog.checkpoints, or name the key file with --key-file.',
        );
      if (!existsSync(key.keyFile))
        throw new OperatorError(
          `The instance key ${key.keyFile} does not exist: the gateway creates it at its first start.`,
        );
      const publicKey = keyText((await readInstanceKey(key)).key);
      io.out(json === true ? `${printableJson({ publicKey })}\n` : `${publicKey}\n`);
    });
}
