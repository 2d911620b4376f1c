import Type from '../../typebox/typebox.js';
import { address, nullable, optionalFile, requiredFile, section } from './option.js';

const certificate = section(
  {
    certFile: requiredFile('PEM file with the certificate, followed by its intermediates.', 'other.crt'),
    keyFile: requiredFile("PEM file with the certificate's private key.", 'other.key'),
  },
  { description: '' },
);

const https = section(
  {
    ...address('0.0.0.0', 8443),
    certFile: requiredFile(
      'PEM file with the certificate, followed by its intermediates.',
      '/etc/merchant-gateway/tls/tls.crt',
    ),
    keyFile: requiredFile("PEM file with the certificate's private key.", '/etc/merchant-gateway/tls/tls.key'),
    certificates: Type.Array(certificate, {
      default: [],
      maxItems: 64,
      description:
        'Additional certificates, each as { certFile, keyFile }. The SNI host of the client selects the certificate; ' +
        'certFile above is the default. One host may have an ECDSA and an RSA certificate: each client gets the one ' +
        'that it can verify.',
      expects: 'a list of { certFile, keyFile }',
    }),
    reloadSeconds: Type.Integer({
      minimum: 1,
      maximum: 86_400,
      default: 10,
      description:
        'How often the files of certificates, ticket keys and client CAs are checked for changes; SIGHUP checks at ' +
        'once. Changed files apply from the next handshake. While a changed file is invalid, all former files stay in ' +
        'use.',
    }),
    minVersion: Type.Enum(['TLSv1.2', 'TLSv1.3'], {
      default: 'TLSv1.2',
      description: 'The oldest accepted TLS version.',
    }),
    http2: Type.Boolean({
      default: false,
      description:
        'Only false is accepted. The gateway serves HTTP/1.1, because the HTTP/2 server of Node drops header fields ' +
        'with invalid values and delivers the request without them. For HTTP/2, put a proxy in front ' +
        '(docs/connections.md).',
    }),
    strictTransportSecuritySeconds: Type.Integer({
      minimum: 0,
      maximum: 63_072_000,
      default: 31_536_000,
      description:
        'Value of max-age in the header strict-transport-security, which is sent with every response over TLS. For ' +
        'this time, clients use only https for this host. 0: the header is not sent.',
    }),
    ticketKeysFile: optionalFile(
      'File of exactly 48 random bytes that encrypt session tickets. Replicas with the same file resume each ' +
        "other's sessions. null: each process generates random keys.",
    ),
    clientCertificates: Type.Enum(['none', 'request', 'require'], {
      default: 'none',
      description:
        'Whether a client must present a TLS certificate in addition to its API key. none: no certificate is requested. request: optional, but a presented certificate must be valid. require: mandatory.',
    }),
    clientCaFile: optionalFile('PEM file of the CAs that sign client certificates.'),
  },
  { description: '' },
);

const http = section(address('0.0.0.0', 8080), { description: '' });
const management = section(address('127.0.0.1', 9090), { description: '' });

/** Options of the gateway's listeners. */
export const listen = section(
  {
    https: nullable(https, { description: 'The TLS listener for clients. Absent or null: no TLS listener.' }),
    http: nullable(http, {
      description:
        'The plain HTTP listener. It responds 401 "API requests must use HTTPS (TLS)" to a request, unless a trusted ' +
        'proxy reports that the client connected over https. null: no plain listener.',
      default: {},
    }),
    management: nullable(management, {
      description:
        'The listener for health checks and metrics: /livez, /readyz and /metrics. ' +
        'Do not expose it to clients. null: no management listener.',
      default: {},
    }),
  },
  { description: 'The addresses that the gateway listens on.' },
);

