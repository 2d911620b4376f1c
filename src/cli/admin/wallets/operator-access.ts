import { loadConfig } from '../../../config/load.js';
import { OperatorError } from '../../../config/operator-error.js';
import { servicesTokenSchema } from '../../../registry/services-tokens/schema.js';
import { accessOf, targetOf } from '../access.js';
import { type AdminAccess, AdminClient } from '../admin-client.js';
import { type Environment, operatorsPeer, type Peer, registryPeer, WrongUsage } from '../peer.js';
import { RejectedByApi } from '../refused.js';

/**
 * Options for the access to the operators' API, which is the services' API for wallets. The access needs a shared
 * token, or a token that the registry signs.
 */
export interface OperatorAccessOptions {
  readonly services?: string;
  readonly tokenFile?: string;
  readonly registry?: string;
  readonly registryTokenFile?: string;
  readonly caFile?: string;
  readonly config?: string;
  /** The id of an approved request to fund a wallet. */
  readonly approval?: string;
}

const registryOfWallets: Peer = { ...registryPeer, tokenOption: '--registry-token-file' };

/** How commands reach the operators' API with a token that the registry signs for an administrator. */
const administratorsPeer: Peer = {
  ...operatorsPeer,
  rejectedToken:
    'Check that services.operators.registryKeys names the public key that belongs to the private key in ' +
    'registry.servicesToken.keyFile. Also check that the clocks of the registry and the services agree.',
};

/**
 * Determines the address of the operators' API and the token for this API. Uses the first available token:
 * 1. the shared token in the file of `--token-file`
 * 2. the shared token of the environment or the configuration, unless `--registry` or `--registry-token-file` is given
 * 3. a token that the registry signs for the administrator
 * @param reason sent to the registry with the request for a token; null without a reason
 * @throws WrongUsage if no token is given
 * @throws ConfigError for an invalid configuration
 * @throws OperatorError if the registry is unreachable or signs no token
 */
export async function operatorAccess(
  options: OperatorAccessOptions,
  env: Environment,
  reason: string | null,
): Promise<AdminAccess> {
  const { services: address, tokenFile, caFile, config } = options;
  if (usesSharedToken(options, env)) return accessOf({ address, tokenFile, caFile, config }, env, operatorsPeer);
  const target = await targetOf({ address, caFile, config }, env, operatorsPeer);
  const registry = new AdminClient({ ...(await registryAccessOf(options, env)), reason });
  return { peer: administratorsPeer, ...target, token: await servicesTokenFrom(registry, options.approval) };
}

/** Determines the address and token of the registry. @throws WrongUsage, ConfigError, OperatorError */
export function registryAccess(options: OperatorAccessOptions, env: Environment): Promise<AdminAccess> {
  const { registry: address, registryTokenFile: tokenFile, caFile, config } = options;
  return accessOf({ address, tokenFile, caFile, config }, env, registryOfWallets);
}

async function registryAccessOf(options: OperatorAccessOptions, env: Environment): Promise<AdminAccess> {
  try {
    return await registryAccess(options, env);
  } catch (error) {
    if (!(error instanceof WrongUsage)) throw error;
    throw new WrongUsage(
      `${error.message}. The command needs access to the registry to get a token for the operators' API. ` +
        "Without access to the registry, give the shared operators' token with --token-file",
    );
  }
}

function usesSharedToken({ tokenFile, registry, registryTokenFile, config }: OperatorAccessOptions, env: Environment) {
  if (tokenFile !== undefined) return true;
  if (registry !== undefined || registryTokenFile !== undefined) return false;
  if ((env[operatorsPeer.tokenVariable] ?? '') !== '') return true;
  return loadConfig({ file: config, env }).services.operators.tokenFile !== null;
}

async function servicesTokenFrom(registry: AdminClient, approvalId: string | undefined): Promise<string> {
  try {
    const { data } = await registry.ask({
      ...({ method: 'POST', path: ['services-tokens'], isRepeatable: true } as const),
      expects: servicesTokenSchema,
      query: { approvalId },
    });
    return data.token;
  } catch (error) {
    if (!(error instanceof RejectedByApi) || error.status !== 404 || approvalId !== undefined) throw error;
    throw new OperatorError(
      "The registry signs no token for the operators' API. If you are a member of a merchant, you have no access to wallets. " +
        "Otherwise set registry.servicesToken in the configuration of the registry, or give the shared operators' token with " +
        '--token-file.',
      { cause: error },
    );
  }
}
