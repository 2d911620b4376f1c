import type { RunningGateway } from '../http/start-gateway.js';
import type { LineSink } from '../telemetry/line-sink.js';

/**
 * Drains a gateway, whose access log is whole then.
 * @throws Error where the end of the log could not be written, and is lost with the process: nobody may take that for a good end
 */
export async function drainGateway(
  gateway: Pick<RunningGateway, 'drain'>,
  accessLog: Pick<LineSink, 'heldBytes'>,
): Promise<void> {
  await gateway.drain();
  const left = accessLog.heldBytes();
  if (left > 0) throw new Error(`the end of the access log could not be written: ${left} bytes are lost`);
}
