import Type, { type Static } from '../typebox/typebox.js';
import { rateLimit, throttle } from './schema/abuse.js';
import { geoip, keys, keyStore, torExits } from './schema/decision.js';
import { limits, listen } from './schema/edge.js';
import { routes, upstreams } from './schema/forwarding.js';
import { line, section } from './schema/option.js';
import { accessLog } from './schema/access-log.js';
import { identity, log, services, traces, usage } from './schema/parts.js';
import { registry } from './schema/registry.js';

/** Schema of the options of all commands. It alone defines the type, default, bounds and description of each option. */
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
      description: 'Prefix of the path of every route. Empty: no prefix.',
      expects: 'a path like /v1 without a trailing slash, or an empty string',
    }),
    listen,
    trustedProxies: Type.Array(line({ expects: 'an IP address or CIDR', examples: ['10.0.0.0/8'] }), {
      default: [],
      maxItems: 10_000,
      description:
        'Addresses and CIDRs of the proxies in front of the gateway. It trusts X-Forwarded-For and X-Forwarded-Proto ' +
        'only from these proxies, so that no client can spoof its address.',
      expects: 'a list of IP addresses and CIDRs',
    }),
    proxyProtocol: Type.Boolean({
      default: false,
      description:
        'Whether the http and https listeners require a PROXY protocol header (version 1 or 2) at the start of each ' +
        'connection, before TLS. If true, the gateway closes connections without that header, and connections from ' +
        'addresses outside trustedProxies.',
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
    usage,
    traces,
    log,
    limits,
    throttle,
    rateLimit,
  },
  { description: 'Configuration of merchant-gateway.', expects: 'options in the form name: value' },
);

type DeepReadonly<T> = T extends object ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> } : T;

/** The complete configuration, which is validated and frozen. */
export type Config = DeepReadonly<Static<typeof configSchema>>;

/** A configuration in which any option can be absent. A list that is present is complete. */
export type DeepPartial<T> = T extends readonly unknown[]
  ? T
  : T extends object
    ? { readonly [Key in keyof T]?: DeepPartial<T[Key]> | undefined }
    : T;
