import { readFileSync, renameSync } from 'node:fs';
import { existsSync } from 'node:fs';
import { openLog, until } from '../telemetry/open-log.js';

/** An access-log line for a request, as a gateway writes it. */
export function requestLine(
  fields: { readonly path?: string; readonly code?: string; readonly at?: number } = {},
): string {
  const { path = '/v1/payouts', code = 'accepted', at = Date.parse('2026-11-20T10:00:00Z') } = fields;
  const event = { action: 'api-request', code };
  return JSON.stringify({ '@timestamp': new Date(at).toISOString(), url: { path }, event });
}

/** Writes the log of two processes, with a rotation during the first, and returns the contents of its files. */
export async function sampleLog(directory: string): Promise<Buffer[]> {
  const file = `${directory}/access.log`;
  const first = openLog(file);
  for (let count = 0; count < 6; count += 1) first.write(requestLine({ path: `/v1/payouts/${count}` }));
  renameSync(file, `${file}.1`);
  first.reopen();
  await until(() => existsSync(file) && readFileSync(file, 'utf8').includes('file-start'));
  for (let count = 6; count < 10; count += 1) first.write(requestLine({ path: `/v1/payouts/${count}` }));
  await first.close(30_000);
  const second = openLog(file);
  for (let count = 10; count < 14; count += 1) second.write(requestLine({ path: `/v1/payouts/${count}` }));
  await second.close(30_000);
  return [readFileSync(`${file}.1`), readFileSync(file)];
}
