import Type from '../../typebox/typebox.js';
import { nullable, section } from './option.js';

/** What becomes of an address that sends many bad keys. */
export const throttle = section(
  {
    enabled: Type.Boolean({ default: true, description: 'Whether bad keys are counted at all.' }),
    badKeys: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 3000,
      description: 'Bad keys within windowSeconds from which on a source is throttled.',
    }),
    windowSeconds: Type.Integer({
      minimum: 1,
      maximum: 3600,
      default: 60,
      description: 'The time in which bad keys are counted; it begins with the first.',
    }),
    pauseSeconds: Type.Integer({
      minimum: 1,
      maximum: 3600,
      default: 60,
      description: 'How long a source stays throttled; retry-after tells what is left of it.',
    }),
    lookupsPerSecond: Type.Integer({
      minimum: 1,
      maximum: 10_000,
      default: 20,
      description: 'Keys never seen before that are still looked up for one throttled source.',
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
      'A source (a client address; of IPv6 its /64) that has sent many bad keys is answered 429, except where its ' +
      'key is valid. Counted by each gateway process for itself.',
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
