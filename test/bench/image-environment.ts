import { readFileSync } from 'node:fs';

const [environment = ''] = /^ENV (?:.*\\\n)*.*$/m.exec(readFileSync('Dockerfile', 'utf8')) ?? [];

/** The environment variables that the container image sets. */
export const imageEnvironment: Readonly<Record<string, string>> = Object.fromEntries(
  [...environment.matchAll(/([A-Z_]+)=(?:"([^"]*)"|([^\s\\]+))/g)].map(([, name = '', quoted, bare]) => [
    name,
    quoted ?? bare ?? '',
  ]),
);
