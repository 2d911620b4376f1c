import { holdsKey } from '../telemetry/mask-keys.js';
import { uniqueId } from '../telemetry/unique-id.js';

const safeId = /^[A-Za-z0-9._-]{1,64}$/;

/**
 * The id of a request, given back in `x-request-id`. A trusted proxy's own id is kept where it is short and safe;
 * anybody else could make two requests look like one in the log.
 */
export function requestIdOf(values: readonly string[], fromTrustedProxy: boolean): string {
  const [value = ''] = values;
  return fromTrustedProxy && values.length === 1 && safeId.test(value) && !holdsKey(value) ? value : uniqueId();
}
