import type { Problem } from './config-error.js';
import type { Config } from './schema.js';

/** What keeps the gateway, and no other command, from starting with a configuration that is valid as such. */
export function gatewayProblems({ geoip, keyStore, listen, torExits, trustedProxies }: Config): Problem[] {
  const problems: Problem[] = [];
  if (listen.https === null && trustedProxies.length === 0) {
    problems.push({
      path: 'listen.https',
      message:
        'without a TLS listener and without trustedProxies no request can ever be accepted: ' +
        'expected certFile and keyFile, or the proxies in front that terminate TLS in trustedProxies',
    });
  }
  if (listen.https === null && listen.http === null) {
    problems.push({ path: 'listen', message: 'expected at least one of https and http' });
  }
  if (keyStore.kind === 'memory' && keyStore.memory.recordsFile === null) {
    problems.push({ path: 'keyStore.memory.recordsFile', message: 'expected the path of a file for the kind memory' });
  }
  if (torExits.enabled && torExits.sources.length === 0 && geoip.anonymousIpFile === null) {
    problems.push({
      path: 'torExits.sources',
      message: 'expected at least one source, or geoip.anonymousIpFile, or torExits.enabled: false',
    });
  }
  return problems;
}
