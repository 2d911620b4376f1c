import path from 'node:path';
import ts from 'typescript';
import { kinds } from './kinds.js';
import type { Manifest } from './render.js';

const virtualFile = path.resolve('test/helm/manifests.virtual.ts');
const options: ts.CompilerOptions = {
  strict: true,
  noEmit: true,
  skipLibCheck: true,
  types: [],
  lib: ['lib.es2022.d.ts'],
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
};

// All manifests need the same type declarations, so each declaration file is parsed only once.
const declarations = new Map<string, ts.SourceFile>();
let previous: ts.Program | undefined;

/**
 * Finds fields unknown to Kubernetes' schemas, and values of a wrong type. The manifests are compiled as literals of
 * their kinds' TypeScript interfaces, so that the compiler reports every excess field at any depth.
 */
export function unknownFields(manifests: readonly Manifest[]): string[] {
  const source = manifests
    .map((manifest, index) => {
      const module = kinds.get(`${manifest.apiVersion} ${manifest.kind}`)?.module ?? '';
      const type = `import(${JSON.stringify(module)}).I${manifest.kind}`;
      return `export const manifest${index}: ${type} = ${JSON.stringify(manifest)};`;
    })
    .join('\n');
  const host = ts.createCompilerHost(options);
  const fileExists = host.fileExists.bind(host);
  const getSourceFile = host.getSourceFile.bind(host);
  host.fileExists = (name) => name === virtualFile || fileExists(name);
  host.getSourceFile = (name, ...rest) => {
    if (name === virtualFile) return ts.createSourceFile(name, source, ts.ScriptTarget.ES2022, true);
    const file = declarations.get(name) ?? getSourceFile(name, ...rest);
    if (file !== undefined) declarations.set(name, file);
    return file;
  };
  previous = ts.createProgram([virtualFile], options, host, previous);
  return ts.getPreEmitDiagnostics(previous).map(({ file, start, messageText }) => {
    const line = file === undefined ? -1 : file.getLineAndCharacterOfPosition(start ?? 0).line;
    const { kind, metadata } = manifests[line] ?? { kind: '?', metadata: { name: '?' } };
    return `${kind} ${metadata.name}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`;
  });
}
