import type { Config } from '../../config/schema.js';

/**
 * An API that administration commands call: its options, its section of the configuration, and its names in messages.
 */
export interface Peer {
  /** Name of the API as part of a sentence, such as `the registry`. */
  readonly name: string;
  /** What the user should start if the API is down. */
  readonly start: string;
  /** Which log the user should read if the API fails. */
  readonly log: string;
  readonly option: '--registry' | '--services' | 'services.operators.trail.url';
  readonly tokenOption: '--token-file' | '--registry-token-file' | 'services.operators.trail.tokenFile';
  readonly addressVariable: string;
  readonly tokenVariable: string;
  /** Section of the configuration that contains the listener and the token file. */
  readonly section: 'registry' | 'services.operators';
  readonly tokenFile: 'registry.tokenFile' | 'services.operators.tokenFile';
  /** What to check after a rejected token. Default: the option and the environment variable that supply the token. */
  readonly rejectedToken?: string;
  /** Commands that list the ids of the API's records. Messages recommend these commands. */
  readonly lists: string;
  /** Commands that show whether a change was made. Messages recommend these commands. */
  readonly checkCommands: string;
  readonly settings: (config: Config) => {
    readonly listen: { readonly host: string; readonly port: number; readonly certFile?: string | null };
    /** File with the shared token; null if there is none, or the API does not accept it. */
    readonly tokenFile: string | null;
  };
}

/** How administration commands reach and name the admin API of the registry. */
export const registryPeer: Peer = {
  name: 'the registry',
  start: 'the registry',
  log: "the registry's log",
  option: '--registry',
  tokenOption: '--token-file',
  addressVariable: 'MERCHANT_GATEWAY_REGISTRY',
  tokenVariable: 'MERCHANT_GATEWAY_TOKEN',
  section: 'registry',
  tokenFile: 'registry.tokenFile',
  lists: '"merchants list", "keys list" or "approvals list"',
  checkCommands: '"merchant-gateway events list"',
  // If `registry.bootstrap` is off, the registry refuses the shared token. So use the token of a sign-in instead.
  settings: ({ registry }) => (registry.bootstrap === 'off' ? { ...registry, tokenFile: null } : registry),
};

/** How administration commands reach and name the operators' API of the services. */
export const operatorsPeer: Peer = {
  name: "the operators' API",
  start: 'the services (with services.operators.registryKeys or services.operators.tokenFile set)',
  log: 'the log of the services',
  option: '--services',
  tokenOption: '--token-file',
  addressVariable: 'MERCHANT_GATEWAY_SERVICES',
  tokenVariable: 'MERCHANT_GATEWAY_SERVICES_TOKEN',
  section: 'services.operators',
  tokenFile: 'services.operators.tokenFile',
  lists: '"wallets list"',
  checkCommands: '"merchant-gateway wallets list" and "merchant-gateway wallets entries"',
  settings: ({ services }) => services.operators,
};

/** Environment variable with the path of the CA file, for all administration commands. */
export const caFileVariable = 'MERCHANT_GATEWAY_CA_FILE';

/** Returns the text with its first letter capitalised. */
export function capital(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}`;
}

/** The environment variables of the process. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** A usage error. Its message must not repeat an argument that could be a secret, such as a mistyped API key. */
export class WrongUsage extends Error {}
