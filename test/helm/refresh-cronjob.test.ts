import { readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { parse } from 'yaml';

interface Pod {
  readonly securityContext: Record<string, unknown>;
  readonly containers: readonly {
    readonly command?: unknown;
    readonly args: readonly string[];
    readonly volumeMounts: readonly { readonly mountPath: string; readonly readOnly?: boolean }[];
  }[];
}

interface CronJob {
  readonly spec: { readonly jobTemplate: { readonly spec: { readonly template: { readonly spec: Pod } } } };
}

t.test('the CronJob without the chart matches the image: entry point, user and directories', (t) => {
  const dockerfile = readFileSync('Dockerfile', 'utf8');
  const image = dockerfile.slice(dockerfile.lastIndexOf('\nFROM '));
  const [, user = '', group = ''] = /^USER (\d+):(\d+)$/m.exec(image) ?? [];
  const [, folder = ''] = /^WORKDIR (\S+)$/m.exec(image) ?? [];
  const { spec } = (parse(readFileSync('tor-exit-list/refresh-cronjob.yaml', 'utf8')) as CronJob).spec.jobTemplate.spec
    .template;
  t.match(spec.securityContext, { runAsUser: Number(user), runAsGroup: Number(group), fsGroup: Number(group) });
  const [container] = spec.containers;
  t.notOk(container?.command, 'the entry point of the image runs the program');
  t.same(container?.args.slice(0, 2), ['tor-exits', 'refresh']);
  const writable = (container?.volumeMounts ?? []).filter(({ readOnly }) => readOnly !== true);
  const { torExits } = parse(readFileSync('config/gateway.yaml', 'utf8')) as { torExits: { snapshotFile: string } };
  const snapshots = path.dirname(path.resolve(folder, torExits.snapshotFile));
  t.same(
    writable.map(({ mountPath }) => mountPath),
    [snapshots],
  );
  t.match(image, new RegExp(`^RUN mkdir -p (?:.* )?${snapshots}(?: |$)`, 'm'), 'the directory exists in the image');
  t.end();
});
