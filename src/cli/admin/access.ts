import { loadConfig } from '../../config/load.js';
import type { Config } from '../../config/schema.js';
import { readToken } from '../../rest/bearer-token.js';
import type { AdminAccess } from './admin-client.js';
import { sessionToken } from './session/session-token.js';
import { isSessionFile, sessionFileOf } from './session/session-file.js';
import { type Environment, type Peer, WrongUsage } from './peer.js';

/** Command-line options for the address of an API and its bearer token. */
export interface AccessOptions {
  readonly address?: string | undefined;
  readonly tokenFile?: string | undefined;
  readonly config?: string | undefined;
}

const tokenForm = /^[A-Za-z0-9._~+/=-]{1,4096}$/;

/**
 * Determines the address and token of an API. Options take precedence over environment variables, which take precedence
 * over the configuration.
 * @throws WrongUsage if the token is missing, or address or token is malformed
 * @throws ConfigError for an invalid configuration
 * @throws OperatorError if the token file cannot be read
 */
export async function accessOf(options: AccessOptions, env: Environment, peer: Peer): Promise<AdminAccess> {
  const config = loadConfig({ file: options.config, env });
  const address = addressGiven(options, env, config, peer);
  return { peer, address, token: await tokenOf(options, env, config, peer, address) };
}

/** Determines the address of an API, like `accessOf`. @throws WrongUsage, ConfigError */
export function addressOf(options: AccessOptions, env: Environment, peer: Peer): URL {
  return addressGiven(options, env, loadConfig({ file: options.config, env }), peer);
}

function addressGiven({ address }: AccessOptions, env: Environment, config: Config, peer: Peer): URL {
  return urlIn(address ?? nonEmpty(env[peer.addressVariable]) ?? addressIn(config, peer), peer);
}

async function tokenOf(
  { tokenFile }: AccessOptions,
  env: Environment,
  config: Config,
  peer: Peer,
  address: URL,
): Promise<string> {
  if (tokenFile !== undefined) {
    const isSession = peer.section === 'registry' && (await isSessionFile(tokenFile));
    const token = isSession ? await sessionToken(tokenFile, address, Date.now) : null;
    return token ?? readToken(tokenFile, peer.tokenFile);
  }
  const token = nonEmpty(env[peer.tokenVariable]?.trim());
  if (token === undefined) {
    const configured = peer.settings(config).tokenFile;
    if (configured !== null) return readToken(configured, peer.tokenFile);
    // Only the registry has sign-ins; the operators' API takes its own token.
    const session =
      peer.section === 'registry' ? await sessionToken(sessionFileOf(address, env), address, Date.now) : null;
    if (session !== null) return session;
    throw new WrongUsage(
      `a token is required: give its file with ${peer.tokenOption} or ${peer.tokenFile} of --config, ` +
        `or set ${peer.tokenVariable}`,
    );
  }
  if (tokenForm.test(token)) return token;
  throw new WrongUsage(`${peer.tokenVariable} must contain one token of letters, digits and . _ ~ + / = -`);
}

function urlIn(text: string, peer: Peer): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isPlain = url !== null && url.username + url.password + url.search + url.hash === '';
  if (isPlain && (url.protocol === 'http:' || url.protocol === 'https:')) return url;
  const example = peer.section === 'registry' ? 'http://127.0.0.1:9443' : 'http://127.0.0.1:7081';
  const whose = peer.section === 'registry' ? "the registry's address" : "the address of the operators' API";
  throw new WrongUsage(`${whose} must be an http or https URL without user, query and fragment, such as ${example}`);
}

/**
 * Returns the address of the API from the configuration; loopback if it listens on a wildcard address (0.0.0.0, ::).
 */
function addressIn(config: Config, peer: Peer): string {
  const { host: listened, port, certFile = null } = peer.settings(config).listen;
  const loopbacks: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' };
  const host = loopbacks[listened] ?? listened;
  if (port === 0)
    throw new WrongUsage(`${peer.section}.listen.port is 0 (any free port): give the address with ${peer.option}`);
  return `${certFile === null ? 'http' : 'https'}://${host.includes(':') ? `[${host}]` : host}:${port}`;
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}
