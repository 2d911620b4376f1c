import { writeFileSync } from 'node:fs';
import { EcsVersion } from '@elastic/ecs';
import t from 'tap';
import ts from 'typescript';
import { everyKindOfLine } from './every-kind-of-line.js';

/** The `event.type` values that ECS allows for the `event.category` values `api` and `process`. */
const allowedTypes: Readonly<Record<string, readonly string[]>> = {
  api: ['access', 'admin', 'allowed', 'change', 'creation', 'deletion', 'denied', 'end', 'info', 'start', 'user'],
  process: ['access', 'change', 'end', 'info', 'start'],
};

interface Line {
  readonly gateway?: unknown;
  readonly ecs: { readonly version: string };
  readonly event: { readonly category: readonly string[]; readonly type: readonly string[]; readonly code?: string };
  readonly tls?: { readonly version?: string };
}

t.test('each field of a line is in ECS or below `gateway`, and has a value that ECS allows', async (t) => {
  const lines = (await everyKindOfLine(t)) as Line[];
  const folder = t.testdir({});
  t.ok(lines.length > 10);

  const typed = lines.map(
    (line, index) => `export const line${index}: Ecs = ${JSON.stringify({ ...line, gateway: undefined })};`,
  );
  writeFileSync(`${folder}/lines.ts`, `import type { Ecs } from '@elastic/ecs';\n${typed.join('\n')}\n`);
  const options = { noEmit: true, strict: true, skipLibCheck: true, moduleResolution: ts.ModuleResolutionKind.Bundler };
  const program = ts.createProgram([`${folder}/lines.ts`], { ...options, module: ts.ModuleKind.ESNext, types: [] });
  const problems = ts
    .getPreEmitDiagnostics(program)
    .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'));
  t.same(problems, []);

  for (const { event, ecs, tls } of lines) {
    t.equal(ecs.version, EcsVersion);
    for (const category of event.category)
      t.same(
        event.type.filter((type) => allowedTypes[category]?.includes(type) !== true),
        [],
        category,
      );
    if (tls !== undefined) t.match(tls.version, /^1\.[23]$/);
  }
  const failed = lines.find(({ event }) => event.code === 'upstream_failed');
  t.same(failed?.event.type, ['access', 'allowed'], 'a failed service is not reported as a denial');
});
