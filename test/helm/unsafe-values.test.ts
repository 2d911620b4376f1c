import t from 'tap';
import { proxyProblems } from '../../src/config/rules/proxy-rules.js';
import { acceptances, refusals } from './refusals.js';
import { render, runHelm } from './render.js';
import { unsaidSentences } from './sentences.js';
import { testAcceptances, testRefusals } from './verdicts.js';

const outputs = testRefusals(refusals);
testAcceptances(acceptances);

t.test('the chart rejects the same networks of trusted proxies as the product', (t) => {
  const proxies = [
    ...['10.0.0.0/8', '10.0.0.0/7', '0.0.0.0/0', '::/0', '2000::/3', '2000::/15', '2001::/16', '2001:db8::/32'],
    ...['fc00::/7', 'FD00::/8', 'fd12::/15', 'fc00::/6', 'fc::/8', 'fe80::/10', '::ffff:10.0.0.0/104', '::ffff:0:0/96'],
  ];
  const { stderr } = render('live-tls', { config: { trustedProxies: proxies } });
  const rejected = [...stderr.matchAll(/config\.trustedProxies has (\S+): any client/g)].map(([, proxy]) => proxy);
  const problems = proxyProblems('proxies', proxies).map(({ path }) => proxies[Number(/\d+/.exec(path)?.[0])]);
  t.ok(problems.length > 5);
  t.same(rejected, problems);
  t.end();
});

t.test('rejected: a release name that is invalid in a Service name', (t) => {
  const values = ['--kube-version', '1.27.0', '--values', 'helm/ci/live-tls-values.yaml'];
  const { status, stderr } = runHelm(['template', '1.release', 'helm', ...values]);
  outputs.push(stderr);
  t.equal(status, 1);
  t.match(stderr, '1.release-merchant-gateway is not a valid name of a Service');
  t.end();
});

t.test('the default values are rejected, and all missing values are reported together', (t) => {
  const { status, stderr } = runHelm(['template', 'release', 'helm', '--kube-version', '1.27.0']);
  outputs.push(stderr);
  t.equal(status, 1);
  for (const part of ['no TLS', 'pepper', 'config.upstreams', 'Tor exits', 'no Redis', 'adminToken'])
    t.match(stderr, part);
  t.end();
});

t.test('each rejection message for such values is tested above', (t) => {
  const { all, unsaid } = unsaidSentences(['_safety.tpl', 'safety.yaml'], outputs);
  t.ok(all >= 50, `${all} messages`);
  t.same(unsaid, []);
  t.end();
});
