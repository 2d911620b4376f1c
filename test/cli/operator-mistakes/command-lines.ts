/**
 * A mistake on the command line: title, arguments, exit status, expected message. In the arguments, `$` stands for the
 * test's folder. `$registry` and `$secure` stand for the registry's URL, with http and with https. At `$closed` nothing
 * listens.
 */
export type WrongCommandLine = readonly [what: string, args: string, status: 1 | 2, message: RegExp];

const unavailable = '--registry $closed --token-file $/token';
const available = '--registry $registry --token-file $/token';

/** Each message must name the option or the address, and the next step. */
export const wrongCommandLines: readonly WrongCommandLine[] = [
  ['an unknown command', 'gatway --config $/empty.yaml', 2, /unknown command 'gatway'\n\(Did you mean gateway\?\)/],
  ['an unknown option', 'gateway --conf $/empty.yaml', 2, /unknown option '--conf'\n\(Did you mean --config\?\)/],
  ['an option without its value', 'gateway --config', 2, /option '--config <file>' argument missing/],
  ['an argument too many', 'registry now', 2, /too many arguments for 'registry'/],
  ['no workers', 'gateway --workers 0', 2, /'--workers <number>' .*Expected a number from 1 to 64/],
  ['too many workers', 'gateway --workers 1000', 2, /Expected a number from 1 to 64/],
  ['a check for an unknown part', 'config check --for console', 2, /Allowed choices are gateway, registry, services/],
  [
    'a check with --connect but without --for',
    'config check --connect',
    2,
    /--connect: requires --for with one of gateway, registry, services/,
  ],
  ['a migration of an unknown part', 'database migrate gateway', 2, /Allowed choices are registry, services/],
  ['a migration without a part', 'database migrate', 2, /missing required argument 'part'/],
  [
    'a missing configuration file',
    'config check --config $/nowhere.yaml',
    2,
    /nowhere\.yaml is not valid .*\n {2}no such file/,
  ],
  ['a configuration that is a directory', 'config check --config $', 2, /is a directory; expected a YAML file/],
  [
    'a configuration that is not UTF-8 text',
    'config check --config $/binary',
    2,
    /binary is not valid .*\n {2}is not UTF-8 text/,
  ],
  [
    'a configuration path through a file',
    'config check --config $/token/gateway.yaml',
    2,
    /a part of its path is not a directory/,
  ],
  [
    'no token',
    'merchants list --registry http://127.0.0.1:1',
    2,
    /Give its file with --token-file, .* or set MERCHANT_GATEWAY_TOKEN/,
  ],
  [
    'a missing token file',
    'merchants list --token-file $/nowhere',
    1,
    /The token file \S+nowhere cannot be read: there is no such file/,
  ],
  [
    'a token file that every user can read',
    'merchants list --token-file $/open',
    1,
    /accessible to every user of this machine \(mode 0644\)\. To restrict the access, run: chmod 0640 \S+open/,
  ],
  [
    'a token that is too short',
    'merchants list --token-file $/short',
    1,
    /The token file \S+short must contain one token of at least 32/,
  ],
  [
    'a registry that does not run',
    `merchants list ${unavailable}`,
    1,
    /registry at http:\/\/127\.0\.0\.1:\d+\S*: the connection was refused\. Start the registry, or give the right address with --registry/,
  ],
  [
    'a registry address without a scheme',
    'merchants list --registry 127.0.0.1:9443 --token-file $/token',
    2,
    /must be an http or https URL .*such as http:\/\/127\.0\.0\.1:9443/,
  ],
  [
    'a registry address with a password',
    'merchants list --registry http://u:p@127.0.0.1:1 --token-file $/token',
    2,
    /URL without user,/,
  ],
  [
    'a registry host name that does not exist',
    'merchants list --registry http://nowhere.invalid --token-file $/token',
    1,
    /the host name does not exist\. Check --registry|cannot be resolved now/,
  ],
  [
    'TLS to a registry without TLS',
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
  [
    'an unknown merchant',
    `merchants show m_nobody ${available}`,
    1,
    /Check the id with a command such as "merchants list"/,
  ],
  [
    'an unknown key',
    `keys revoke key_nobody ${available}`,
    1,
    /Check the id with a command such as "merchants list", "keys list" or "approvals list"\./,
  ],
  ['keys of an unknown merchant', `keys list --merchant m_nobody ${available}`, 1, /Check the id/],
  ['a merchant without a name', `merchants create ${unavailable}`, 2, /required option '--name <name>' not specified/],
  [
    'an origin with a path',
    `merchants create --name N --allow-origin https://shop.example/pay ${available}`,
    1,
    /originAllowlist/,
  ],
  [
    'an allowlist entry that is not an address',
    `merchants create --name N --allow-ip shop.example ${available}`,
    1,
    /ipAllowlist/,
  ],
  [
    'an unknown environment',
    `keys create --merchant m_1 --environment prod ${unavailable}`,
    2,
    /Allowed choices are live, test/,
  ],
  [
    'a key without its environment',
    `keys create --merchant m_1 ${unavailable}`,
    2,
    /required option '--environment <name>' not specified/,
  ],
  [
    'an expiry without a unit',
    `keys create --merchant m_1 --environment live --expires-in 90 ${unavailable}`,
    2,
    /--expires-in/,
  ],
  ['an invalid grace period', `keys reset key_1 --grace soon ${unavailable}`, 2, /--grace/],
  ['a missing log', 'audit verify $/nowhere.log', 1, /nowhere\.log/],
  [
    'no token for the checkpoints of the registry',
    'audit verify --checkpoints registry --registry http://127.0.0.1:1 $/empty.yaml',
    2,
    /^error: a token is required\. Give its file with --token-file, .*\n\(see --help\)\n$/,
  ],
  [
    'no token for the checkpoints of the registry, in a summary',
    'audit summary --verify --checkpoints registry --registry http://127.0.0.1:1 $/empty.yaml',
    2,
    /^error: a token is required\. /,
  ],
  ['an invalid IP address', 'tor-exits check shop.example --config $/empty.yaml', 2, /address/i],
];
