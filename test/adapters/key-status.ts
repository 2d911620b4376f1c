import type { Records } from '../../src/gateway/record-key-store.js';

/** The status of a key and its source, e.g. `ACTIVE (cache)`, or the name of the error if the look-up fails. */
export async function keyStatus(records: Records, lookupId: string): Promise<string> {
  try {
    const { record, source } = await records.key(lookupId);
    return `${record?.keyStatus ?? 'unknown'} (${source})`;
  } catch (error) {
    return (error as Error).name;
  }
}
