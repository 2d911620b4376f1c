import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t from 'tap';
import { freePort } from '../adapters/redis-server.js';
import { ask, liveKey, startTestGateway } from '../edge/harness.js';
import type { Teardown } from '../edge/harness.js';

// CGI makes a variable of each header's name, with `_` for all but letters and digits. Two headers of different names are
// one variable then, and which of them a program reads is chance. The service of this test is a CGI script of lighttpd.

const withoutLighttpd =
  spawnSync('lighttpd', ['-v']).status === 0
    ? false
    : 'lighttpd is not installed: NOTHING ABOUT FOLDED HEADER NAMES IS TESTED ON A REAL CGI';

/** All that a name may have besides letters and digits (RFC 9110 5.6.2). */
const separators = Array.from("!#$%&'*+-.^_`|~");

/** The variables as the server has put them, each as often as it has: a shell of its own would keep one of them. */
const script = String.raw`printf 'Content-Type: text/plain\r\n\r\n'; tr '\0' '\n' < /proc/$$/environ`;

async function startLighttpd(t: Teardown): Promise<string> {
  const directory = await mkdtemp(path.join(tmpdir(), 'merchant-gateway-lighttpd-'));
  const port = await freePort();
  const documents = path.join(directory, 'documents');
  await mkdir(documents);
  await writeFile(path.join(documents, 'transactions'), script);
  const file = path.join(directory, 'lighttpd.conf');
  const lines = [
    ...[`server.document-root = "${documents}"`, 'server.bind = "127.0.0.1"', `server.port = ${port}`],
    ...['server.modules = ("mod_cgi")', 'cgi.assign = ("/transactions" => "/bin/sh")'],
  ];
  await writeFile(file, `${lines.join('\n')}\n`);
  const server = spawn('lighttpd', ['-D', '-f', file], { stdio: ['ignore', 'ignore', 'pipe'] });
  t.teardown(async () => {
    const ended = once(server, 'exit');
    if (server.exitCode === null && server.kill()) await ended;
    await rm(directory, { recursive: true, force: true });
  });
  await new Promise<void>((resolve, reject) => {
    let said = '';
    server.once('exit', () => {
      reject(new Error(`lighttpd ended: ${said}`));
    });
    server.stderr.on('data', (chunk: Buffer) => {
      said += chunk.toString();
      if (said.includes('server started')) resolve();
    });
  });
  return `http://127.0.0.1:${port}`;
}

t.test(
  'a service behind CGI has each variable of the gateway once, and from the gateway',
  { skip: withoutLighttpd },
  async (t) => {
    const gateway = await startTestGateway(t, { upstreamUrl: await startLighttpd(t) });
    const variablesOf = async (headers: readonly (readonly [string, string])[]): Promise<string[]> => {
      const answer = await ask(gateway, { headers: [['x-api-key', liveKey], ...headers] });
      t.equal(answer.status, 200);
      return answer.body.split('\n').filter((line) => line.startsWith('HTTP_'));
    };
    for (const separator of separators) {
      const spelt = (name: string): string => name.replaceAll('-', separator);
      const variables = await variablesOf([
        [spelt('x-merchant-id'), 'm_2'],
        [spelt('X-Merchant-Key-Id'), 'key_2'],
        [spelt('x-merchant-environment'), 'test'],
        [spelt('x-gateway-assertion'), 'forged'],
        [spelt('x-forwarded-for'), '203.0.113.7'],
        [spelt('x-request-id'), 'forged'],
        [spelt('x-custom-header'), 'kept'],
        ['Connection', ['x-merchant-id', 'x-forwarded-for', 'x-request-id'].map(spelt).join(', ')],
      ]);
      const values = (name: string): string[] =>
        variables.filter((line) => line.startsWith(`${name}=`)).map((line) => line.slice(name.length + 1));
      t.same(values('HTTP_X_MERCHANT_ID'), ['m_1'], separator);
      t.same(values('HTTP_X_MERCHANT_KEY_ID'), ['key_1'], separator);
      t.same(values('HTTP_X_MERCHANT_ENVIRONMENT'), ['live'], separator);
      t.same(values('HTTP_X_GATEWAY_ASSERTION'), [], separator);
      t.same(values('HTTP_X_FORWARDED_FOR'), ['127.0.0.1'], separator);
      t.match(values('HTTP_X_REQUEST_ID'), [/^[0-9A-Z]{26}$/], separator);
      t.same(values('HTTP_X_CUSTOM_HEADER'), ['kept'], separator);
    }
  },
);
