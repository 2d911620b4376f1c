import type { UsageBatch } from '../../src/usage/batch.js';
import { BatchWriter, type KeyRows } from '../../src/usage/batch-text.js';

/** Returns the text of a batch, as a gateway writes it. */
export function batchText({ version, keys, merchants, unknown, ...head }: UsageBatch): Promise<string> {
  const writer = new BatchWriter(head.from);
  const add = (rows: KeyRows, counts: UsageBatch['unknown']): void => {
    for (const one of counts.codes) writer.code(rows.codes, one);
    for (const one of counts.addresses) writer.address(rows.addresses, one);
  };
  for (const key of keys) {
    const rows = writer.key(key.keyId, key.merchantId, key.lookupId);
    add(rows, key);
    for (const one of key.agents) writer.agent(rows.agents, one);
    if (key.lastUse !== null) writer.lastUse(rows.lastUse, key.lastUse);
  }
  for (const { merchantId, hosts, refusals } of merchants) {
    const list = writer.merchant(merchantId, refusals);
    for (const one of hosts) writer.host(list, one);
  }
  add(writer.unknown, unknown);
  return writer.text({ ...head, version } as typeof head);
}
