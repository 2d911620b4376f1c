import t from 'tap';
import { ownersOf, readView } from '../../src/adapters/redis/cluster/cluster-view.js';
import { Outage } from '../../src/adapters/redis/outage.js';

const info = 'cluster_state:ok\r\ncluster_current_epoch:7\r\n';
const asked = { host: 'seed.example', port: 7000, secure: false };
const lines = [
  'bbb :7001@17001 myself,master - 0 0 2 connected 8192-16382 16383 [5->-aaa]',
  'aaa 192.0.2.1:7000@17000,redis-0.example master - 0 1 1 connected 0-8191',
  'ccc 2001:db8::3:7002@17002 master - 0 1 3 connected',
  'ddd 192.0.2.4:7003@17003 slave aaa 0 1 1 connected',
  'eee 192.0.2.5:7004@17004 master,fail - 1 1 4 disconnected',
  'fff 192.0.2.6:7005@17005 handshake - 1 1 4 disconnected',
  '',
];

t.test("a node's view of its Cluster is parsed: masters, including those without slots, and their slots", (t) => {
  const view = readView(info, lines.join('\n'), asked);
  t.equal(view.epoch, 7);
  t.same(
    view.masters.map(({ id, host, port }) => `${id} ${host} ${port}`),
    ['aaa 192.0.2.1 7000', 'bbb seed.example 7001', 'ccc 2001:db8::3 7002'],
  );
  const owners = ownersOf(view);
  t.same([owners[0], owners[8191], owners[8192], owners[16_383]], [0, 0, 1, 1]);
  const secure = readView(info, lines.join('\n'), { ...asked, secure: true });
  t.equal(secure.masters[0]?.host, 'redis-0.example', 'over TLS the host name is used');
  t.equal(secure.fingerprint, view.fingerprint);
  t.end();
});

t.test('two nodes agree if they report the same epoch, masters and slots, in any order', (t) => {
  const { fingerprint } = readView(info, lines.join('\n'), asked);
  t.equal(readView(info, lines.toReversed().join('\n'), { ...asked, host: 'other' }).fingerprint, fingerprint);
  const others = [
    readView(info.replace('7', '8'), lines.join('\n'), asked),
    readView(info, lines.join('\n').replace('0-8191', '0-8190'), asked),
    readView(info, lines.join('\n').replace('master,fail', 'master,fail?'), asked),
  ];
  for (const other of others) t.not(other.fingerprint, fingerprint);
  t.end();
});

t.test('an incomplete Cluster is rejected', (t) => {
  t.throws(() => readView(info.replace('ok', 'fail'), lines.join('\n'), asked), /reports the state fail/);
  t.throws(() => readView('', lines.join('\n'), asked), /reports the state unknown/);
  t.throws(() => readView('cluster_state:ok\r\n', lines.join('\n'), asked), /reports no epoch/);
  t.throws(() => ownersOf(readView(info, lines.slice(1).join('\n'), asked)), /does not cover all slots/);
  const many = Array.from({ length: 1_001 }, (_, index) => `${index} h:1@2 master - 0 0 1 connected`);
  t.throws(() => readView(info, many.join('\n'), asked), /more than 1000 masters/);
  t.end();
});

t.test('the start and the end of an outage are reported, and no attempt in between', (t) => {
  const reported: string[] = [];
  const { failed, recovered } = new Outage({
    onLost: ({ message }) => reported.push(message),
    onFound: (milliseconds) => reported.push(`found after ${milliseconds >= 0 ? 'a time' : 'less than nothing'}`),
  });
  recovered();
  for (const reason of ['first', 'second', 'third']) failed(new Error(reason));
  recovered();
  recovered();
  failed(new Error('again'));
  t.same(reported, ['first', 'found after a time', 'again']);
  t.end();
});
