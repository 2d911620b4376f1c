import { loadConfig } from '../../config/load.js';
import { OperatorError } from '../../config/operator-error.js';
import type { Config } from '../../config/schema.js';
import { readToken } from '../../rest/bearer-token.js';
import { type ClientTrust, trustAuthorities, trustCertificate } from '../../tls/client-trust.js';
import type { AdminAccess, ApiTarget } from './admin-client.js';
import { caFileVariable, type Environment, type Peer, WrongUsage } from './peer.js';
import { sessionToken } from './session/session-token.js';
import { isSessionFile, sessionFileOf } from './session/session-file.js';

/** Command-line options for the address of an API and its bearer token. */
export interface AccessOptions {
  readonly address?: string | undefined;
  readonly tokenFile?: string | undefined;
  readonly caFile?: string | undefined;
  readonly config?: string | undefined;
}

const tokenForm = /^[A-Za-z0-9._~+/=-]{1,4096}$/;

/**
 * Determines the address and token of an API. Options take precedence over environment variables, which take precedence
 * over the configuration.
 * @throws WrongUsage if the token is missing, or address or token is malformed
 * @throws ConfigError for an invalid configuration
 * @throws OperatorError if the token file or the CA file cannot be read
 */
export async function accessOf(options: AccessOptions, env: Environment, peer: Peer): Promise<AdminAccess> {
  const config = loadConfig({ file: options.config, env });
  const target = await targetIn(options, env, config, peer);
  return { peer, ...target, token: await tokenOf(options, env, config, peer, target) };
}

/**
 * Determines the address of an API and which certificates are trusted, as `accessOf` does, but needs no token.
 * @throws WrongUsage if the address is malformed
 * @throws ConfigError for an invalid configuration
 * @throws OperatorError if the CA file cannot be read
 */
export function targetOf(options: AccessOptions, env: Environment, peer: Peer): Promise<ApiTarget> {
  return targetIn(options, env, loadConfig({ file: options.config, env }), peer);
}

async function targetIn(options: AccessOptions, env: Environment, config: Config, peer: Peer): Promise<ApiTarget> {
  const given = options.address ?? nonEmpty(env[peer.addressVariable]);
  const address = urlIn(given ?? addressIn(config, peer), peer);
  const ownCertFile = given === undefined ? (peer.settings(config).listen.certFile ?? null) : null;
  const trust = address.protocol === 'https:' ? await trustOf(options.caFile, env, ownCertFile) : null;
  if (address.protocol === 'http:' && options.caFile !== undefined)
    throw new WrongUsage('--ca-file has no effect for an http:// address: give an https:// address');
  return { address, trust };
}

/**
 * Determines which certificates a client trusts. The CA file from the option or the environment variable takes
 * precedence over the certificate of the configured listener. Null means that the client trusts the CAs of the system.
 */
async function trustOf(
  caFile: string | undefined,
  env: Environment,
  ownCertFile: string | null,
): Promise<ClientTrust | null> {
  const file = caFile ?? nonEmpty(env[caFileVariable]);
  if (file !== undefined) return trustAuthorities(file);
  if (ownCertFile === null) return null;
  try {
    return await trustCertificate(ownCertFile);
  } catch (error) {
    // The configured certificate file may exist only on the server's machine. If it cannot be read, use the CAs of the
    // system.
    if (error instanceof OperatorError) return null;
    throw error;
  }
}

async function tokenOf(
  { tokenFile }: AccessOptions,
  env: Environment,
  config: Config,
  peer: Peer,
  target: ApiTarget,
): Promise<string> {
  if (tokenFile !== undefined) {
    const isSession = peer.section === 'registry' && (await isSessionFile(tokenFile));
    const token = isSession ? await sessionToken(tokenFile, target, Date.now) : null;
    return token ?? readToken(tokenFile, peer.tokenFile);
  }
  const token = nonEmpty(env[peer.tokenVariable]?.trim());
  if (token === undefined) {
    const configured = peer.settings(config).tokenFile;
    if (configured !== null) return readToken(configured, peer.tokenFile);
    // Use the token of a sign-in (`login`) only for the registry: the operators' API requires a token of its own.
    const session =
      peer.section === 'registry' ? await sessionToken(sessionFileOf(target.address, env), target, Date.now) : null;
    if (session !== null) return session;
    throw new WrongUsage(
      `a token is required: give its file with ${peer.tokenOption}, or with ${peer.tokenFile} in the ` +
        `configuration file (--config), or set ${peer.tokenVariable} to the token`,
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

/** Returns the address of the API from the configuration. Replaces a wildcard address (0.0.0.0, ::) by loopback. */
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
