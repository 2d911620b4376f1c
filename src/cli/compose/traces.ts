import { hostname } from 'node:os';
import { ulid } from 'ulid';
import { OtlpTraces } from '../../adapters/otlp/otlp-traces.js';
import { readOperatorFile, readToken } from '../../config/operator-file.js';
import type { Config } from '../../config/schema.js';
import type { TraceExport } from '../../gateway/ports.js';
import type { Logger } from '../../telemetry/logger.js';
import { version } from '../version.js';

const maxPemBytes = 1024 * 1024;

/**
 * Opens the trace exporter; null if the configuration names no endpoint.
 * @throws OperatorError
 */
export async function openTraces({ traces, environment }: Config, log: Logger): Promise<TraceExport | null> {
  const { endpoint, sampleOneIn } = traces;
  if (endpoint === null) return null;
  return new OtlpTraces({
    endpoint,
    token: await readTraceToken(traces),
    ca: await readTraceCa(traces),
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
      if (problem === null) log.info('trace export works again');
      else log.warn({ problem }, 'trace export failed; spans are dropped');
    },
  });
}

/** Reads the token for the endpoint of traces; null without one. @throws OperatorError */
export async function readTraceToken({ tokenFile }: Config['traces']): Promise<string | null> {
  return tokenFile === null ? null : readToken(tokenFile, 'The token for traces');
}

/** Reads the CA certificate of the endpoint of traces, in PEM; null without one. @throws OperatorError */
export async function readTraceCa({ caFile }: Config['traces']): Promise<Buffer | null> {
  return caFile === null ? null : readOperatorFile(caFile, 'The CA certificate for traces', maxPemBytes);
}
