import type { OperatorsClient } from '../../adapters/operators/operators-client.js';
import type { Config } from '../../config/schema.js';
import { type ClientTrust, trustAuthorities } from '../../tls/client-trust.js';

/**
 * Opens the client of the operators' API; null without `registry.console.services`. Sends no request, so that the
 * registry can start while the services are unavailable.
 * @throws OperatorError if the CA file cannot be read
 */
export async function openOperatorsApi({ registry: { console } }: Config): Promise<OperatorsClient | null> {
  const services = console?.services ?? null;
  if (services === null) return null;
  const { url, caFile } = services;
  return operatorsApiAt(() => url, caFile === null ? null : await trustAuthorities(caFile));
}

/**
 * Opens the client of an operators' API.
 * @param url returns the URL of the API; null while the URL is unknown
 * @param trust null: the CAs that the system trusts
 */
export async function operatorsApiAt(url: () => string | null, trust: ClientTrust | null): Promise<OperatorsClient> {
  // Load this module lazily, because most registries need no HTTP client.
  const { OperatorsClient } = await import('../../adapters/operators/operators-client.js');
  return new OperatorsClient({ url, trust });
}
