import t from 'tap';
import { denials } from '../../src/policy/decision-table.js';
import { remedies } from '../../src/policy/remedies.js';
import { ran } from './ran.js';

const runCodes = (...args: string[]) => ran('codes', ...args);

t.test('codes shows one code with its response and what to do', async (t) => {
  const { status, out } = await runCodes('ip_not_allowed');
  t.equal(status, 0);
  t.match(out, /^response +401 IP address not allowed$/m);
  t.match(out, remedies.ip_not_allowed.remedy);
  const shown = JSON.parse((await runCodes('rate_limited', '--json')).out) as object;
  t.same(shown, { code: 'rate_limited', status: 429, message: 'Too many requests', ...remedies.rate_limited });
});

t.test('codes lists all codes, in the order of the rules', async (t) => {
  const all = JSON.parse((await runCodes('--json')).out) as { code: string }[];
  t.same(
    all.map(({ code }) => code),
    Object.keys(remedies),
  );
  t.equal((await runCodes()).out.trimEnd().split('\n').length, all.length + 1);
  t.equal(all[0]?.code, denials[0].code);
});

t.test('an unknown code is wrong usage, and the error lists the known ones', async (t) => {
  const { status, out, err } = await runCodes('key_unknow');
  t.match({ status, out }, { status: 2, out: '' });
  t.match(err, 'Allowed choices are https_required, ');
});
