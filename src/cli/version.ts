import { readFileSync } from 'node:fs';

/** The version of this program, from its package.json. */
export const version = readVersion(new URL('../../package.json', import.meta.url));

function readVersion(manifest: URL): string {
  const { version } = JSON.parse(readFileSync(manifest, 'utf8')) as { version: string };
  return version;
}
