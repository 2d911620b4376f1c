import t from 'tap';
import { unsaidSentences } from './sentences.js';
import { testAcceptances, testRefusals } from './verdicts.js';

const outputs = testRefusals([
  // Additional variables, volumes and mounts.
  [
    'an environment variable that the chart sets',
    /live: gateway\.extraEnv has NODE_ENV, which the chart or Kubernetes sets/,
    { gateway: { extraEnv: [{ name: 'NODE_ENV', value: 'test' }] } },
  ],
  [
    'a duplicate environment variable',
    /registry\.extraEnv has A twice/,
    {
      registry: {
        extraEnv: [
          { name: 'A', value: '1' },
          { name: 'A', value: '2' },
        ],
      },
    },
  ],
  [
    'a volume name that the chart uses',
    /live: gateway\.extraVolumes has tls, a name that the chart uses/,
    { gateway: { extraVolumes: [{ name: 'tls', emptyDir: {} }] } },
  ],
  [
    'a duplicate volume',
    /registry\.extraVolumes has a twice/,
    {
      registry: {
        extraVolumes: [
          { name: 'a', emptyDir: {} },
          { name: 'a', emptyDir: {} },
        ],
      },
    },
  ],
  [
    'a mount without its volume',
    /gateway\.extraVolumeMounts mounts geo, which is not in gateway\.extraVolumes/,
    { gateway: { extraVolumeMounts: [{ name: 'geo', mountPath: '/geo' }] } },
  ],
  ...['/etc/merchant-gateway', '/etc/merchant-gateway/config/', '/etc', '/', '/tmp', '/app/dist'].map(
    (mountPath) =>
      [
        `a mount at ${mountPath}`,
        /gateway\.extraVolumeMounts has \/\S*, which would hide files of the chart or the image/,
        { gateway: { extraVolumes: [{ name: 'a', emptyDir: {} }], extraVolumeMounts: [{ name: 'a', mountPath }] } },
      ] as const,
  ),
  [
    'a mount at a relative path',
    /registry\.extraVolumeMounts has geo, which is not an absolute path/,
    {
      registry: {
        extraVolumes: [{ name: 'a', emptyDir: {} }],
        extraVolumeMounts: [{ name: 'a', mountPath: 'geo' }],
      },
    },
  ],
  [
    'two mounts at one path',
    /registry\.extraVolumeMounts has \/geo twice/,
    {
      registry: {
        extraVolumes: [{ name: 'a', emptyDir: {} }],
        extraVolumeMounts: [
          { name: 'a', mountPath: '/geo' },
          { name: 'a', mountPath: '/geo/' },
        ],
      },
    },
  ],
  // Resources.
  [
    'a memory request above the limit',
    /live: gateway\.resources asks for 2Gi of memory, above the limit of 1536Mi/,
    { gateway: { resources: { requests: { memory: '2Gi' } } } },
  ],
  [
    'a CPU request above the limit',
    /registry\.resources asks for 1\.5 of cpu, above the limit of 1200m/,
    { registry: { resources: { requests: { cpu: '1.5' }, limits: { cpu: '1200m' } } } },
  ],
  [
    'a memory request of the CronJob above the limit',
    /torExits\.cronJob\.resources asks for 300M of memory/,
    {
      config: { torExits: { sources: ['https://exits.example/list'] } },
      torExits: { cronJob: { enabled: true, resources: { requests: { memory: '300M' } } } },
    },
  ],
]);

testAcceptances([
  [
    'a volume below a writable directory',
    {
      gateway: {
        extraVolumes: [{ name: 'geo', configMap: { name: 'geo' } }],
        extraVolumeMounts: [{ name: 'geo', mountPath: '/var/lib/merchant-gateway/var/geo', readOnly: true }],
      },
    },
  ],
  [
    'requests equal to the limits, in other units',
    { gateway: { resources: { requests: { memory: '0.5Gi', cpu: '1000m' }, limits: { memory: '512Mi', cpu: '1' } } } },
  ],
]);

t.test('each rejection message for such values is tested above', (t) => {
  const { all, unsaid } = unsaidSentences(['_safety-pods.tpl'], outputs);
  t.ok(all >= 9, `${all} messages`);
  t.same(unsaid, []);
  t.end();
});
