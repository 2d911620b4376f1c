import Type from '../../typebox/typebox.js';
import { requiredFile, section } from './option.js';

/** The names of the rules about unusual use. */
const ruleNames = [
  ...(['new-country', 'new-network', 'idle-key', 'surge', 'new-addresses', 'refusals', 'tor', 'plain-http'] as const),
] as const;

const threshold = (most: number, byDefault: number, description: string) =>
  Type.Integer({ minimum: 1, maximum: most, default: byDefault, description });

/** Options of the rules about unusual use of keys. */
export const unusual = section(
  {
    enabled: Type.Boolean({
      default: true,
      description:
        'Whether the registry compares the use of each live key with the former use of the key. false: all rules are off.',
    }),
    off: Type.Array(Type.Enum([...ruleNames], { examples: ['new-network'] }), {
      default: [],
      maxItems: ruleNames.length,
      description: `Rules to turn off. The rules are ${ruleNames.join(', ')}.`,
      expects: 'a list of rules',
    }),
    learnDays: threshold(
      90,
      7,
      'Number of days after the first use of a key in which the rules learn the usual use of the key. During this time, the rules new-country, new-network, surge, new-addresses and refusals report nothing about the key.',
    ),
    surgeLearnDays: threshold(
      400,
      35,
      'For this many days after the first use of a key, the rule "surge" ignores the usual paydays: days 13 to 16 of a month, and day 24 to day 2 of the next month. After this time, the rule has seen a monthly peak of the key.',
    ),
    idleDays: threshold(
      3_650,
      30,
      'The rule "idle-key" reports a key that is used again after this many days without use.',
    ),
    surgeFactor: threshold(
      10_000,
      10,
      'The rule "surge" multiplies the accepted requests in the busiest hour of a key by this factor, and reports an hour in which the key has more accepted requests. The busiest hour is taken from the last nine weeks in which the key was used.',
    ),
    surgeRequests: threshold(
      1_000_000_000,
      200,
      'The rule "surge" ignores hours with fewer accepted requests than this.',
    ),
    newAddresses: threshold(
      256,
      20,
      'The rule "new-addresses" reports an hour only if it has at least this many address blocks (an IPv4 /24 or an IPv6 /64) from which a key had not been used before.',
    ),
    refusals: threshold(
      1_000_000,
      30,
      'The rule "refusals" reports an hour only if it has at least this many refused requests of a key.',
    ),
    keepDays: threshold(36_500, 400, 'Age in days after which findings are deleted.'),
    webhooks: Type.Array(
      section(
        {
          url: Type.String({
            pattern: '^https?://[^\\s@\\u0000-\\u001f\\u007f]{1,2000}$',
            expects: 'an https:// URL without a user or a password',
            examples: ['https://alerts.example.com/gateway'],
            description:
              'URL to which the registry sends a POST request for each finding. http is accepted only for loopback addresses.',
          }),
          secretFile: requiredFile(
            'File with the secret that signs the requests, in the form whsec_<base64>. During a rotation, a second line holds the former secret.',
            '/etc/gateway/webhook-secret',
          ),
        },
        { description: '' },
      ),
      {
        default: [],
        maxItems: 10,
        description:
          'Where findings are sent, in the format of Standard Webhooks. Example: ' +
          '[{ url: https://alerts.example.com/gateway, secretFile: /etc/gateway/webhook-secret }]',
        expects: 'a list of { url, secretFile }',
      },
    ),
  },
  { description: 'Reports unusual use of live keys, which may be misuse (docs/unusual-use.md).' },
);
