import { execFile } from 'node:child_process';
import { once } from 'node:events';
import http2 from 'node:http2';
import type { ClientHttp2Session, IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http2';
import path from 'node:path';
import tls from 'node:tls';
import type { TLSSocket } from 'node:tls';
import { promisify } from 'node:util';
import { liveKey, startTestGateway, startUpstream } from '../edge/harness.js';
import type { GatewaySetup, GatewayUnderTest, RecordingUpstream, Teardown } from '../edge/harness.js';
import { makeCertificates, startFront } from './fixture.js';
import type { Certificates, Front, FrontKind } from './fixture.js';

/** The address of the clients in these tests. The front (the proxy before the gateway) has the address 127.0.0.1. */
export const clientAddress = '127.0.0.2';

/** A front, the gateway behind it, and a service behind that. */
export interface Deployment {
  readonly front: Front;
  readonly gateway: GatewayUnderTest;
  readonly upstream: RecordingUpstream;
  readonly certificates: Certificates;
}

interface DeploymentSetup extends Omit<GatewaySetup, 'config'> {
  /** The name in the gateway's certificate. */
  readonly gatewayName?: string;
  /** Inserts a relay between front and gateway; returns the port to which the front connects. */
  readonly between?: (gateway: GatewayUnderTest) => number | Promise<number>;
}

export async function deploy(t: Teardown, kind: FrontKind, setup: DeploymentSetup = {}): Promise<Deployment> {
  const certificates = await makeCertificates(t, setup.gatewayName);
  const upstream = await startUpstream(t);
  const config = { ...kind.gateway, listen: { https: certificates.gateway } };
  const gateway = await startTestGateway(t, { upstreamUrl: upstream.url, ...setup, config });
  const https = (await setup.between?.(gateway)) ?? gateway.https;
  const front = await startFront(t, kind, certificates, { https, management: gateway.management });
  return { front, gateway, upstream, certificates };
}

/** Opens a client's TLS connection to a front. */
export function connectTls({ port, ca }: Front, protocol: 'h2' | 'http/1.1', localAddress = clientAddress): TLSSocket {
  // `localAddress` is an option of net.connect; tls.connect passes the option on.
  const address = { host: '127.0.0.1', port, localAddress };
  return tls.connect({ ...address, ca, servername: 'api.example', ALPNProtocols: [protocol] });
}

/** Opens an HTTP/2 connection to a front. */
export function connectClient(t: Teardown, front: Front, localAddress = clientAddress): ClientHttp2Session {
  const createConnection = (): TLSSocket => connectTls(front, 'h2', localAddress);
  const session = http2.connect('https://api.example', { createConnection, maxSendHeaderBlockLength: 1_000_000 });
  session.on('error', () => undefined);
  t.teardown(() => {
    session.destroy();
  });
  return session;
}

interface FrontResponse {
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/**
 * Sends a request with the API key and the length of the body, and returns the response. A header with the value
 * `undefined` is omitted.
 */
export async function send(
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  body: string | Buffer = '',
): Promise<FrontResponse> {
  const length = body.length === 0 ? {} : { 'content-length': body.length };
  const fields = { ':path': '/v1/transactions', 'x-api-key': liveKey, ...length, ...headers };
  const stream = session.request(fields, { endStream: body.length === 0 });
  // A front may reject an unread body and reset the stream after its response.
  stream.on('error', () => undefined);
  if (body.length > 0) stream.end(body);
  const [response] = (await once(stream, 'response')) as [IncomingHttpHeaders & { ':status'?: number }];
  let received = '';
  stream.setEncoding('latin1');
  stream.on('data', (chunk: string) => (received += chunk));
  // After a complete response Node keeps the stream open while the rest of a rejected body waits to be sent.
  await new Promise((resolve) => stream.once('end', resolve).once('close', resolve));
  stream.close();
  return { status: response[':status'], headers: response, body: received };
}

/** Sends a request to the front with curl, over HTTP/2. Returns the output of curl. */
export async function curl({ front, certificates }: Deployment, ...args: string[]): Promise<string> {
  const origin = `api.example:${front.port}`;
  const trust = ['--cacert', path.join(certificates.directory, 'ca.pem'), '--resolve', `${origin}:127.0.0.1`];
  const words = ['--silent', '--show-error', '--http2', '--interface', clientAddress, ...trust, ...args];
  const { stdout } = await promisify(execFile)('curl', [...words, `https://${origin}/v1/payouts`]);
  return stdout;
}
