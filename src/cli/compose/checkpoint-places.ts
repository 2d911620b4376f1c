import { hostname } from 'node:os';
import { HttpsCheckpoints } from '../../adapters/checkpoints/https-checkpoints.js';
import { SyslogCheckpoints } from '../../adapters/checkpoints/syslog-checkpoints.js';
import { readOperatorFile, readToken } from '../../config/operator-file.js';
import type { Config } from '../../config/schema.js';
import { CheckpointFile } from '../../telemetry/checkpoints/checkpoint-file.js';
import type { CheckpointDestination } from '../../telemetry/checkpoints/checkpoint-log.js';

const maxPemBytes = 1024 * 1024;

type Destinations = Pick<NonNullable<Config['accessLog']['checkpoints']>, 'file' | 'https' | 'syslog'>;

/**
 * Opens the configured destinations of access-log checkpoints.
 * @throws OperatorError
 */
export async function openDestinations({ file, https, syslog }: Destinations): Promise<CheckpointDestination[]> {
  return [
    ...(file === null ? [] : [new CheckpointFile(file)]),
    ...(https === null ? [] : [await openHttps(https)]),
    ...(syslog === null ? [] : [await openSyslog(syslog)]),
  ];
}

async function openHttps({
  url,
  tokenFile,
  caFile,
}: NonNullable<Destinations['https']>): Promise<CheckpointDestination> {
  const token = tokenFile === null ? null : await readToken(tokenFile, 'The token for checkpoints');
  return new HttpsCheckpoints({ url, token, ca: await readCa(caFile) });
}

async function openSyslog({ url, caFile }: NonNullable<Destinations['syslog']>): Promise<CheckpointDestination> {
  return new SyslogCheckpoints({ url, ca: await readCa(caFile), hostname: hostname(), now: () => Date.now() });
}

async function readCa(file: string | null): Promise<Buffer | null> {
  return file === null ? null : readOperatorFile(file, 'The CA certificate for checkpoints', maxPemBytes);
}
