import { loadConfig } from '../../config/load.js';
import { OperatorError } from '../../config/operator-error.js';
import type { Config } from '../../config/schema.js';
import { readToken } from '../../rest/bearer-token.js';
import { type ClientTrust, trustAuthorities, trustCertificate } from '../../tls/client-trust.js';
import type { AdminAccess, ApiTarget } from './admin-client.js';
import { caFileVariable, type Environment, type Peer, WrongUsage } from './peer.js';
import { sessionToken } from './session/session-token.js';
import { isSessionFile, sessionFileOf } from './session/session-file.js';

/** Command-line options that give the address, the CA file and the bearer token of an API. */
export interface AccessOptions {
  readonly address?: string | undefined;
  readonly tokenFile?: string | undefined;
  readonly caFile?: string | undefined;
  readonly config?: string | undefined;
}

const tokenForm = /^[A-Za-z0-9._~+/=-]{1,4096}$/;

/**
 * Determines the address of an API, the certificates that the client trusts, and the token. Options take precedence
 * over environment variables, which take precedence over the configuration. The token that `login` stored comes last.
 * @throws WrongUsage if the token is missing, the address or token is malformed, or a CA file is given for http
 * @throws ConfigError for an invalid configuration
 * @throws OperatorError if the token file or the CA file cannot be read, or the token of a sign-in cannot be used
 */
export async function accessOf(options: AccessOptions, env: Environment, peer: Peer): Promise<AdminAccess> {
  const config = loadConfig({ file: options.config, env });
  const target = await targetIn(options, env, config, peer);
  return { peer, ...target, ...(await tokenOf(options, env, config, peer, target)) };
}

/**
 * Determines the address of an API and which certificates are trusted, as `accessOf` does, but needs no token.
 * @throws WrongUsage if the address is malformed, or a CA file is given for http
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

/** A token. If it is the token of a sign-in, `renew` replaces it after the registry has rejected it. */
type Token = Pick<AdminAccess, 'token' | 'renew'>;

async function tokenOf(
  { tokenFile }: AccessOptions,
  env: Environment,
  config: Config,
  peer: Peer,
  target: ApiTarget,
): Promise<Token> {
  if (tokenFile !== undefined) {
    const isSession = peer.section === 'registry' && (await isSessionFile(tokenFile));
    const session = isSession ? await tokenOfSession(tokenFile, target) : null;
    return session ?? { token: await readToken(tokenFile, peer.tokenFile) };
  }
  const token = nonEmpty(env[peer.tokenVariable]?.trim());
  if (token === undefined) {
    const configured = peer.settings(config).tokenFile;
    if (configured !== null) return { token: await readToken(configured, peer.tokenFile) };
    // Use the token of a sign-in (`login`) only for the registry: the operators' API requires a token of its own.
    const session =
      peer.section === 'registry' ? await tokenOfSession(sessionFileOf(target.address, env), target) : null;
    if (session !== null) return session;
    const isRefused = peer.section === 'registry' && config.registry.bootstrap === 'off';
    const inFile = isRefused ? '' : `, or with ${peer.tokenFile} in the configuration file (--config)`;
    const signIn = peer.section === 'registry' ? ', or sign in with "merchant-gateway login"' : '';
    throw new WrongUsage(
      `a token is required. Give its file with ${peer.tokenOption}${inFile}, or set ${peer.tokenVariable} to the token${signIn}`,
    );
  }
  if (tokenForm.test(token)) return { token };
  throw new WrongUsage(`${peer.tokenVariable} must contain one token of letters, digits and . _ ~ + / = -`);
}

async function tokenOfSession(file: string, target: ApiTarget): Promise<Token | null> {
  const token = await sessionToken(file, target, Date.now);
  return token === null ? null : { token, renew: (rejected) => sessionToken(file, target, Date.now, rejected) };
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
