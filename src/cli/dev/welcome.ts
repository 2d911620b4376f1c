/** What the welcome text tells of. */
export interface Welcome {
  /** `https://host:port/v1` */
  readonly baseUrl: string;
  readonly plainUrl: string | null;
  readonly managementUrl: string | null;
  readonly servicesUrl: string;
  /** Null where the configuration turns it off. */
  readonly operatorsUrl: string | null;
  readonly operatorsTokenFile: string;
  readonly environment: string;
  readonly registryUrl: string;
  readonly adminTokenFile: string;
  readonly dataDirectory: string;
  readonly kept: boolean;
  readonly certFile: string;
  readonly accessLog: string;
  readonly logSecretFile: string;
  /** The file of signed checkpoints of the log; null where the configuration turns them off. */
  readonly checkpoints: string | null;
  /** The key that signs them; null the same. */
  readonly instanceKeyFile: string | null;
  readonly merchantId: string;
  readonly walletId: string;
  /** Null where the key was shown in an earlier run. */
  readonly key: string | null;
}

/** The text that `dev` prints when everything takes requests. */
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
merchant-gateway takes requests. Ctrl-C ends it${welcome.kept ? '' : ' and forgets everything'}.

  merchant API   ${baseUrl}${welcome.plainUrl === null ? '' : `\n  plain HTTP     ${welcome.plainUrl}  (answers that requests must use TLS)`}
  management     ${welcome.managementUrl === null ? 'off' : `${welcome.managementUrl}/readyz  /livez  /metrics`}
  services       ${welcome.servicesUrl}  (behind the gateway)${operators.place}
  admin API      ${welcome.registryUrl}  (token in ${welcome.adminTokenFile})
  access log     ${welcome.accessLog}  (its secret in ${welcome.logSecretFile})${welcome.checkpoints === null ? '' : `\n  checkpoints    ${welcome.checkpoints}  (signed: audit verify needs no secret)`}
  data           ${welcome.dataDirectory}${welcome.kept ? '' : '  (temporary; keep it with --data-dir DIR)'}

  merchant       ${welcome.merchantId}
  API key        ${key ?? 'was shown when this data directory was made; --reset-key makes a new one.\n                 The lines below take it from the variable API_KEY.'}${key === null ? '' : '\n                 shown this once: it is stored as a hash'}

List transactions (200):

${withKey} ${baseUrl}/transactions

Create a payout of 2,500.00 NGN (201):

${withKey} -H 'content-type: application/json' -d ${quote(JSON.stringify(payout))} ${baseUrl}/dev/payouts

See a refusal (401):

${curl} ${baseUrl}/transactions

Administer merchants and keys:

npx merchant-gateway merchants list --registry ${welcome.registryUrl} --token-file ${quote(welcome.adminTokenFile)}
${operators.lines}${verifyLines(welcome)}
`;
}

/** How the access log is verified by its public key alone. */
function verifyLines({ accessLog, instanceKeyFile, checkpoints }: Welcome): string {
  if (checkpoints === null || instanceKeyFile === null || accessLog === 'stdout') return '';
  const keys = quote(`${checkpoints}.keys`);
  return `
Verify the access log, without a secret:

npx merchant-gateway audit public-key --key-file ${quote(instanceKeyFile)} > ${keys}
npx merchant-gateway audit verify --running --checkpoints ${quote(checkpoints)} --public-key ${keys} ${quote(accessLog)}
`;
}

/** Where operators are heard, and how they give the demo merchant more money. */
function operatorsText({ operatorsUrl, operatorsTokenFile, walletId, environment }: Welcome) {
  if (operatorsUrl === null) return { place: '', lines: '' };
  const access = `--services ${operatorsUrl} --token-file ${quote(operatorsTokenFile)}`;
  return {
    place: `\n  operators' API ${operatorsUrl}  (token in ${operatorsTokenFile})`,
    lines: `
Put 1,500.00 NGN into the merchant's wallet:

npx merchant-gateway wallets fund ${walletId} --amount 150000 --currency NGN --environment ${environment} --reason Deposit ${access}
`,
  };
}

/** A word for a POSIX shell. */
function quote(word: string): string {
  return /^[\w./:@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