/** Options that limit how much of the gateway's resources clients can use. */
export const limits = section(
  {
    headerBytes: Type.Integer({
      minimum: 1024,
      maximum: 1_048_576,
      default: 16_384,
      description:
        'Maximum size of the head of a request: the request line and the header lines, each counted as name, colon, ' +
        'space, value and line end. Above it: 431.',
    }),
    targetBytes: Type.Integer({
      minimum: 256,
      maximum: 1_048_576,
      default: 8192,
      description: 'Maximum length of the path and query of a request. Above it: 414.',
    }),
    bodyBytes: Type.Integer({
      minimum: 0,
      maximum: 1_073_741_824,
      default: 1_048_576,
      description: 'Maximum size of the body of a request. Above it: 413.',
    }),
    headersTimeoutSeconds: Type.Integer({
      minimum: 1,
      maximum: 600,
      default: 10,
      description: 'How long a client may take to send the head of a request.',
    }),
    requestTimeoutSeconds: Type.Integer({
      minimum: 1,
      maximum: 3600,
      default: 30,
      description:
        'How long a client may take to send a whole request. If a client reads nothing of a response for the same time, its connection is closed.',
    }),
    minBodyBytesPerSecond: Type.Integer({
      minimum: 1,
      maximum: 1_073_741_824,
      default: 4096,
      description:
        'Minimum rate at which a request body above 64 KiB must arrive, as an average over five seconds. Time in which the gateway waits for the upstream does not count. A slower request gets 408, so that slow clients do not use up maxInFlight of the upstream.',
    }),
    answerTimeoutSeconds: Type.Integer({
      minimum: 1,
      maximum: 86_400,
      default: 120,
      description:
        'How long a response may take from its headers to its last byte, even if data keeps arriving. After that, ' +
        'its connection is closed.',
    }),
    connections: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 10_000,
      description:
        'Maximum number of open client connections per listener. At the limit, a new connection replaces a connection on which no request has been accepted yet, or an idle connection of a merchant that holds more than half of all connections. If no such connection exists, the new connection is closed at once.',
    }),
    connectionsPerAddress: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 4096,
      description:
        'Maximum number of open connections per address and listener; an IPv6 client counts as its /64 or embedded ' +
        'IPv4 address. Further connections are closed at once. Trusted proxies are exempt.',
    }),
    memory: nullable(Type.Integer({ minimum: 67_108_864, maximum: 1_099_511_627_776 }), {
      description:
        'Memory in bytes that a gateway may use, all worker processes included, for connections, queued bodies and ' +
        'caches. If the configured connections or cache entries do not fit, the gateway uses lower limits; `config ' +
        'check` prints them. null: the limit of the container (its cgroup), or all memory of the machine.',
    }),
    handshakesPerSecond: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 100,
      description:
        'Average rate of TLS handshakes per address; an IPv6 client counts as its /64 or embedded IPv4 address. ' +
        'Further connections are closed at once. Resumed sessions do not count. Trusted proxies are exempt. Each ' +
        'gateway process counts separately.',
    }),
    handshakeBurst: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 200,
      description:
        'Burst size: number of TLS handshakes that an address may start at once after a pause. The number is limited because each handshake blocks the event loop.',
    }),
    keepAliveTimeoutSeconds: Type.Integer({
      minimum: 1,
      maximum: 3600,
      default: 72,
      description:
        'How long an idle connection stays open. Set it above the idle timeout of a load balancer in front, which ' +
        'otherwise sends requests on connections that the gateway is closing.',
    }),
    eventLoopDelayMilliseconds: Type.Integer({
      minimum: 0,
      maximum: 60_000,
      default: 1000,
      description:
        'The gateway is overloaded if its mean event loop delay exceeds this value in two consecutive seconds. It then rejects requests with 503 instead of queueing them, until the delay falls to half of this value. 0: the delay never causes a rejection.',
    }),
    drainDelaySeconds: Type.Integer({
      minimum: 0,
      maximum: 600,
      default: 0,
      description:
        'How long the gateway still accepts connections after a stop signal. Meanwhile it reports not ready and ' +
        'closes each connection after one response. Set it to the time that the load balancer needs to stop sending requests to a gateway that is not ready. While ' +
        'connections are open, the delay is at least one second.',
    }),
    drainTimeoutSeconds: Type.Integer({
      minimum: 0,
      maximum: 3600,
      default: 30,
      description:
        'How long requests in progress may take to finish after drainDelaySeconds. After that, their connections are closed.',
    }),
  },
  {
    description:
      'Limits on the resources that clients may use. Limits of connections and handshakes apply to each gateway process separately.',
  },
);
