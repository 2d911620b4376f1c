import type { Explanation } from '../../edge/explain-request.js';
import type { DescribedRequest } from '../../edge/explain-request.js';
import { gatewayErrors } from '../../policy/gateway-errors.js';
import type { Credential, RequestFacts } from '../../policy/facts.js';
import type { IpAddress } from '../../policy/ip-address.js';
import type { RuleOutcome } from '../../policy/explain.js';
import { recordLines, tableLines } from '../admin/table.js';
import { describeCode } from '../codes.js';
import type { StoredRecord } from './stored-record.js';

/** The values that an explanation shows. */
export interface Explained {
  readonly environment: string;
  readonly request: DescribedRequest;
  /** The stored records of the key; null if the request has no key to look up. */
  readonly record: StoredRecord | null;
  readonly explanation: Explanation;
  /** Decision and reason in the log line; null if no line is given. */
  readonly logged: { readonly code: string; readonly reason: string | null } | null;
}

/**
 * Gateway errors that `explain` can reproduce, because they depend only on the request's path and method and the
 * configuration.
 */
const explicable: ReadonlySet<string> = new Set(['not_found', 'method_not_allowed', 'invalid_path']);

/** Returns the explanation as data, for `--json` and as the source of the text. */
export function explanationView({ environment, request, record, explanation, logged }: Explained) {
  const { code, detail, facts, hops, route, torListDigest, keyLookup, rules } = explanation;
  const { method, target, remote, tls, at } = request;
  // Configuration and records cannot explain header problems and temporary errors, such as outages, rate limits and
  // upstream failures. If the log line has such an error, show that error as the decision.
  const isOfItsMoment =
    logged !== null && logged.code !== code && logged.code in gatewayErrors && !explicable.has(logged.code);
  const byRules = { code, detail };
  const verdict = isOfItsMoment ? { code: logged.code, detail: logged.reason } : byRules;
  const found = describeCode(verdict.code);
  return {
    verdict: {
      ...{ ...verdict, status: found?.status ?? null, message: found?.message ?? null },
      ...{ meaning: found?.meaning ?? null, remedy: found?.remedy ?? null, concerns: found?.concerns ?? null },
    },
    byRules: isOfItsMoment ? byRules : null,
    logged: logged === null ? null : { code: logged.code, same: logged.code === verdict.code },
    request: { method, target, at: new Date(at).toISOString(), environment, remoteAddress: remote.text, tls, route },
    clientAddress: facts?.clientAddress.text ?? null,
    embeddedAddress: facts === null ? null : embeddedIn(facts.clientAddress),
    hops: hops.map(({ address, trusted }) => ({ address: address.text, trusted })),
    key: keyLookup === null || record === null ? null : keyView(record),
    seals: record?.seals ?? null,
    generationProblem: record?.generationProblem ?? null,
    torListDigest,
    rules: rules.map((rule) => ({
      code: rule.code,
      result: rule.result,
      decides: rule.code === code || (rule.code === 'tor_blocked' && code === 'tor_list_unavailable'),
      saw: { ...sawFacts(rule, facts), ...sawRecord(rule, record) },
    })),
  };
}

function keyView({ key, merchant }: StoredRecord) {
  return {
    keyId: key?.keyId ?? null,
    merchantId: key?.merchantId ?? null,
    revision: key?.revision ?? null,
    merchantRevision: merchant?.revision ?? null,
  };
}

function sawFacts({ sawFacts: names }: RuleOutcome, facts: RequestFacts | null): Record<string, unknown> {
  if (facts === null) return {};
  return Object.fromEntries(
    names.flatMap((name): (readonly [string, unknown])[] => {
      if (name === 'clientAddress') return addressEntries(facts.clientAddress);
      return [[name, name === 'now' ? new Date(facts.now).toISOString() : facts[name]]];
    }),
  );
}

function addressEntries(address: IpAddress): (readonly [string, string])[] {
  const embedded = embeddedIn(address);
  return [['clientAddress', address.text], ...(embedded === null ? [] : [['embeddedAddress', embedded] as const])];
}

/**
 * Returns the IPv4 address that is embedded in an IPv6 address; null if none is embedded. The explanation shows the
 * IPv4 address, because the address rules check it too.
 */
function embeddedIn(address: IpAddress): string | null {
  return address.family === 6 ? (address.embedded?.text ?? null) : null;
}

/**
 * Maps each field of a credential to its source: the stored record of the key or the merchant, and a field in that
 * record. A field that is not listed has the same name in the key's record.
 */
