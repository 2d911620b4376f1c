/** A mistake on the command line: title, arguments, exit status, expected message. `$` is the test's folder. */
export type WrongCommandLine = readonly [what: string, args: string, status: 1 | 2, said: RegExp];

const away = '--registry $closed --token-file $/token';
const here = '--registry $registry --token-file $/token';

/** Each message must name the option or the address, and the next step. */
export const wrongCommandLines: readonly WrongCommandLine[] = [
  ['a command that is none', 'gatway --config $/empty.yaml', 2, /unknown command 'gatway'\n\(Did you mean gateway\?\)/],
  ['an option that is none', 'gateway --conf $/empty.yaml', 2, /unknown option '--conf'\n\(Did you mean --config\?\)/],
  ['an option without its value', 'gateway --config', 2, /option '--config <file>' argument missing/],
  ['an argument too many', 'registry now', 2, /too many arguments for 'registry'/],
  ['no worker', 'gateway --workers 0', 2, /'--workers <number>' .*Expected a number from 1 to 64/],
  ['more workers than there may be', 'gateway --workers 1000', 2, /Expected a number from 1 to 64/],
  [
    'a check for a part that is none',
    'config check --for console',
    2,
    /Allowed choices are gateway, registry, services/,
  ],
  [
    'a check that connects for no part',
    'config check --connect',
    2,
    /--connect: requires --for with one of gateway, registry, services/,
  ],
  ['a database of a part that is none', 'database migrate gateway', 2, /Allowed choices are registry, services/],
  ['a migration of nothing', 'database migrate', 2, /missing required argument 'part'/],
  [
    'a configuration that is not there',
    'config check --config $/nowhere.yaml',
    2,
    /nowhere\.yaml is not valid .*\n {2}no such file/,
  ],
  ['a configuration that is a directory', 'config check --config $', 2, /is a directory; expected a YAML file/],
  [
    'a configuration that is no text',
    'config check --config $/binary',
    2,
    /binary is not valid .*\n {2}is not UTF-8 text/,
  ],
  [
    'a configuration below a file',
    'config check --config $/token/gateway.yaml',
    2,
    /a part of its path is not a directory/,
  ],
  [
    'no token',
    'merchants list --registry http://127.0.0.1:1',
    2,
    /give its file with --token-file .* or set MERCHANT_GATEWAY_TOKEN/,
  ],
  [
    'a token file that is not there',
    'merchants list --token-file $/nowhere',
    1,
    /The token file \S+nowhere cannot be read: there is no such file/,
  ],
  [
    'a token file that everybody can read',
    'merchants list --token-file $/open',
    1,
    /accessible to every user of this machine \(mode 0644\): chmod 0640 \S+open/,
  ],
  [
    'a token that is too short',
    'merchants list --token-file $/short',
    1,
    /The token file \S+short must hold one token of at least 32/,
  ],
  [
    'a registry that is away',
    `merchants list ${away}`,
    1,
    /registry at http:\/\/127\.0\.0\.1:\d+\S*: the connection was refused\. Start the registry, or give its address with --registry/,
  ],
  [
    'a registry without a scheme',
    'merchants list --registry 127.0.0.1:9443 --token-file $/token',
    2,
    /must be an http or https URL .*such as http:\/\/127\.0\.0\.1:9443/,
  ],
  [
    'a registry with a password',
    'merchants list --registry http://u:p@127.0.0.1:1 --token-file $/token',
    2,
    /URL without user,/,
  ],
  [
    'a registry whose name is none',
    'merchants list --registry http://nowhere.invalid --token-file $/token',
    1,
    /the host name does not exist\. Check --registry|cannot be resolved now/,
  ],
  [
    'TLS to a registry without',
    'merchants list --registry $secure --token-file $/token',
    1,
    /it does not speak TLS\. Check whether the address must begin with http:/,
  ],
  [
    'a token of another registry',
    'merchants list --registry $registry --token-file $/other-token',
    1,
    /Invalid token.*Check that --token-file/s,
  ],
  ['a merchant that is none', `merchants show m_nobody ${here}`, 1, /Check the id \(merchants list/],
  ['a key that is none', `keys revoke key_nobody ${here}`, 1, /Check the id \(merchants list, keys list\)/],
  ['keys of a merchant that is none', `keys list --merchant m_nobody ${here}`, 1, /Check the id/],
  ['a merchant without a name', `merchants create ${away}`, 2, /required option '--name <name>' not specified/],
  [
    'an origin with a path',
    `merchants create --name N --allow-origin https://shop.example/pay ${here}`,
    1,
    /originAllowlist/,
  ],
  [
    'an allowlist entry that is no address',
    `merchants create --name N --allow-ip shop.example ${here}`,
    1,
    /ipAllowlist/,
  ],
  [
    'an environment that is none',
    `keys create --merchant m_1 --environment prod ${away}`,
    2,
    /Allowed choices are live, test/,
  ],
  [
    'a key without its environment',
    `keys create --merchant m_1 ${away}`,
    2,
    /required option '--environment <name>' not specified/,
  ],
  [
    'an expiry without a unit',
    `keys create --merchant m_1 --environment live --expires-in 90 ${away}`,
    2,
    /--expires-in/,
  ],
  ['a grace that is no time', `keys reset key_1 --grace soon ${away}`, 2, /--grace/],
  ['a log that is not there', 'audit verify $/nowhere.log', 1, /nowhere\.log/],
  ['an address that is none', 'tor-exits check shop.example --config $/empty.yaml', 2, /address/i],
];
