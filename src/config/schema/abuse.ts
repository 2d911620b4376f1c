import Type from '../../typebox/typebox.js';
import { nullable, section } from './option.js';

/** Options that throttle sources which send many requests without an acceptable API key. */
export const throttle = section(
  {
    enabled: Type.Boolean({
      default: true,
      description:
        'Whether the gateway counts requests without an acceptable key, and throttles sources that send too many of them.',
    }),
    badKeys: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 3000,
      description:
        'A source is throttled once it has sent this many requests without an acceptable key within windowSeconds. Such a request has no key or an invalid one, or is malformed.',
    }),
    totalBadKeys: Type.Integer({
      minimum: 1,
      maximum: 10_000_000,
      default: 10_000,
      description:
        'Number of requests without an acceptable key that all unthrottled sources together may send within windowSeconds. This limits attacks from many addresses. Once this number is reached, lookupsPerSecond and totalLookupsPerSecond apply to every source for pauseSeconds. Meanwhile, requests without an acceptable key share access log lines.',
    }),
    windowSeconds: Type.Integer({
      minimum: 1,
      maximum: 3600,
      default: 60,
      description:
        'Length of the window in which requests without an acceptable key are counted. The window starts with the first of these requests.',
    }),
    pauseSeconds: Type.Integer({
      minimum: 1,
      maximum: 3600,
      default: 60,
      description:
        'How long a source stays throttled. The header retry-after carries the remaining time. If the source reaches the limit again meanwhile, the time starts again.',
    }),
    lookupsPerSecond: Type.Integer({
      minimum: 1,
      maximum: 10_000,
      default: 20,
      description:
        'Number of key-store lookups per second that are reserved for each throttled source. Lookups of keys that the gateway already knows do not count. The first lookup of an unknown key on each client connection does not count either.',
    }),
    totalLookupsPerSecond: Type.Integer({
      minimum: 1,
      maximum: 100_000,
      default: 2000,
      description:
        'Number of further key-store lookups per second that all throttled sources share, in addition to lookupsPerSecond of each source. This limit applies separately to generated keys with a correct checksum and to imported keys, which have no checksum.',
    }),
    maxSources: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 100_000,
      description: 'Maximum number of tracked sources. The least recently seen source is evicted first.',
    }),
  },
  {
    description:
      'Throttling of sources that send many requests without an acceptable key. A source is a client address; an IPv6 ' +
      'client counts as its /64 or embedded IPv4 address. A throttled source gets 429 in place of every denial that ' +
      'would reveal whether a key exists. A valid key gets 429 only if it is new to the gateway and the limits of ' +
      'key-store lookups are reached. Each gateway process counts separately.',
  },
);

/** Options of the rate limit per merchant. */
export const rateLimit = section(
  {
    requestsPerSecond: nullable(Type.Integer({ minimum: 1, maximum: 100_000 }), {
      description: 'Average request rate of one merchant over all of its keys. Above it: 429. null: no limit.',
    }),
    burst: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 100,
      description: 'Burst size: number of requests that a merchant may send at once after a pause.',
    }),
    shared: Type.Boolean({
      default: false,
      description:
        'Whether all gateways of one environment count together, in the Redis of keyStore. If false, or while Redis ' +
        'does not reply at once, each gateway process counts separately.',
    }),
  },
  { description: 'Rate limit of each merchant. Off unless requestsPerSecond is set.' },
);
