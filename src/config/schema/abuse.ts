import Type from '../../typebox/typebox.js';
import { nullable, section } from './option.js';

/** What becomes of an address that sends many requests without an acceptable key. */
export const throttle = section(
  {
    enabled: Type.Boolean({
      default: true,
      description: 'Whether requests without an acceptable key are counted at all.',
    }),
    badKeys: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 3000,
      description:
        'Requests without an acceptable key (none, a bad one, or not even readable) within windowSeconds from which on a ' +
        'source is throttled.',
    }),
    totalBadKeys: Type.Integer({
      minimum: 1,
      maximum: 10_000_000,
      default: 10_000,
      description:
        'The same of all sources together that are not throttled, for those who use many addresses: from then on for ' +
        'pauseSeconds, such requests share log lines and lookupsPerSecond, whatever their source.',
    }),
    windowSeconds: Type.Integer({
      minimum: 1,
      maximum: 3600,
      default: 60,
      description: 'The time in which they are counted; it begins with the first.',
    }),
    pauseSeconds: Type.Integer({
      minimum: 1,
      maximum: 3600,
      default: 60,
      description:
        'How long a source stays throttled; retry-after tells what is left of it. As many again in that time prolong it.',
    }),
    lookupsPerSecond: Type.Integer({
      minimum: 1,
      maximum: 10_000,
      default: 20,
      description:
        'Keys not known to exist that are still looked up for one throttled source, besides the first of each connection.',
    }),
    totalLookupsPerSecond: Type.Integer({
      minimum: 1,
      maximum: 100_000,
      default: 2000,
      description:
        'Further such keys that are looked up for all throttled sources together: so many with a right checksum, and so ' +
        'many of another form than that of generated keys.',
    }),
    maxSources: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 100_000,
      description: 'Sources that are remembered; the one seen longest ago is forgotten first.',
    }),
  },
  {
    description:
      'A source (a client address; of IPv6 its /64) that has sent many requests without an acceptable key is answered ' +
      '429, except where its key is valid. Counted by each gateway process for itself.',
  },
);

/** How much one merchant may ask. */
export const rateLimit = section(
  {
    requestsPerSecond: nullable(Type.Integer({ minimum: 1, maximum: 100_000 }), {
      description: 'Requests of one merchant, on average, over all of its keys. Further ones: 429. null: no limit.',
    }),
    burst: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 100,
      description: 'Requests that a merchant may send at once after it has been quiet.',
    }),
    shared: Type.Boolean({
      default: false,
      description:
        'Whether all gateways of one environment count together, in the Redis of keyStore. Where that does not answer ' +
        'at once, and where this is false, each gateway process counts for itself.',
    }),
  },
  { description: 'A limit on the requests of each merchant. Off unless requestsPerSecond is given.' },
);
