import t from 'tap';
import { readSecretFile, readSecretLines } from '../../src/config/operator-file.js';

t.test('a secret is the content of its file without one trailing line end', async (t) => {
  const secret = 'a secret of the tests alone';
  const read = (contents: Buffer | string): Promise<Buffer> =>
    readSecretFile(`${t.testdir({ secret: contents })}/secret`, 'The pepper');
  for (const end of ['', '\n', '\r\n']) t.equal((await read(`${secret}${end}`)).toString(), secret);
  const bytes = Buffer.from([
    0,
    0xff,
    0x0a,
    0x0d,
    0x0a,
    0x0a,
    ...Array.from({ length: 16 }, (_, at) => 0x80 + at),
    0x0d,
  ]);
  t.same(await read(bytes), bytes, 'all other bytes are part of the secret');
  t.equal((await read('sixteen in bytes')).length, 16, 'the minimum length is accepted');
  await t.rejects(read('short\n'), /^The pepper .* is shorter than 16 bytes\.$/);
  for (const end of ['\n\n', '\r\n\r\n', '\n\n\n'])
    await t.rejects(read(`${secret}${end}`), /^The pepper .* has several line breaks at its end; keep at most one\.$/);
  await t.rejects(read(`\ufeff${secret}\n`), /^The pepper .* begins with a byte order mark: save it without this mark/);
});

t.test('during a rotation the file has two secrets, one per line', async (t) => {
  const [one, two] = ['1'.repeat(32), '2'.repeat(32)];
  const read = async (contents: string): Promise<string[]> => {
    const lines = await readSecretLines(`${t.testdir({ secret: contents })}/secret`, 'The secret of records', 32);
    return lines.map(String);
  };
  for (const end of ['', '\n', '\r\n']) t.same(await read(`${one}${end}`), [one]);
  t.same(await read(`${one}\n${two}\n`), [one, two], 'in file order');
  t.same(await read(`${two}\r\n${one}`), [two, one]);
  await t.rejects(read(`${one}\n${one}`), /^The secret of records .* has the same secret in both lines: /);
  await t.rejects(read(`${one}\n${two}\n${'3'.repeat(32)}`), /^The secret of records .* has 3 lines\. /);
  await t.rejects(read(`${one}\n\n${two}`.slice(0, 40)), /has 3 lines\./);
  await t.rejects(read(one.slice(1)), /^The secret of records .* is too short: line 1 has fewer than 32 bytes\./);
  await t.rejects(read(`${one}\n${two.slice(1)}`), /: line 2 has fewer than 32 bytes\./);
});
