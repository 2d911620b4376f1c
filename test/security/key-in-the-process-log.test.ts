import { writeFileSync } from 'node:fs';
import t from 'tap';
import { run } from '../../src/cli/run.js';
import { createLogger } from '../../src/telemetry/logger.js';
import { disguises, key, piecesOf } from './disguised-keys.js';

t.test('however a key is taken apart or encoded, no part of it is in the log of a process', (t) => {
  for (const [name, disguise] of Object.entries(disguises)) {
    const lines: string[] = [];
    const log = createLogger('info', { write: (line) => lines.push(line) });
    const text = `before ${disguise(key)} end`;
    log.info({ field: text, list: [{ deep: text }], [text]: 1 }, 'a field');
    log.error({ err: new Error(text, { cause: new Error(text) }) }, 'an error');
    log.warn(text);
    t.equal(lines.length, 3);
    const written = lines.join('').toLowerCase();
    t.same(
      piecesOf(disguise).filter((piece) => written.includes(piece)),
      [],
      name,
    );
    for (const line of lines) t.match(JSON.parse(line), { level: /info|warn|error/, msg: /^/ }, 'it is JSON still');
    t.match(lines.join(''), /"field":"before [^"]{0,12}…"/);
  }
  t.end();
});

t.test('nor in what config check prints', async (t) => {
  const directory = t.testdir();
  for (const [name, disguise] of Object.entries(disguises)) {
    const text = disguise(key);
    if (text.includes('\t')) continue; // no path has a control character
    const file = `${directory}/gateway.yaml`;
    writeFileSync(file, JSON.stringify({ accessLog: { destination: `/var/log/${text}.log` } }));
    for (const format of [[], ['--json']]) {
      let out = '';
      const io = { out: (printed: string) => (out += printed), err: (printed: string) => (out += printed) };
      t.equal(await run(['config', 'check', '--for', 'services', '--config', file, ...format], io), 0, name);
      const printed = out.toLowerCase();
      t.same(
        piecesOf(disguise).filter((piece) => printed.includes(piece)),
        [],
        `${name} ${format.join('')}`,
      );
      t.match(out, /\/var\/log\/[^"]{0,12}…/);
    }
  }
});
