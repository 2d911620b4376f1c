import { readOperatorFile } from '../../config/operator-file.js';
import type { Config } from '../../config/schema.js';
import { Upstream } from './upstream.js';

const maxPemBytes = 1024 * 1024;

/**
 * Opens the upstreams of a configuration, by their names; they connect when a request is sent.
 * @throws OperatorError for a CA certificate that cannot be read
 */
export async function openUpstreams(config: Config): Promise<ReadonlyMap<string, Upstream>> {
  const upstreams = new Map<string, Upstream>();
  for (const [name, { url, timeoutSeconds, maxInFlight, caFile }] of Object.entries(config.upstreams)) {
    const ca = caFile === null ? null : await readOperatorFile(caFile, 'The CA certificate', maxPemBytes);
    const maxBodyBytes = config.limits.bodyBytes;
    upstreams.set(name, new Upstream({ name, url, timeoutSeconds, maxInFlight, ca, maxBodyBytes }));
  }
  return upstreams;
}
