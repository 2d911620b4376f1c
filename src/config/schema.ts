import Type, { type Static } from '../typebox/typebox.js';
import { rateLimit, throttle } from './schema/abuse.js';
import { geoip, keys, keyStore, torExits } from './schema/decision.js';
import { limits, listen } from './schema/edge.js';
import { routes, upstreams } from './schema/forwarding.js';
import { line, section } from './schema/option.js';
import { accessLog, identity, log, registry, services, traces } from './schema/parts.js';

/** Every option of every command: type, default, bounds and description, each written here once. */
export const configSchema = section(
  {
    environment: Type.Enum(['live', 'test'], {
      default: 'live',
      description: 'Which keys this gateway accepts: live (svc_live_…) or test (svc_test_…).',
    }),
    basePath: Type.String({
      pattern: '^(?:/(?!\\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)*$',
      maxLength: 1024,
      default: '/v1',
      description: 'In front of the path of every route. Empty: nothing.',
      expects: 'a path like /v1, without a slash at its end, or an empty text',
    }),
    listen,
    trustedProxies: Type.Array(line({ expects: 'an IP address or CIDR', examples: ['10.0.0.0/8'] }), {
      default: [],
      maxItems: 10_000,
      description:
        'Addresses and CIDRs of the proxies in front, whose X-Forwarded-For and X-Forwarded-Proto are believed. ' +
        'Nobody else may choose the address that a client appears to have.',
      expects: 'a list of IP addresses and CIDRs',
    }),
    proxyProtocol: Type.Boolean({
      default: false,
      description:
        'Trusted proxies begin each connection with a PROXY protocol header (version 1 or 2), before TLS, on the http ' +
        'and the https listener. A connection without one, or from anybody else, is closed.',
    }),
    keyStore,
    keys,
    torExits,
    geoip,
    upstreams,
    routes,
    registry,
    services,
    identity,
    accessLog,
    traces,
    log,
    limits,
    throttle,
    rateLimit,
  },
  { description: 'Configuration of merchant-gateway.', expects: 'options, each as name: value' },
);

type DeepReadonly<T> = T extends object ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> } : T;

/** The whole configuration: complete, checked and frozen. */
export type Config = DeepReadonly<Static<typeof configSchema>>;

/** Some options of a configuration; lists are whole. */
export type DeepPartial<T> = T extends readonly unknown[]
  ? T
  : T extends object
    ? { readonly [Key in keyof T]?: DeepPartial<T[Key]> | undefined }
    : T;
