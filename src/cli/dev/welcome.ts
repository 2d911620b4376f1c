import path from 'node:path';
import type { DemoTokenFiles } from './data-directory.js';

/** The values that the welcome text shows. */
export interface Welcome {
  /** Base URL of the API, such as `https://host:port/v1`. */
  readonly baseUrl: string;
  readonly plainUrl: string | null;
  readonly managementUrl: string | null;
  readonly servicesUrl: string;
  /** The address of the operators' API; null if the configuration turns this API off. */
  readonly operatorsUrl: string | null;
  readonly operatorsTokenFile: string;
  /** True if the operators' API accepts tokens that the registry signs. The demo treasurer needs such a token. */
  readonly hasTreasurer: boolean;
  readonly environment: string;
  /** A link to the console that signs the user in as the demo owner and works once; null without a console. */
  readonly consoleLink: string | null;
  readonly registryUrl: string;
  /** File with the shared token, which authenticates as the owner `bootstrap`. */
  readonly adminTokenFile: string;
  readonly demoTokenFiles: DemoTokenFiles;
  readonly dataDirectory: string;
  readonly kept: boolean;
  readonly certFile: string;
  readonly accessLog: string;
  readonly logSecretFile: string;
  /** File with signed checkpoints of the access log; null if the configuration turns checkpoints off. */
  readonly checkpoints: string | null;
  /** File with the key that signs checkpoints; null if the configuration turns checkpoints off. */
  readonly instanceKeyFile: string | null;
  readonly merchantId: string;
  readonly walletId: string;
  /** API key of the demo merchant; null if an earlier start of `dev` showed it. */
  readonly key: string | null;
}

/** Returns the text that `dev` prints once all parts accept requests. */
export function welcomeText(welcome: Welcome): string {
  const { baseUrl, key } = welcome;
  const payout = {
    walletId: welcome.walletId,
    destinationBankCode: '058',
    destinationAccountNumber: '0123456789',
    destinationAccountName: 'Amina Okafor',
    amount: 250_000,
    remarks: 'My first payout',
  };
  const operators = operatorsText(welcome);
  const curl = `curl -i --cacert ${quote(welcome.certFile)}`;
  const withKey = `${curl} -H ${key === null ? '"x-api-key: $API_KEY"' : quote(`x-api-key: ${key}`)}`;
  return `
merchant-gateway is running. Ctrl-C stops it${welcome.kept ? '' : ' and deletes all data'}.

  merchant API   ${baseUrl}${welcome.plainUrl === null ? '' : `\n  plain HTTP     ${welcome.plainUrl}  (rejects requests: TLS is required)`}
  management     ${welcome.managementUrl === null ? 'off' : `${welcome.managementUrl}/readyz  /livez  /metrics`}
  services       ${welcome.servicesUrl}  (behind the gateway)${operators.place}
  admin API      ${welcome.registryUrl}  (tokens for the roles owner, support and treasurer, and for a member of the merchant, in
                 ${welcome.demoTokenFiles.owner}, ${path.basename(welcome.demoTokenFiles.support)}, ${path.basename(welcome.demoTokenFiles.treasurer)} and ${path.basename(welcome.demoTokenFiles.member)})
  access log     ${welcome.accessLog}  (its secret in ${welcome.logSecretFile})${welcome.checkpoints === null ? '' : `\n  checkpoints    ${welcome.checkpoints}  (signed: audit verify needs no secret)`}
  data           ${welcome.dataDirectory}${welcome.kept ? '' : '  (temporary; to keep data, start with --data-dir DIR)'}

  merchant       ${welcome.merchantId}
  API key        ${key ?? 'was shown when this data directory was created; --reset-key creates a new key.\n                 The commands below read the key from the variable API_KEY.'}${key === null ? '' : '\n                 shown only once: it is stored as a hash'}

${consoleText(welcome)}List transactions (200):

${withKey} ${baseUrl}/transactions

Create a payout of 2,500.00 NGN (201):

${withKey} -H 'content-type: application/json' -d ${quote(JSON.stringify(payout))} ${baseUrl}/dev/payouts

Send a request without a key (401):

${curl} ${baseUrl}/transactions

Administer merchants and keys, as the owner. The second command gets 403, because the role support cannot create a key:

npx merchant-gateway merchants list --registry ${welcome.registryUrl} --token-file ${quote(welcome.demoTokenFiles.owner)}
npx merchant-gateway keys create --merchant ${welcome.merchantId} --environment ${welcome.environment} --registry ${welcome.registryUrl} --token-file ${quote(welcome.demoTokenFiles.support)}
npx merchant-gateway events list --registry ${welcome.registryUrl} --token-file ${quote(welcome.demoTokenFiles.owner)}

See how the merchant's keys are used, which requests were refused, and what to do about the refusals:

npx merchant-gateway usage --merchant ${welcome.merchantId} --registry ${welcome.registryUrl} --token-file ${quote(welcome.demoTokenFiles.owner)}
npx merchant-gateway refusals --merchant ${welcome.merchantId} --registry ${welcome.registryUrl} --token-file ${quote(welcome.demoTokenFiles.owner)}
${operators.lines}${verifyLines(welcome)}
`;
}

/**
 * Returns commands that verify the access log. The commands need no secret, only the public key of the log's
 * checkpoints. Returns an empty text if there is no log file or no checkpoint file.
 */
function verifyLines({ accessLog, instanceKeyFile, checkpoints }: Welcome): string {
  if (checkpoints === null || instanceKeyFile === null || accessLog === 'stdout') return '';
  const keys = quote(`${checkpoints}.keys`);
  return `
Verify the access log, without a secret:

npx merchant-gateway audit public-key --key-file ${quote(instanceKeyFile)} > ${keys}
npx merchant-gateway audit verify --running --checkpoints ${quote(checkpoints)} --public-key ${keys} ${quote(accessLog)}
`;
}

/** Returns the link to the console, and the command that prints another link; empty without a console. */
function consoleText({ consoleLink, registryUrl, demoTokenFiles }: Welcome): string {
  if (consoleLink === null) return '';
  return `Manage keys in a browser. This link works once, within 10 minutes. The command after it prints a new link:

  ${consoleLink}

npx merchant-gateway console --registry ${registryUrl} --token-file ${quote(demoTokenFiles.owner)}

`;
}

/**
 * Returns the address of the operators' API, and two commands for the demo merchant's wallet: one adds money, the other
 * lists the wallet's entries. The address and the commands are empty if the operators' API is off.
 */
function operatorsText(welcome: Welcome) {
  const { operatorsUrl, operatorsTokenFile, registryUrl, demoTokenFiles, walletId, environment, hasTreasurer } =
    welcome;
  if (operatorsUrl === null) return { place: '', lines: '' };
  const access = hasTreasurer
    ? `--registry ${registryUrl} --registry-token-file ${quote(demoTokenFiles.treasurer)}`
    : `--token-file ${quote(operatorsTokenFile)}`;
  const at = `--services ${operatorsUrl} ${access}`;
  return {
    place: `\n  operators' API ${operatorsUrl}  (shared token in ${operatorsTokenFile})`,
    lines: `
Put 1,500.00 NGN into the merchant's wallet, and list the wallet's entries${hasTreasurer ? '. The registry records an event with the name of the treasurer' : ''}:

npx merchant-gateway wallets fund ${walletId} --amount 150000 --currency NGN --environment ${environment} --reason Deposit ${at}
npx merchant-gateway wallets entries ${walletId} ${at}
`,
  };
}

/** Quotes a word for a POSIX shell. */
function quote(word: string): string {
  return /^[\w./:@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
