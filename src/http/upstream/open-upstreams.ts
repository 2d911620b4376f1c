import { readOperatorFile } from '../../config/operator-file.js';
import type { Config } from '../../config/schema.js';
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
 * @param onUnsolicited called with the name of an upstream that sent bytes which no request had asked for
 * @throws OperatorError for a CA certificate that cannot be read
 */
export async function openUpstreams(
  config: Config,
  onUnsolicited: (upstream: string) => void,
): Promise<ReadonlyMap<string, Upstream>> {
  const upstreams = new Map<string, Upstream>();
  for (const [name, { caFile, ...options }] of Object.entries(config.upstreams)) {
    const ca = caFile === null ? null : await readOperatorFile(caFile, 'The CA certificate', maxPemBytes);
    const upstream = new Upstream({
      ...options,
      ...{ name, ca, maxBodyBytes: config.limits.bodyBytes, restMilliseconds },
      onUnsolicited: () => {
        onUnsolicited(name);
      },
    });
    upstreams.set(name, upstream);
  }
  return upstreams;
}
