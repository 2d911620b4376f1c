import Type from 'typebox';
import { address, nullable, requiredFile, section } from './option.js';

const https = section(
  {
    ...address('0.0.0.0', 8443),
    certFile: requiredFile(
      'PEM file with the certificate, followed by its intermediates.',
      '/etc/merchant-gateway/tls/tls.crt',
    ),
    keyFile: requiredFile("PEM file with the certificate's private key.", '/etc/merchant-gateway/tls/tls.key'),
    http2: Type.Boolean({ default: false, description: 'Offer HTTP/2.', unavailable: true }),
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
      description: 'Size of the head of a request. A larger one is answered with 431.',
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
    connections: Type.Integer({
      minimum: 1,
      maximum: 1_000_000,
      default: 10_000,
      description: 'Open connections of clients, of each listener. Further ones are closed at once.',
    }),
    keepAliveTimeoutSeconds: Type.Integer({
      minimum: 1,
      maximum: 3600,
      default: 72,
      description:
        'How long an idle connection stays open. Longer than the idle timeout of a load balancer in front, which ' +
        'otherwise sends requests into connections that are just being closed.',
    }),
    drainTimeoutSeconds: Type.Integer({
      minimum: 0,
      maximum: 3600,
      default: 30,
      description: 'How long requests in progress may take to finish once the gateway is told to stop.',
    }),
  },
  { description: 'Limits of what clients may take. Nothing is unlimited.' },
);
