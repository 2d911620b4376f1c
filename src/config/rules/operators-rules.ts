import type { Rule, RuleProblem } from '../config-error.js';
import type { Config } from '../schema.js';
import { bareHost, includesLoopback, isLoopback } from './loopback.js';
import { certificateProblems, clientProblems } from './registry-rules.js';

/** Rules that protect the operators' API, which can move money. */
export const operatorsRules: readonly Rule[] = [
  certificateIsWhole,
  tlsBeyondLoopback,
  upstreamIsNotForOperators,
  administratorsNeedTrail,
  trailNeedsTls,
];

const listen = 'services.operators.listen';

function certificateIsWhole({ services: { operators } }: Config): RuleProblem[] {
  return certificateProblems(listen, operators.listen);
}

/** Requires TLS except on loopback, because otherwise the operators' token would be readable on the network. */
function tlsBeyondLoopback({ services: { operators } }: Config): RuleProblem[] {
  const { host, certFile, keyFile } = operators.listen;
  if (isLoopback(host) || certFile !== null || keyFile !== null) return [];
  const message =
    "is not a loopback address, so the operators' API requires TLS; expected 127.0.0.1, " +
    `or ${listen}.certFile and keyFile`;
  return [{ path: `${listen}.host`, message, others: [`${listen}.certFile`] }];
}

/**
 * Rejects an upstream with the address of the operators' API. Otherwise the gateway would forward merchants' requests
 * to the API that moves money.
 */
function upstreamIsNotForOperators({ upstreams, services: { operators } }: Config): RuleProblem[] {
  if (operators.tokenFile === null && operators.registryKeys.length === 0) return [];
  const { port, host } = operators.listen;
  return Object.entries(upstreams).flatMap(([name, { url }]) => {
    if (!URL.canParse(url)) return [];
    const target = new URL(url);
    const targetPort = Number(target.port || (target.protocol === 'https:' ? 443 : 80));
    const isSameHost =
      bareHost(target.hostname) === bareHost(host) || (includesLoopback(target.hostname) && includesLoopback(host));
    if (port === 0 || targetPort !== port || !isSameHost) return [];
    const message =
      "is the address of the operators' API, which is only for operators; expected the address of services.listen";
    return [{ path: `upstreams.${name}.url`, message, others: [`${listen}.host`, `${listen}.port`] }];
  });
}

/**
 * Requires `trail` if administrators of the registry are allowed to use the operators' API. Otherwise the registry's
 * audit trail would lack their changes.
 */
function administratorsNeedTrail({ services: { operators } }: Config): RuleProblem[] {
  if (operators.registryKeys.length === 0 || operators.trail !== null) return [];
  const path = 'services.operators.trail';
  const message =
    'is required with services.operators.registryKeys; expected the url of the registry, and a tokenFile of an administrator with the role services';
  return [{ path, message, others: ['services.operators.registryKeys'] }];
}

/** Requires TLS except on loopback, because otherwise the token for the registry would be readable on the network. */
function trailNeedsTls({ services: { operators } }: Config): RuleProblem[] {
  return operators.trail === null ? [] : clientProblems('services.operators.trail', operators.trail);
}
