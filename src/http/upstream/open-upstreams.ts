import { readOperatorFile } from '../../config/operator-file.js';
import type { Config } from '../../config/schema.js';
import type { BodyBuffers } from './body-buffers.js';
import { Upstream } from './upstream.js';

const maxPemBytes = 1024 * 1024;
/**
 * Longer than services take for most responses: a response that is sent twice, or late, comes while its connection rests,
 * and closes it. Without the rest, one stray response shifted all that followed it. Under load a connection rests for as long
 * as a response takes: then a stray one meets one request, whose own response comes during the rest.
 */
const restMilliseconds = 100;

/**
 * Opens the upstreams of a configuration, by their names; they connect when a request is sent.
 * @param buffers where bodies wait until they have arrived, for all of them
 * @param onUnsolicited called with the name of an upstream that sent bytes which no request had asked for
 * @throws OperatorError for a CA certificate that cannot be read
 */
export async function openUpstreams(
  config: Config,
  buffers: BodyBuffers,
  onUnsolicited: (upstream: string) => void,
): Promise<ReadonlyMap<string, Upstream>> {
  const upstreams = new Map<string, Upstream>();
  const { bodyBytes: maxBodyBytes, minBodyBytesPerSecond } = config.limits;
  for (const [name, { caFile, ...options }] of Object.entries(config.upstreams)) {
    const ca = caFile === null ? null : await readOperatorFile(caFile, 'The CA certificate', maxPemBytes);
    const upstream = new Upstream({
      ...options,
      ...{ name, ca, maxBodyBytes, minBodyBytesPerSecond, buffers, restMilliseconds },
      onUnsolicited: () => {
        onUnsolicited(name);
      },
    });
    upstreams.set(name, upstream);
  }
  return upstreams;
}
