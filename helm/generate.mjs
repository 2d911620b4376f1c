// Generates values.schema.json and README.md from values.yaml and the product's configuration options. Run it with
// `npm run chart`, which builds the product first.
import { readFileSync, writeFileSync } from 'node:fs';
import { format } from 'prettier';
import { isMap, parseDocument } from 'yaml';
import { configSchema } from '../dist/config/schema.js';
import { kubernetesDefinitions } from './kubernetes-forms.mjs';
import { formOf } from './value-forms.mjs';

const read = (name) => readFileSync(new URL(name, import.meta.url), 'utf8');

/**
 * Product options that the chart sets itself. The schema of `config` omits them, so an operator cannot set them there.
 */
const ownedByTheChart = [
  'environment',
  'listen.http',
  'listen.management',
  'listen.https.host',
  'listen.https.port',
  'listen.https.certFile',
  'listen.https.keyFile',
  'listen.https.ticketKeysFile',
  'listen.https.clientCaFile',
  'keyStore.redis.passwordFile',
  'keyStore.redis.caFile',
  'keyStore.redis.sentinel.passwordFile',
  'keys.pepperFile',
  'keys.recordSecretFile',
  'registry.listen',
  'registry.database',
  'registry.tokenFile',
  'registry.witness.keyFile',
  'registry.servicesToken',
  'services.listen',
  'services.database.url',
  'services.operators.listen',
  'services.operators.tokenFile',
  'services.operators.trail.tokenFile',
  'services.operators.trail.caFile',
  'identity.signingKeyFile',
  'accessLog.secretFile',
  'accessLog.checkpoints.keyFile',
  'traces.tokenFile',
  'limits.drainDelaySeconds',
];

/**
 * Converts an option's schema to JSON Schema for Helm. Drops our own keywords, and patterns that Go's regular
 * expressions do not support. Also drops the options in `ownedByTheChart`.
 */
function optionsOf(option, path = '') {
  const { properties, patternProperties, items, anyOf, pattern, description } = option;
  const kept = Object.fromEntries(
    ['type', 'enum', 'minimum', 'maximum', 'minLength', 'maxLength', 'minItems', 'maxItems', 'additionalProperties']
      .filter((keyword) => keyword in option)
      .map((keyword) => [keyword, option[keyword]]),
  );
  // Helm reads on and off without quotes as booleans.
  if (option.enum?.includes('off')) kept.enum = [...option.enum, true, false];
  const children = (group, name) =>
    Object.fromEntries(
      Object.entries(group)
        .filter(([key]) => !ownedByTheChart.includes(name(key)))
        .map(([key, child]) => [key, optionsOf(child, name(key))]),
    );
  return {
    ...(description ? { description } : {}),
    ...kept,
    ...(pattern === undefined || /\(\?|\\u/.test(pattern) ? {} : { pattern }),
    ...(properties && { properties: children(properties, (key) => (path === '' ? key : `${path}.${key}`)) }),
    ...(patternProperties && { patternProperties: children(patternProperties, (key) => `${path}[${key}]`) }),
    ...(items && { items: optionsOf(items, `${path}[]`) }),
    ...(anyOf && { anyOf: anyOf.map((one) => optionsOf(one, path)) }),
  };
}

/** Lists the values in a YAML map: path, comment, default and, for a group, the values in the group. */
function valuesIn(map, parent = '') {
  return map.items.map(({ key, value }, index) => {
    const comment = key.commentBefore ?? (index === 0 ? map.commentBefore : undefined) ?? '';
    const path = parent === '' ? key.value : `${parent}.${key.value}`;
    const description = comment
      .split(/\n\s*\n/)
      .at(-1)
      .split('\n')
      .map((line) => line.trim())
      .join(' ');
    const isGroup = isMap(value) && value.items.length > 0 && !formOf(path);
    return { path, name: key.value, description, value: value.toJSON(), parts: isGroup ? valuesIn(value, path) : null };
  });
}

function schemaOf({ path, description, value, parts }, group) {
  const described = description === '' ? {} : { description };
  const form = formOf(path);
  if (form) return { ...described, ...form };
  if (parts) return { ...described, ...group(parts) };
  if (typeof value === 'boolean') return { ...described, type: 'boolean' };
  if (typeof value === 'string') return { ...described, type: 'string' };
  if (Number.isInteger(value)) return { ...described, type: 'integer', minimum: 0 };
  throw new Error(`${path}: what may it be? Say so in value-forms.mjs.`);
}

/**
 * Builds the schema of a group of overrides. No value is required, because a missing one keeps the value that it would
 * override.
 */
function overridesOf(parts) {
  const properties = Object.fromEntries(parts.map((part) => [part.name, schemaOf(part, overridesOf)]));
  return { type: 'object', additionalProperties: false, properties };
}

/**
 * Builds the schema of a group. Every value has a default, and Helm removes a value that is set to null. So a missing
 * value was set to null, and is an error unless its schema allows null.
 */
function groupOf(parts) {
  const properties = Object.fromEntries(parts.map((part) => [part.name, schemaOf(part, groupOf)]));
  const required = Object.keys(properties).filter((name) => !mayBeNull(properties[name]));
  return { type: 'object', additionalProperties: false, required, properties };
}

function mayBeNull(schema) {
  return [schema.type, schema.enum].flat().some((one) => one === null || one === 'null');
}

function rowsOf({ path, description, value, parts }) {
  const rows = parts && parts.some((part) => part.description !== '') ? parts.flatMap(rowsOf) : [];
  if (rows.length > 0) return rows;
  return [`| \`${path}\` | ${description} | \`${JSON.stringify(value)}\` |`];
}

const values = valuesIn(parseDocument(read('values.yaml')).contents);
const whole = groupOf(values);
const gateway = values.find(({ name }) => name === 'gateway');
// Helm itself adds `global` to the values of every chart.
whole.properties.global = { type: 'object' };
const schema = {
  $schema: 'http://json-schema.org/draft-07/schema#',
  title: 'Values of the merchant-gateway chart',
  ...whole,
  definitions: {
    config: optionsOf(configSchema),
    gatewayOverrides: overridesOf(gateway.parts),
    ...kubernetesDefinitions(),
  },
};

const document = `${read('README.in.md').trimEnd()}

| value | what it is | default |
| --- | --- | --- |
${values.flatMap(rowsOf).join('\n')}
`;

const target = process.argv[2] === undefined ? new URL('./', import.meta.url) : new URL(`file://${process.argv[2]}/`);
const json = { parser: 'json', printWidth: 120 };
writeFileSync(new URL('values.schema.json', target), await format(JSON.stringify(schema), json));
writeFileSync(new URL('README.md', target), document);
