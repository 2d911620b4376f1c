import { isIPv4 } from 'node:net';
import type { Rule, RuleProblem } from './rule.js';
import type { Config } from './schema.js';

/** What keeps the operators' API, which moves money, from everybody else. */
export const operatorsRules: readonly Rule[] = [certificateIsWhole, tlsBeyondLoopback, upstreamIsNotForOperators];

const listen = 'services.operators.listen';

function certificateIsWhole({ services: { operators } }: Config): RuleProblem[] {
  const { certFile, keyFile } = operators.listen;
  if ((certFile === null) === (keyFile === null)) return [];
  const [missing, other] = certFile === null ? ['certFile', 'keyFile'] : ['keyFile', 'certFile'];
  const message = `expected a file, because ${listen}.${other} has one`;
  return [{ path: `${listen}.${missing}`, message, others: [`${listen}.${other}`] }];
}

/** The token would be read by whoever is on the way. */
function tlsBeyondLoopback({ services: { operators } }: Config): RuleProblem[] {
  const { host, certFile, keyFile } = operators.listen;
  if (isLoopback(host) || certFile !== null || keyFile !== null) return [];
  const message = `is beyond this machine, where the operators' API speaks TLS alone; expected 127.0.0.1, or ${listen}.certFile and keyFile`;
  return [{ path: `${listen}.host`, message, others: [`${listen}.certFile`] }];
}

/** The gateway would send what merchants ask for to the API that moves money. */
function upstreamIsNotForOperators({ upstreams, services: { operators } }: Config): RuleProblem[] {
  if (operators.tokenFile === null) return [];
  const { port, host } = operators.listen;
  return Object.entries(upstreams).flatMap(([name, { url }]) => {
    if (!URL.canParse(url)) return [];
    const target = new URL(url);
    const targetPort = Number(target.port || (target.protocol === 'https:' ? 443 : 80));
    const isSameHost = target.hostname === host || (isLoopback(target.hostname) && isLoopback(host));
    if (port === 0 || targetPort !== port || !isSameHost) return [];
    const message =
      "leads to the operators' API, which is for operators alone; expected the address of services.listen";
    return [{ path: `upstreams.${name}.url`, message, others: [`${listen}.port`] }];
  });
}

function isLoopback(host: string): boolean {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, '$1');
  return name === 'localhost' || name === '::1' || (isIPv4(name) && name.startsWith('127.'));
}
