import type { Records } from '../../src/gateway/ports.js';

/** What is said of a key, and how it is known, as `ACTIVE (cache)`; or the name of the error where nothing can be said. */
export async function keyStatus(records: Records, lookupId: string): Promise<string> {
  try {
    const { record, source } = await records.key(lookupId);
    return `${record?.keyStatus ?? 'unknown'} (${source})`;
  } catch (error) {
    return (error as Error).name;
  }
}
