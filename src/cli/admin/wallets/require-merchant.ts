import { OperatorError } from '../../../config/operator-error.js';
import Type from '../../../typebox/typebox.js';
import { accessOf, WrongUsage, type AccessOptions, type Environment } from '../access.js';
import { AdminClient } from '../admin-client.js';
import { registryPeer } from '../peer.js';
import { RefusedByApi } from '../refused.js';

/** The options by which a merchant is looked up. */
export interface RegistryOptions {
  readonly registry?: string;
  readonly registryTokenFile?: string;
  readonly registryCheck: boolean;
  readonly config?: string;
}

const peer = { ...registryPeer, tokenOption: '--registry-token-file' } as const;

/**
 * Makes sure that there is such a merchant, which the services cannot know: a wallet of a mistyped id would take money that nobody
 * can pay out.
 * @throws OperatorError where the registry has none, or cannot be asked
 */
export async function requireMerchant(id: string, options: RegistryOptions, env: Environment): Promise<void> {
  if (!options.registryCheck) return;
  const { registry: address, registryTokenFile: tokenFile, config } = options;
  const client = new AdminClient(await registryAccess({ address, tokenFile, config }, env));
  try {
    await client.ask({ method: 'GET', path: ['merchants', id], expects: Type.Object({ id: Type.Literal(id) }) });
  } catch (error) {
    if (!(error instanceof RefusedByApi) || error.status !== 404) throw error;
    throw new OperatorError(`The registry has no merchant ${id}, so no wallet was created: see merchants list.`);
  }
}

async function registryAccess(options: AccessOptions, env: Environment) {
  try {
    return await accessOf(options, env, peer);
  } catch (error) {
    if (!(error instanceof WrongUsage)) throw error;
    throw new WrongUsage(
      `the merchant is looked up at the registry first, and ${error.message}. Where it cannot be reached from here: --no-registry-check`,
    );
  }
}
