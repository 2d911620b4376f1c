import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { merchantsByLookupId } from '../compare/place.js';
import { startProgram } from '../compare/processes.js';
import type { Subject } from './subject.js';

/** A proxy in this folder that runs on Node. */
export interface NodePeer {
  readonly name: string;
  readonly title: string;
  /** Its file, relative to this folder. */
  readonly program: string;
  readonly log: boolean;
  readonly missing?: () => string | null;
}

/** Creates the subject of a proxy that runs on Node. */
export function nodePeer({ name, title, program, log, missing }: NodePeer): Subject {
  return {
    ...{ name, title },
    missing: missing ?? (() => null),
    async start(place) {
      const directory = await place.directory(name);
      const file = (one: string): string => path.join(directory, one);
      const { certFile, keyFile, upstreamPort } = place;
      const recordsFile = file('records.json');
      const logFile = log ? file('access.log') : null;
      const records = [...merchantsByLookupId(place)].map(([lookupId, merchantId]) => [lookupId, { merchantId }]);
      await writeFile(recordsFile, JSON.stringify(Object.fromEntries(records)));
      const settings = { certFile, keyFile, upstreamPort, recordsFile, logFile, directory };
      await writeFile(file('settings.json'), JSON.stringify(settings));
      const { pid, found } = await startProgram(place.t, {
        command: process.execPath,
        args: [path.join('test/bench/subjects', program), file('settings.json')],
        isSubject: true,
        started: /"ready":(\{[^}]+\})/,
      });
      const { http, https } = JSON.parse(found) as { http: number; https: number };
      return { pid, httpPort: http, httpsPort: https, logFile };
    },
  };
}
