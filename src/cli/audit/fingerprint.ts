import type { Readable } from 'node:stream';
import { Command } from 'commander';
import { OperatorError } from '../../config/operator-error.js';
import { keyFormatOf } from '../../policy/key-format.js';
import { keyFingerprint } from '../../telemetry/key-fingerprint.js';
import type { CommandIo } from '../command-io.js';
import { collect } from '../admin/arguments.js';
import { printableJson } from '../admin/printable.js';
import { readLogSecrets } from './log-secrets.js';
import type { SecretOptions } from './log-secrets.js';

const maxKeyBytes = 4096;

/**
 * Creates the command `keys fingerprint`. It reads an API key and prints only its fingerprint, which represents the key
 * in the access log.
 */
export function fingerprintCommand(io: CommandIo, input: Readable = process.stdin): Command {
  return new Command('fingerprint')
    .description('read a key from standard input and print the fingerprint that represents it in the access log')
    .option(
      '--secret-file <file>',
      'file with the secret of the access log (repeatable, e.g. to add an earlier secret)',
      collect,
    )
    .option('--config <file>', 'configuration file that names the secret file (accessLog.secretFile)')
    .option('--json', 'print only JSON')
    .addHelpText(
      'after',
      '\nOther users of this machine can see arguments, so pass the key on standard input:\n  keys fingerprint < key.txt',
    )
    .action(async (options: SecretOptions & { readonly json?: true }) => {
      const secrets = await readLogSecrets(options);
      if (secrets.length === 0) {
        throw new OperatorError(
          "Fingerprints need the access log's secret: give its file with --secret-file, or set accessLog.secretFile in the configuration.",
        );
      }
      const key = await readKey(input);
      const fingerprints = secrets.map((secret) => keyFingerprint(secret, key) ?? '');
      io.out(options.json === true ? `${printableJson({ fingerprints })}\n` : `${fingerprints.join('\n')}\n`);
    });
}

/** Reads an API key from standard input. Errors never quote the input, because it could be a mistyped key. */
export async function readKey(input: Readable): Promise<string> {
  let text = '';
  for await (const chunk of input) {
    text += (chunk as Buffer).toString('latin1');
    if (text.length > maxKeyBytes)
      throw new OperatorError(`Standard input has more than ${maxKeyBytes} characters. Expected one API key.`);
  }
  const key = text.replace(/\r?\n$/, '');
  const format = /\s/.test(key) ? null : keyFormatOf([key]);
  if (format === 'live' || format === 'test') return key;
  throw new OperatorError('Expected one key on standard input, beginning with svc_live_ or svc_test_.');
}
