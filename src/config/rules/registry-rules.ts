import type { Rule, RuleProblem } from '../config-error.js';
import type { Config } from '../schema.js';
import { isLoopback } from './loopback.js';
import { proxyProblems } from './proxy-rules.js';

const listen = 'registry.listen';
const consoleListen = 'registry.console.listen';
const servicesOption = 'registry.console.services';

/** Rules for the options of the registry: the admin API, the webhooks and the console. */
export const registryRules: readonly Rule[] = [
  certificateIsWhole,
  clientCertificatesNeedTls,
  proxiesAreAddresses,
  webhooksAreProtected,
  consoleCertificateIsWhole,
  consoleOriginIsProtected,
  servicesAreProtected,
  servicesNeedTokens,
];

function certificateIsWhole({ registry }: Config): RuleProblem[] {
  return certificateProblems(listen, registry.listen);
}

/**
 * Returns a problem if a listener has a certificate without a private key, or the reverse.
 * @param path the option of the listener
 */
export function certificateProblems(
  path: string,
  { certFile, keyFile }: { readonly certFile: string | null; readonly keyFile: string | null },
): RuleProblem[] {
  if ((certFile === null) === (keyFile === null)) return [];
  const [missing, other] = certFile === null ? ['certFile', 'keyFile'] : ['keyFile', 'certFile'];
  const message = `expected a file, because ${path}.${other} is set`;
  return [{ path: `${path}.${missing}`, message, others: [`${path}.${other}`] }];
}

/**
 * Rejects a CA file for client certificates without TLS. It would suggest protection, although no certificate is
 * checked.
 */
function clientCertificatesNeedTls({
  registry: {
    listen: { certFile, clientCaFile },
  },
}: Config): RuleProblem[] {
  if (clientCaFile === null || certFile !== null) return [];
  const message = `has no effect without ${listen}.certFile and keyFile; expected null`;
  return [{ path: `${listen}.clientCaFile`, message, others: [`${listen}.certFile`] }];
}

function proxiesAreAddresses({ registry: { behindProxy } }: Config): RuleProblem[] {
  const path = 'registry.behindProxy';
  if (behindProxy?.length === 0)
    return [{ path, message: 'is an empty list; expected the addresses of proxies, or null' }];
  return proxyProblems(path, behindProxy ?? []);
}

/**
 * Requires https for webhooks except on loopback, because otherwise others on the network could read the requests. Also
 * rejects invalid URLs, and a URL that is configured twice.
 */
function webhooksAreProtected({ registry: { unusual } }: Config): RuleProblem[] {
  const urls = unusual.webhooks.map(({ url }) => url);
  return urls.flatMap((url, index) => {
    const path = `registry.unusual.webhooks[${index}].url`;
    if (!URL.canParse(url)) return [{ path, message: 'is not a URL; expected an https URL' }];
    const { protocol, hostname } = new URL(url);
    if (protocol !== 'https:' && !isLoopback(hostname))
      return [{ path, message: 'expected https, because http is accepted only for loopback addresses' }];
    const first = urls.indexOf(url);
    const message = `is already the URL of registry.unusual.webhooks[${first}]; expected another URL`;
    return first < index ? [{ path, message, others: [`registry.unusual.webhooks[${first}].url`] }] : [];
  });
}

function consoleCertificateIsWhole({ registry }: Config): RuleProblem[] {
  return registry.console === null ? [] : certificateProblems(consoleListen, registry.console.listen);
}

/**
 * Rejects an origin that differs from the form in which browsers send it, such as an origin with a path. Requires https
 * except on loopback, because otherwise the session would be readable on the network. The origin is optional only if
 * the console listens on loopback.
 */
function consoleOriginIsProtected({ registry }: Config): RuleProblem[] {
  if (registry.console === null) return [];
  const { origin, listen: at } = registry.console;
  const path = 'registry.console.origin';
  if (origin === null) {
    if (isLoopback(at.host)) return [];
    const message =
      'is required, because registry.console.listen.host is not a loopback address; expected an https:// URL';
    return [{ path, message, others: [`${consoleListen}.host`] }];
  }
  const { protocol, hostname, origin: written } = URL.canParse(origin) ? new URL(origin) : noUrl;
  if (written !== origin)
    return [
      {
        path,
        message: `is not an origin in the form that browsers send; expected ${written === '' ? 'a URL' : written}`,
      },
    ];
  if (protocol === 'https:' || isLoopback(hostname)) return [];
  return [{ path, message: 'expected https, because http is accepted only for loopback addresses' }];
}

/**
 * Requires TLS except on loopback, because otherwise the console's token for the services would be readable on the
 * network.
 */
function servicesAreProtected({ registry: { console } }: Config): RuleProblem[] {
  const services = console?.services ?? null;
  return services === null ? [] : clientProblems(servicesOption, services);
}

/**
 * Returns problems of the options of an API that this product calls with a token. Requires https except on loopback,
 * because otherwise the token would be readable on the network. Also rejects an invalid URL, and a CA file that has no
 * effect without TLS.
 * @param path the section with url and caFile
 */
export function clientProblems(
  path: string,
  { url, caFile }: { readonly url: string; readonly caFile: string | null },
): RuleProblem[] {
  if (!URL.canParse(url)) return [{ path: `${path}.url`, message: 'is not a valid URL', others: [] }];
  const { protocol, hostname } = new URL(url);
  if (protocol === 'https:') return [];
  if (!isLoopback(hostname))
    return [
      {
        path: `${path}.url`,
        message: 'expected https, because http is accepted only for loopback addresses',
        others: [],
      },
    ];
  if (caFile === null) return [];
  return [
    { path: `${path}.caFile`, message: 'has no effect for an http:// URL; expected null', others: [`${path}.url`] },
  ];
}

/**
 * If `registry.console.services` is set, requires a key that signs services tokens. Without such a token, the services
 * reject the console's requests.
 */
function servicesNeedTokens({ registry: { console, servicesToken } }: Config): RuleProblem[] {
  if (!console?.services || servicesToken !== null) return [];
  const message = `expected keyFile, because ${servicesOption} is set`;
  return [{ path: 'registry.servicesToken', message, others: [servicesOption] }];
}

const noUrl = { protocol: '', hostname: '', origin: '' };

/**
 * Requires TLS, or a proxy that terminates TLS, if the admin API or the console is reachable over the network.
 * Otherwise tokens and sessions would be readable on the network. This rule is not in `registryRules`, because
 * commands that run no registry must accept the same file.
 */
export function unprotectedRegistry({ registry }: Config): RuleProblem[] {
  const { behindProxy, console } = registry;
  const listeners = [
    { path: listen, what: 'the admin API', ...registry.listen },
    ...(console === null ? [] : [{ path: consoleListen, what: 'the console', ...console.listen }]),
  ];
  return listeners.flatMap(({ path, what, host, certFile }) => {
    if (isLoopback(host) || certFile !== null || behindProxy !== null) return [];
    const message =
      `is not a loopback address, so ${what} requires TLS; expected 127.0.0.1, or ${path}.certFile and ` +
      'keyFile, or registry.behindProxy with the addresses of a proxy that terminates TLS';
    return [{ path: `${path}.host`, message, others: [`${path}.certFile`, 'registry.behindProxy'] }];
  });
}
