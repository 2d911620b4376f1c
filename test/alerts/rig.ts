import { copyFileSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import http from 'node:http';
import https from 'node:https';
import { text } from 'node:stream/consumers';
import { setTimeout as wait } from 'node:timers/promises';
import { merged, openSite } from '../deployment/deployment.js';
import type { Part as Process, PartName } from '../deployment/process.js';
import { startUpstream } from '../edge/harness.js';
import type { Teardown } from '../edge/harness.js';
import type { Scrape } from './timeline.js';

/** A process of the product. */
export interface Part extends Process {
  /** The certificate and the access log of a gateway. */
  readonly files: { readonly certFile: string; readonly accessLog: string };
  /** Its current metrics; null if the process does not respond. */
  scrape(): Promise<Scrape | null>;
}

/** A request to a gateway. */
interface Asked {
  readonly path?: string;
  readonly key?: string | null;
  /** Whether to send the request over plain HTTP, which the gateway denies. */
  readonly isPlain?: boolean;
  /** The client's address in the trusted proxy's X-Forwarded-For header. */
  readonly from?: string;
}

/** Starts Redis and an upstream; the test then starts parts of the product as processes. */
export async function startRig(t: Teardown) {
  const upstream = await startUpstream(t);
  const site = await openSite(t, {
    ...{ upstreamUrl: upstream.url, pepper: true, recordSecret: true, throttles: true, management: true },
    settings: {
      listen: { http: { host: '127.0.0.1', port: 0 } },
      trustedProxies: ['127.0.0.1'],
      keyStore: { redis: { commandTimeoutMilliseconds: 2000 }, cache: { maxStaleSeconds: 4 } },
      limits: { eventLoopDelayMilliseconds: 200, drainDelaySeconds: 1, drainTimeoutSeconds: 1 },
      rateLimit: { requestsPerSecond: 1000, shared: true },
      upstreams: { payouts: { url: upstream.url, maxInFlight: 2 } },
      routes: [
        { path: '/payouts', upstream: 'payouts', resource: 'payouts' },
        { path: '/transactions', upstream: 'transactions', resource: 'transactions' },
      ],
    },
  });
  const { redis, directory: folder, token, certificate } = site;
  const write = (name: string, content: string): string => {
    writeFileSync(site.file(name), content, { mode: 0o600 });
    return site.file(name);
  };
  const torExits = {
    ...{ enabled: true, sources: [write('tor-exits.txt', '198.51.100.66\n')], allowReserved: true },
    snapshotFile: site.file('exits.json'),
  };
  const services = {
    listen: { host: '127.0.0.1', port: 0 },
    database: { url: `sqlite:${site.file('services.db')}` },
  };
  let started = 0;

  /**
   * Starts a part of the product as a process.
   * @param mostFileKibibytes limit on the size of each file that the process writes; null: no limit
   */
  async function start(part: PartName, options: object = {}, mostFileKibibytes: number | null = null): Promise<Part> {
    started += 1;
    // Each part has its own files, because a test replaces the certificate of one gateway.
    const [certFile, keyFile] = [site.file(`${part}-${started}.crt`), site.file(`${part}-${started}.key`)];
    copyFileSync(site.file('cert.txt'), certFile);
    copyFileSync(site.file('key.txt'), keyFile);
    // Two scrapes must see that a stopped gateway is not ready, before its process ends.
    const ofGateway = { listen: { https: { certFile, keyFile } }, limits: { drainDelaySeconds: 30 } };
    const own = part === 'gateway' ? ofGateway : {};
    const settings = merged(merged({ torExits, services }, own), options) as object;
    const process = await site.start(part, settings, { mostFileKibibytes });
    const { ports } = process;
    const isSecure = JSON.stringify(options).includes('"certFile"') && part === 'registry';
    const url = `${isSecure ? 'https' : 'http'}://127.0.0.1:${ports.management ?? ports.api ?? 0}/metrics`;
    return {
      ...process,
      files: { certFile, accessLog: site.file(`${process.name}.log`) },
      scrape: async () => {
        try {
          return { text: await (isSecure ? securely(url) : plainly(url)), time: Date.now() / 1000 };
        } catch {
          return null;
        }
      },
    };
  }

  const agents = {
    plain: new http.Agent({ keepAlive: true }),
    tls: new https.Agent({ keepAlive: true, ca: certificate }),
  };
  t.teardown(() => {
    agents.plain.destroy();
    agents.tls.destroy();
  });

  /** Sends a request; resolves with the status, or with 0 without a response. */
  function ask(
    gateway: Part,
    { path: target = '/transactions', key: apiKey = null, isPlain, from }: Asked,
  ): Promise<number> {
    const headers = {
      ...(apiKey === null ? {} : { 'x-api-key': apiKey }),
      ...(from === undefined ? {} : { 'x-forwarded-for': from }),
      ...(isPlain === true ? {} : { 'x-forwarded-proto': 'https' }),
    };
    const options = { host: '127.0.0.1', path: `/v1${target}`, headers };
    const request =
      isPlain === true
        ? http.get({ ...options, port: gateway.ports.http, agent: agents.plain })
        : https.get({ ...options, port: gateway.ports.https, agent: agents.tls, servername: 'localhost' });
    return new Promise((resolve) => {
      request.once('error', () => {
        resolve(0);
      });
      request.once('response', (response) => {
        response.resume().once('close', () => {
          resolve(response.statusCode ?? 0);
        });
      });
    });
  }

  async function admin(
    registry: Part,
    method: string,
    target: string,
    body?: object,
    bearer = token,
  ): Promise<ApiResponse> {
    const response = await fetch(`http://127.0.0.1:${registry.ports.api ?? 0}${target}`, {
      method,
      headers: { authorization: `Bearer ${bearer}`, ...(body && { 'content-type': 'application/json' }) },
      ...(body && { body: JSON.stringify(body) }),
    });
    return { status: response.status, ...((await response.json()) as { data: ApiResponse['data'] }) };
  }

  return { redis, upstream, folder, write, start, ask, admin };
}

/** A response of the registry. */
interface ApiResponse {
  readonly status: number;
  readonly data: { readonly id: string; readonly key: string; readonly keyId: string };
}

export type Rig = Awaited<ReturnType<typeof startRig>>;

async function plainly(url: string): Promise<string> {
  return (await fetch(url, { signal: AbortSignal.timeout(10_000) })).text();
}

/** Reads a URL over TLS, without verifying the certificate. */
async function securely(url: string): Promise<string> {
  const request = https.get(url, { rejectUnauthorized: false, agent: false, timeout: 10_000 });
  const [response] = (await once(request, 'response')) as [http.IncomingMessage];
  return text(response);
}

/** Waits for a condition; throws an error that names `what` after the timeout. */
export async function until(
  what: string,
  isSo: () => Promise<boolean> | boolean,
  seconds = 60,
  pauseMilliseconds = 50,
): Promise<void> {
  const end = Date.now() + seconds * 1000;
  while (!(await isSo())) {
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    await wait(pauseMilliseconds);
  }
}
