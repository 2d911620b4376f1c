import t from 'tap';
import { creationProblemOf, fileProblemOf } from '../../src/config/operator-file.js';

t.test('the usual errors of the file system are described in words, others by their code', (t) => {
  const failed = (code?: string): Error =>
    Object.assign(new Error('/etc/a-secret'), code === undefined ? {} : { code });
  for (const [code, reading, creating = reading] of [
    ['EACCES', 'permission denied'],
    ['EEXIST', 'it exists already; give another name'],
    ['EISDIR', 'it is a directory'],
    ['ENOENT', 'there is no such file', 'the directory does not exist'],
    ['ENOSPC', 'no space is left on the device'],
    ['ENOTDIR', 'a part of its path is not a directory'],
    ['EROFS', 'the file system is read-only'],
    ['EFBIG', 'EFBIG'],
    [undefined, 'unknown reason'],
  ] as const) {
    t.equal(fileProblemOf(failed(code)), reading);
    t.equal(creationProblemOf(failed(code)), creating);
  }
  t.end();
});
