// Generates JSON Schemas of Kubernetes objects from the interfaces of the package kubernetes-models. The schemas reject
// unknown fields: a typo in an object that the chart copies into a manifest fails when Helm checks the values.
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

/**
 * The Kubernetes objects that chart values can contain, each with the module of kubernetes-models that declares its
 * interface.
 */
const wanted = {
  Affinity: 'kubernetes-models/v1/Affinity',
  Container: 'kubernetes-models/v1/Container',
  EnvFromSource: 'kubernetes-models/v1/EnvFromSource',
  EnvVarSource: 'kubernetes-models/v1/EnvVarSource',
  HostAlias: 'kubernetes-models/v1/HostAlias',
  HorizontalPodAutoscalerBehavior: 'kubernetes-models/autoscaling/v2/HorizontalPodAutoscalerBehavior',
  Lifecycle: 'kubernetes-models/v1/Lifecycle',
  MetricSpec: 'kubernetes-models/autoscaling/v2/MetricSpec',
  NetworkPolicyEgressRule: 'kubernetes-models/networking.k8s.io/v1/NetworkPolicyEgressRule',
  NetworkPolicyIngressRule: 'kubernetes-models/networking.k8s.io/v1/NetworkPolicyIngressRule',
  NetworkPolicyPeer: 'kubernetes-models/networking.k8s.io/v1/NetworkPolicyPeer',
  PodDNSConfig: 'kubernetes-models/v1/PodDNSConfig',
  PodReadinessGate: 'kubernetes-models/v1/PodReadinessGate',
  PodSecurityContext: 'kubernetes-models/v1/PodSecurityContext',
  SecurityContext: 'kubernetes-models/v1/SecurityContext',
  Toleration: 'kubernetes-models/v1/Toleration',
  TopologySpreadConstraint: 'kubernetes-models/v1/TopologySpreadConstraint',
  Volume: 'kubernetes-models/v1/Volume',
  VolumeMount: 'kubernetes-models/v1/VolumeMount',
};
/** Objects whose fields can be null, because the chart has defaults for these fields. A null removes the default. */
const nullable = new Set(['PodSecurityContext', 'SecurityContext']);

const folder = path.dirname(fileURLToPath(import.meta.url));
const entry = path.join(folder, 'kubernetes-forms.virtual.ts');

/** Returns a `$ref` to the schema of an object in `wanted`. */
export function kubernetes(name) {
  if (!(name in wanted)) throw new Error(`${name} is not among the objects of Kubernetes that are described`);
  return { $ref: `#/definitions/${name}` };
}

/** Builds the schemas of all objects in `wanted`, and of all objects that they contain, by name. */
export function kubernetesDefinitions() {
  const source = Object.entries(wanted)
    .map(([name, module]) => `export type ${name} = import(${JSON.stringify(module)}).I${name};`)
    .join('\n');
  const options = {
    strict: true,
    noEmit: true,
    types: [],
    skipLibCheck: true,
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
  };
  const host = ts.createCompilerHost(options);
  const { fileExists, getSourceFile } = host;
  host.fileExists = (name) => name === entry || fileExists(name);
  host.getSourceFile = (name, ...rest) =>
    name === entry ? ts.createSourceFile(name, source, ts.ScriptTarget.ES2022, true) : getSourceFile(name, ...rest);
  const program = ts.createProgram([entry], options, host);
  const checker = program.getTypeChecker();
  const definitions = {};
  const described = new Map();

  function refTo(type) {
    const name = type.symbol.name.replace(/^I(?=[A-Z])/, '');
    if (described.has(name) && described.get(name) !== type) throw new Error(`two objects are called ${name}`);
    if (!described.has(name)) {
      described.set(name, type);
      definitions[name] = objectOf(type, nullable.has(name));
    }
    return { $ref: `#/definitions/${name}` };
  }

  function objectOf(type, mayBeNull) {
    const properties = {};
    const required = [];
    for (const property of checker.getPropertiesOfType(type)) {
      const schema = schemaOf(checker.getNonNullableType(checker.getTypeOfSymbol(property)));
      properties[property.name] = mayBeNull ? orNull(schema) : schema;
      if (!(property.flags & ts.SymbolFlags.Optional)) required.push(property.name);
    }
    return { type: 'object', additionalProperties: false, ...(required.length > 0 ? { required } : {}), properties };
  }

  function schemaOf(type) {
    if (type.flags & ts.TypeFlags.Boolean) return { type: 'boolean' };
    if (type.isUnion()) return unionOf(type.types);
    if (type.flags & ts.TypeFlags.String) return { type: 'string' };
    if (type.flags & ts.TypeFlags.Number) return { type: 'integer' };
    if (type.isStringLiteral()) return { enum: [type.value] };
    if (checker.isArrayType(type)) return { type: 'array', items: schemaOf(checker.getTypeArguments(type)[0]) };
    const values = checker.getIndexTypeOfType(type, ts.IndexKind.String);
    if (values !== undefined) return { type: 'object', additionalProperties: schemaOf(values) };
    if (type.flags & ts.TypeFlags.Object) return refTo(type);
    throw new Error(`no schema for ${checker.typeToString(type)}`);
  }

  function unionOf(types) {
    if (types.every((one) => one.isStringLiteral())) return { enum: types.map(({ value }) => value) };
    // A Kubernetes quantity such as `0.5` or `500m`: a number, which can have a fraction, or a text.
    return { type: types.map((one) => (one.flags & ts.TypeFlags.Number ? 'number' : schemaOf(one).type)) };
  }

  for (const symbol of checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(entry)))) {
    refTo(checker.getDeclaredTypeOfSymbol(symbol));
  }
  return Object.fromEntries(Object.entries(definitions).sort(([one], [other]) => (one < other ? -1 : 1)));
}

function orNull(schema) {
  if (schema.enum) return { enum: [...schema.enum, null] };
  return schema.type === undefined ? { anyOf: [schema, { type: 'null' }] } : { ...schema, type: [schema.type, 'null'] };
}
