import { loadConfig } from '../../config/load.js';
import type { Config } from '../../config/schema.js';
import { readToken } from '../../registry/administrator.js';
import type { AdminAccess } from './admin-client.js';

/** The environment variables of the process. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** The options by which every administration command finds the registry and is let in. */
export interface AccessOptions {
  readonly registry?: string;
  readonly tokenFile?: string;
  readonly config?: string;
}

/** How the command line, not the registry, is wrong; without what was given, which may be a secret. */
export class WrongUsage extends Error {}

const tokenForm = /^[A-Za-z0-9._~+/=-]{1,4096}$/;

/**
 * Finds address and token: options before environment variables before the configuration.
 * @throws WrongUsage for what is missing or no address
 * @throws ConfigError
 * @throws OperatorError for a token file that cannot be read
 */
export async function accessOf(options: AccessOptions, env: Environment): Promise<AdminAccess> {
  const config = loadConfig({ file: options.config, env });
  const given = options.registry ?? nonEmpty(env.MERCHANT_GATEWAY_REGISTRY) ?? addressIn(config);
  return { registry: registryUrl(given), token: await tokenOf(options, env, config) };
}

async function tokenOf({ tokenFile }: AccessOptions, env: Environment, config: Config): Promise<string> {
  if (tokenFile !== undefined) return readToken(tokenFile);
  const token = nonEmpty(env.MERCHANT_GATEWAY_TOKEN?.trim());
  if (token === undefined) {
    if (config.registry.tokenFile !== null) return readToken(config.registry.tokenFile);
    throw new WrongUsage(
      'a token is required: name its file with --token-file or registry.tokenFile of --config, or set MERCHANT_GATEWAY_TOKEN',
    );
  }
  if (tokenForm.test(token)) return token;
  throw new WrongUsage('MERCHANT_GATEWAY_TOKEN must hold one token of letters, digits and . _ ~ + / = -');
}

function registryUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isPlain = url !== null && url.username + url.password + url.search + url.hash === '';
  if (isPlain && (url.protocol === 'http:' || url.protocol === 'https:')) return url;
  throw new WrongUsage(
    "the registry's address must be an http or https URL without a user, a query and a fragment, such as http://127.0.0.1:9443",
  );
}

/** An address to listen on that is every address of the machine is asked on its loopback. */
function addressIn({ registry: { listen } }: Config): string {
  const loopbacks: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' };
  const host = loopbacks[listen.host] ?? listen.host;
  if (listen.port === 0)
    throw new WrongUsage('registry.listen.port is 0, any free one: give the address by --registry');
  return `http://${host.includes(':') ? `[${host}]` : host}:${listen.port}`;
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}
