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
        'Further certificates, each as { certFile, keyFile }. A client gets the one that covers the host that it names ' +
        '(SNI), and the one above where none does. Of certificates for the same host, one with an ECDSA key and one ' +
        'with an RSA key stand together: each client gets what it can verify.',
      expects: 'a list of { certFile, keyFile }',
    }),
    reloadSeconds: Type.Integer({
      minimum: 1,
      maximum: 86_400,
      default: 10,
      description:
        'How often the files of certificates, ticket keys and authorities of clients are looked at; SIGHUP has it done at ' +
        'once. Changed ones are used from the next handshake on; those that cannot be used change nothing.',
    }),
    minVersion: Type.Enum(['TLSv1.2', 'TLSv1.3'], {
      default: 'TLSv1.2',
      description: 'The oldest version of TLS that is spoken.',
    }),
    http2: Type.Boolean({
      default: false,
      description:
        'Only false: the gateway speaks HTTP/1.1, because the HTTP/2 of Node drops header fields with invalid values ' +
        'and delivers the request without them. For HTTP/2, put a proxy in front (docs/connections.md).',
    }),
    strictTransportSecuritySeconds: Type.Integer({
      minimum: 0,
      maximum: 63_072_000,
      default: 31_536_000,
      description:
        'How long clients that know strict-transport-security use https only for this host; sent with every response ' +
        'over TLS. 0: the header is not sent.',
    }),
    ticketKeysFile: optionalFile(
      'File of exactly 48 random bytes that session tickets are encrypted with. With the same file, replicas resume ' +
        "each other's sessions. null: keys of the process's own.",
    ),
    clientCertificates: Type.Enum(['none', 'request', 'require'], {
      default: 'none',
      description:
        'Whether a client has to show a certificate of its own, beside its key. request: it may leave it out, but one ' +
        'that it shows has to be valid.',
    }),
    clientCaFile: optionalFile('PEM file of the authorities that sign certificates of clients.'),
  },
  { description: '' },
);

const http = section(address('0.0.0.0', 8080), { description: '' });
const management = section(address('127.0.0.1', 9090), { description: '' });

/** The gateway's listeners. */
export const listen = section(
  {
    https: nullable(https, { description: 'The TLS listener for clients. Absent or null: no TLS listener.' }),
    http: nullable(http, {
      description:
        'The plain listener. It answers "API requests must use HTTPS (TLS)", unless a trusted proxy in front says ' +
        'that the client came over https. null: no plain listener.',
      default: {},
    }),
    management: nullable(management, {
      description:
        'Health and metrics for operators: /livez /readyz /metrics. ' +
        'Not for clients. null: no management listener.',
      default: {},
    }),
  },
  { description: 'The addresses that the gateway listens on.' },
);

/** What one client may take of the gateway. */
export const limits = section(
  {
    headerBytes: Type.Integer({
      minimum: 1024,
      maximum: 1_048_576,
      default: 16_384,
      description:
        'Size of the head of a request: its request line and its header lines, each as name, colon, blank, value and ' +
        'line end. A larger one is answered with 431.',
    }),
    targetBytes: Type.Integer({
      minimum: 256,
      maximum: 1_048_576,
      default: 8192,
      description: 'Length of the path and query of a request. A longer one is answered with 414.',
    }),
    bodyBytes: Type.Integer({
      minimum: 0,
      maximum: 1_073_741_824,
      default: 1_048_576,
      description: 'Size of the body of a request. A larger one is answered with 413.',
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
      description: 'How long a client may take to send a whole request, and may take nothing of an answer.',
    }),
    minBodyBytesPerSecond: Type.Integer({
      minimum: 1,
      maximum: 1_073_741_824,
      default: 4096,
      description:
        'How many bytes a second a client has to send of a body above 64 KiB, on average over five seconds in which the ' +
        'gateway waits for it: such a body takes a place at its service while it arrives. A slower one is answered with 408.',
    }),
    answerTimeoutSeconds: Type.Integer({
      minimum: 1,
      maximum: 86_400,
      default: 120,
      description:
        'How long an answer may take from its headers to its last byte, however steadily it trickles. Then its ' +
        'connection is closed.',
    }),
    connections: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 10_000,
      description:
        'Open connections of clients, of each listener. A further one makes one close that never had an accepted request, ' +
        'or an idle one of a merchant that holds more than half of all. If there is none, it is closed at once.',
    }),
    connectionsPerAddress: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 4096,
      description:
        'Open connections of one address, of each listener; an IPv6 client is its /64. Further ones are closed at ' +
        'once. Trusted proxies may open any number.',
    }),
    memory: nullable(Type.Integer({ minimum: 67_108_864, maximum: 1_099_511_627_776 }), {
      description:
        'Bytes of memory that a gateway may take, with all of its worker processes: connections, bodies that wait and caches ' +
        'together. Where connections or the caches of records and sources do not fit, fewer are used; `config check` prints what fits. ' +
        'null: the limit that the container has (its cgroup), otherwise all memory of the machine.',
    }),
    handshakesPerSecond: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 100,
      description:
        'TLS handshakes of one address, on average; an IPv6 client is its /64. Further connections are closed at once. ' +
        'Resumed sessions do not count. Trusted proxies may make any number. Counted by each gateway process for itself.',
    }),
    handshakeBurst: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 200,
      description: 'TLS handshakes that an address may make at once after it has been quiet. Each holds up all others.',
    }),
    keepAliveTimeoutSeconds: Type.Integer({
      minimum: 1,
      maximum: 3600,
      default: 72,
      description:
        'How long an idle connection stays open. Longer than the idle timeout of a load balancer in front, which ' +
        'otherwise sends requests into connections that are just being closed.',
    }),
    eventLoopDelayMilliseconds: Type.Integer({
      minimum: 0,
      maximum: 60_000,
      default: 1000,
      description:
        'Mean delay of the event loop, over two seconds, from which on requests are refused with 503 instead of ' +
        'being queued, until it is half of that. 0: never.',
    }),
    drainDelaySeconds: Type.Integer({
      minimum: 0,
      maximum: 600,
      default: 0,
      description:
        'How long connections are still taken once the gateway is told to stop, while it says that it is not ready and ' +
        'each answer is the last of its connection. As long as what is in front needs to notice; while connections are ' +
        'open, at least a second.',
    }),
    drainTimeoutSeconds: Type.Integer({
      minimum: 0,
      maximum: 3600,
      default: 30,
      description: 'How long requests in progress may take to finish after that.',
    }),
  },
  { description: 'Limits of what clients may take. Nothing is unlimited.' },
);
