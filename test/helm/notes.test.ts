import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t from 'tap';
import { manifestsIn, render, runHelm } from './render.js';

/** A copy of the chart that renders NOTES.txt as an object, because `helm template` omits notes. */
const chart = mkdtempSync(path.join(tmpdir(), 'merchant-gateway-notes-'));
t.teardown(() => {
  rmSync(chart, { recursive: true, force: true });
});
cpSync('helm', chart, { recursive: true });
const asObject =
  'apiVersion: v1\nkind: ConfigMap\nmetadata: { name: notes }\ndata:\n  text: |\n    {{- include "notes" . | nindent 4 }}\n';
const notes = readFileSync('helm/templates/NOTES.txt', 'utf8');
writeFileSync(path.join(chart, 'templates/notes.yaml'), `{{- define "notes" }}\n${notes}\n{{- end }}\n${asObject}`);

function notesOf(profile: string, values: object = {}): string {
  const given = ['--kube-version', '1.27.0', '--namespace', 'payments', '--values', `helm/ci/${profile}-values.yaml`];
  const rendered = runHelm(['template', 'release', chart, ...given, '--show-only', 'templates/notes.yaml'], values);
  t.equal(rendered.status, 0, rendered.stderr);
  const [object] = manifestsIn(rendered);
  return (object as unknown as { data: { text: string } }).data.text;
}

/** The services as a separate release. */
const servicesAlone = {
  environments: { live: { enabled: false } },
  registry: { enabled: false },
  torExits: { cronJob: { enabled: false } },
  config: { identity: { publicKeysUrl: 'http://gateways:9090/.well-known/jwks.json' } },
};

t.test('the commands in the notes create a merchant that may use its first key in any deployment', (t) => {
  for (const profile of ['live-tls', 'registry-alone']) {
    t.match(notesOf(profile), /--status ACTIVE --go-live .*[^]*--environment live /, profile);
  }
  t.match(notesOf('registry-alone'), /administrators create --name try-member --role merchant-admin --merchant m_…\n/);
  const sandbox = { environments: { live: { enabled: false }, test: { enabled: true } } };
  t.match(notesOf('live-tls', sandbox), /--status ACTIVE --config .*[^]*--environment test /);
  t.end();
});

t.test('the notes have no commands for the shared token if the registry does not accept it', (t) => {
  const secrets = { operatorsToken: { existingSecret: 'token' } };
  const text = notesOf('backing-services', { config: { registry: { bootstrap: 'off' } }, secrets });
  t.notMatch(text, /-registry -- node|^ +mg /m);
  t.match(text, /^ +merchant-gateway tokens create --administrator adm_… --name trail$/m);
  t.match(text, /^3\. Create the wallet of the merchant/m);
  t.end();
});

t.test('the notes wait for exactly the deployed parts, and warn only about those', (t) => {
  const waitedFor = (text: string): string[] =>
    [...text.matchAll(/rollout status deployment\/release-merchant-gateway-(\S+)/g)].map(([, part = '']) => part);
  t.same(waitedFor(notesOf('backing-services')), ['live', 'registry', 'services']);
  const alone = notesOf('backing-services', servicesAlone);
  t.same(waitedFor(alone), ['services']);
  t.notMatch(alone, /Redis|a gateway is not ready/i);
  t.match(notesOf('backing-services'), /WARNING: the connections to Redis/);
  t.end();
});

t.test('the release test checks services that are deployed without gateways', (t) => {
  const pod = manifestsIn(render('backing-services', servicesAlone)).find(({ kind }) => kind === 'Pod');
  t.match(JSON.stringify(pod), 'http://release-merchant-gateway-services:7080/readyz');
  t.end();
});