const placeOf: Readonly<Partial<Record<keyof Credential, readonly ['key' | 'merchant', string]>>> = {
  keyStatus: ['key', 'status'],
  keyStatusChangedAt: ['key', 'statusChangedAt'],
  merchantStatus: ['merchant', 'status'],
  merchantStatusChangedAt: ['merchant', 'statusChangedAt'],
  goLive: ['merchant', 'goLive'],
  ipAllowlist: ['merchant', 'ipAllowlist'],
  originAllowlist: ['merchant', 'originAllowlist'],
};

function sawRecord({ sawCredential }: RuleOutcome, record: StoredRecord | null): Record<string, unknown> {
  return Object.fromEntries(
    sawCredential.map((name) => {
      const [whose, field] = placeOf[name] ?? ['key', name];
      return [`${whose}.${field}`, record?.[whose]?.[field] ?? null];
    }),
  );
}

/** Formats the explanation as lines of text. */
export function explanationLines(view: ReturnType<typeof explanationView>): string[] {
  const { verdict, logged, request, hops, clientAddress, embeddedAddress, key, torListDigest, rules } = view;
  const { seals, generationProblem, byRules } = view;
  const client =
    embeddedAddress === null
      ? 'the client'
      : `the client; its IPv6 address contains the IPv4 address ${embeddedAddress}`;
  const decisive = rules.findIndex(({ decides }) => decides);
  const { code, status, message, detail, remedy } = verdict;
  return [
    ...recordLines([
      ['request', `${request.method} ${request.target}, at ${request.at}`],
      ['gateway', `${request.environment}, route ${request.route ?? 'none'}`],
      ['key', key === null ? 'not looked up' : keyText(key)],
      ...(seals === null
        ? []
        : [['seals', seals.problem ?? 'valid: the HMACs of the records and of mg:meta match'] as const]),
      ...(generationProblem === null ? [] : [['generation', generationProblem] as const]),
      ...(torListDigest === null ? [] : [['Tor list', torListDigest] as const]),
    ]),
    '',
    ...tableLines(
      ['ADDRESS', 'FROM', 'TRUSTED', ''],
      hops.map(({ address, trusted }, index) => [
        address,
        index === 0 ? `the connection${request.tls ? ', over TLS' : ', plain HTTP'}` : 'X-Forwarded-For',
        trusted ? 'yes' : 'no',
        index === hops.length - 1 && clientAddress === address ? client : '',
      ]),
      { wrap: ['FROM', ''] },
    ),
    ...(rules.length === 0
      ? []
      : [
          '',
          ...tableLines(
            ['RULE', 'RESULT', 'INPUT'],
            rules.map((rule, index) => [
              rule.code,
              resultText(rule, decisive !== -1 && index > decisive),
              sawText(rule.saw),
            ]),
            { wrap: ['INPUT'] },
          ),
        ]),
    '',
    `Verdict: ${code}${status === null ? '' : `, ${status} ${message ?? ''}`}${detail === null ? '' : ` (${detail})`}.`,
    ...(remedy === null ? [] : [`What to do: ${remedy}`]),
    ...(byRules === null
      ? []
      : [
          `This verdict is from the log line. It depended on a temporary condition, such as an outage or a rate limit, or on parts of the request that the log does not record. With the current records, the rules give ${byRules.code}.`,
        ]),
    ...(logged === null || byRules !== null ? [] : [loggedText(logged)]),
  ];
}

function keyText({ keyId, merchantId, revision, merchantRevision }: ReturnType<typeof keyView>): string {
  if (keyId === null) return 'unknown to the key store';
  return (
    `${valueText(keyId)} (revision ${valueText(revision)}) of ${valueText(merchantId)} (revision ` +
    `${valueText(merchantRevision)})`
  );
}

function resultText({ result, decides }: { result: string; decides: boolean }, behind: boolean): string {
  if (decides) return result === 'undecidable' ? 'UNDECIDABLE' : 'FAILS (decisive)';
  if (behind) return result === 'fails' ? 'not evaluated; would fail' : 'not evaluated';
  return result;
}

const mostEntries = 8;

function sawText(saw: Readonly<Record<string, unknown>>): string {
  return Object.entries(saw)
    .map(([name, value]) => `${name}: ${valueText(value)}`)
    .join('; ');
}

function valueText(value: unknown): string {
  if (Array.isArray(value)) {
    const more = value.length - mostEntries;
    return `[${value.slice(0, mostEntries).map(String).join(', ')}${more > 0 ? `, and ${more} more` : ''}]`;
  }
  if (typeof value === 'object' && value !== null) return Object.values(value).map(String).join(' ');
  return String(value);
}

function loggedText({ code, same }: { readonly code: string; readonly same: boolean }): string {
  if (same) return 'The log line has the same verdict.';
  return `The log line has the verdict ${code}. The verdict above can differ, because it is based on the current records and lists, and because the log does not record all headers.`;
}
