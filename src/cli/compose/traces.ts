import { hostname } from 'node:os';
import { ulid } from 'ulid';
import { OtlpTraces } from '../../adapters/otlp/otlp-traces.js';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile, readSecretFile } from '../../config/operator-file.js';
import type { Config } from '../../config/schema.js';
import type { TraceExport } from '../../gateway/ports.js';
import type { Logger } from '../../telemetry/logger.js';
import { version } from '../version.js';

const maxPemBytes = 1024 * 1024;

/**
 * Opens the way to where traces are kept; null where the configuration names none.
 * @throws OperatorError
 */
export async function openTraces({ traces, environment }: Config, log: Logger): Promise<TraceExport | null> {
  const { endpoint, tokenFile, caFile, sampleOneIn } = traces;
  if (endpoint === null) return null;
  return new OtlpTraces({
    endpoint,
    token: tokenFile === null ? null : await readToken(tokenFile),
    ca: caFile === null ? null : await readOperatorFile(caFile, 'The CA certificate for traces', maxPemBytes),
    sampleOneIn,
    resource: {
      'service.name': 'merchant-gateway',
      'service.version': version,
      'service.instance.id': ulid(),
      'host.name': hostname(),
      'deployment.environment.name': environment,
    },
    random: Math.random,
    onProblem: (problem) => {
      if (problem === null) log.info('traces are taken again');
      else log.warn({ problem }, 'traces are dropped: they cannot be sent');
    },
  });
}

/** What cannot stand in a header is told before the first trace, and without being repeated. */
async function readToken(file: string): Promise<string> {
  const token = (await readSecretFile(file, 'The token for traces')).toString('latin1');
  if (/^[!-~]+$/.test(token)) return token;
  throw new OperatorError(`The token for traces ${file} holds a character that no token has.`);
}
