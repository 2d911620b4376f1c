import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import https from 'node:https';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type BrowserContext, chromium, type Page, type Route } from 'playwright-core';
import type { Test } from 'tap';
import { killAtEnd, productCommand } from '../product-command.js';

const executablePath = '/usr/bin/chromium';

/** Why tests with a browser are skipped; false if they run. */
export const withoutBrowser =
  spawnSync(executablePath, ['--version']).status === 0 ? false : 'Chromium is not installed: apt-get install chromium';

/** `merchant-gateway dev` as a separate process, with the sign-in link that it prints. */
export interface Product {
  readonly link: string;
  readonly origin: string;
  readonly merchantId: string;
  /** The URL of the merchant API, whose certificate is self-signed. */
  readonly merchantApi: string;
  /** Sends a request to the admin API as the owner of the demo; resolves with the data of the response. */
  ask<Data>(method: string, path: string, body?: object): Promise<Data>;
  /** Like `ask`, but as the treasurer of the demo. */
  askAsTreasurer: Product['ask'];
  /** Runs `merchant-gateway` as the owner of the demo; returns its standard output. */
  run(...args: readonly string[]): string;
}

const startMilliseconds = 60_000;

/**
 * Starts `merchant-gateway dev` on free ports and in a new directory.
 * @param ofRegistry further options of the registry, in YAML
 */
export async function startProduct(t: Test, ofRegistry = ''): Promise<Product> {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-console-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const config = path.join(directory, 'free-ports.yaml');
  const listeners = ['https', 'http', 'management'].map((name) => `${name}: { port: 0 }`).join(', ');
  await writeFile(
    config,
    `listen: { ${listeners} }\nregistry: { listen: { port: 0 }, ${ofRegistry} }\nservices: { listen: { port: 0 } }\n`,
  );
  const child = spawn(...productCommand(['dev', '--config', config, '--data-dir', path.join(directory, 'data')]), {
    stdio: 'pipe',
  });
  killAtEnd(t, child);
  let output = '';
  const started = new Promise<void>((resolve, reject) => {
    const late = setTimeout(() => {
      reject(new Error(`the product did not start: ${output}`));
    }, startMilliseconds);
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => {
        output += chunk.toString();
        if (!output.includes('audit verify')) return;
        clearTimeout(late);
        resolve();
      });
    }
  });
  await Promise.race([started, once(child, 'exit').then(() => Promise.reject(new Error(`it ended: ${output}`)))]);
  const found = (form: RegExp): string => form.exec(output)?.[1] ?? '';
  const link = found(/(http:\S+\/console\/enter#\S+)/);
  const [registry, tokenFile] = [found(/--registry (\S+)/), found(/--token-file (\S*owner\S*)/)];
  const access = ['--registry', registry, '--token-file', tokenFile];
  const askWith =
    (file: string) =>
    async <Data>(method: string, at: string, body?: object): Promise<Data> => {
      const authorization = `Bearer ${readFileSync(file, 'utf8').trim()}`;
      const response = await fetch(`${registry}${at}`, {
        method,
        headers: { authorization, ...(body && { 'content-type': 'application/json' }) },
        body: body === undefined ? null : JSON.stringify(body),
      });
      const { success, message, data } = (await response.json()) as { success: boolean; message: string; data: Data };
      if (!success) throw new Error(`${method} ${at}: ${message}`);
      return data;
    };
  return {
    ...{ link, origin: new URL(link).origin, merchantId: found(/merchant +(m_\w+)/) },
    merchantApi: found(/merchant API +(\S+)/),
    ask: askWith(tokenFile),
    askAsTreasurer: askWith(tokenFile.replace('owner', 'treasurer')),
    run: (...args) => {
      const [command, given] = productCommand([...args, ...access]);
      const { status, stdout, stderr } = spawnSync(command, given, { encoding: 'utf8' });
      if (status !== 0) throw new Error(`${args.join(' ')} ended with ${String(status)}: ${stderr}`);
      return stdout;
    },
  };
}

/** Sends a request to the merchant API of the product. The certificate of the demo is self-signed. */
export async function requestAs(
  { merchantApi }: Pick<Product, 'merchantApi'>,
  key: string,
  at: string,
  userAgent = 'test/1',
): Promise<void> {
  const headers = { 'x-api-key': key, 'user-agent': userAgent };
  const request = https.get(`${merchantApi}${at}`, { rejectUnauthorized: false, headers });
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  await once(response.resume(), 'end');
}

/** A browser, with a list of its faults. */
export interface Watched {
  readonly context: BrowserContext;
  /** Violations of the CSP, errors of the page or its console, and requests to another origin. */
  readonly faults: string[];
  /** Opens a page that is watched. */
  open(): Promise<Page>;
}

/** Starts a browser without a window. Pages may use the clipboard. */
export async function startBrowser(t: Test, origin: string): Promise<Watched> {
  const browser = await chromium.launch({
    executablePath,
    args: ['--disable-dev-shm-usage', '--no-sandbox'],
  });
  t.teardown(() => browser.close());
  const context = await browser.newContext({ permissions: ['clipboard-read', 'clipboard-write'] });
  const faults: string[] = [];
  await context.exposeFunction('noteViolation', (text: string) => faults.push(`CSP: ${text}`));
  await context.addInitScript({
    content: `document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI }) =>
      window.noteViolation(violatedDirective + ' ' + blockedURI));`,
  });
  context.on('request', (request) => {
    if (!request.url().startsWith(`${origin}/`)) faults.push(`request to ${request.url()}`);
  });
  context.on('weberror', (error) => faults.push(`page: ${error.error().message}`));
  context.on('console', (message) => {
    if (message.type() === 'error') faults.push(`console: ${message.text()}`);
  });
  return { context, faults, open: () => context.newPage() };
}

/** Opens a sign-in link, and presses the button to sign in. */
export async function enter(page: Page, link: string): Promise<void> {
  await page.goto(link);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
}

/**
 * Holds a page's requests for a URL until the returned function is called. After that call, the handlers that were
 * registered earlier for the URL handle the requests.
 */
export async function holdRequests(page: Page, url: string | RegExp): Promise<() => Promise<void>> {
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  const handle = async (route: Route): Promise<void> => {
    await released;
    await route.fallback();
  };
  await page.route(url, handle);
  return async () => {
    release();
    await page.unroute(url, handle);
  };
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

/** Returns the accessibility problems of a page, by the rules of WCAG 2.2 AA and the best practices of axe. */
export async function accessibilityProblems(page: Page): Promise<string[]> {
  // Code that runs in the page is a string, because TypeScript compiles this file without the types of browsers.
  if (!(await page.evaluate<boolean>('window.axe !== undefined'))) await page.evaluate(axe);
  return page.evaluate<string[]>(`
    axe.run({ runOnly: ${JSON.stringify(rules)} }).then(({ violations }) =>
      violations.flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => id + ': ' + html + ' ' + failureSummary)))
  `);
}
