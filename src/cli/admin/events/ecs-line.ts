import type { Action, RegistryEvent } from '../../../registry/events/schema.js';
import { ecsVersion } from '../../../telemetry/chain.js';
import { printable } from '../printable.js';

/** An event of an export. `action` is any text, because a newer registry can have actions unknown to this version. */
export interface ExportedEvent extends Omit<RegistryEvent, 'action'> {
  readonly action: string;
  /** The event's hash in the hash chain of all events; null if the event is not in the chain. */
  readonly hash: string | null;
}

type Kind = readonly [category: 'authentication' | 'configuration' | 'iam', ...types: readonly string[]];

/**
 * The values of the ECS (Elastic Common Schema) fields `event.category` and `event.type` for each action. ECS allows
 * only certain pairs.
 */
const kinds: Readonly<Record<Action, Kind>> = {
  'merchant.created': ['configuration', 'creation'],
  'merchant.changed': ['configuration', 'change'],
  'merchant.imported': ['configuration', 'creation'],
  'merchant.held-back': ['configuration', 'change'],
  'merchant.lifted': ['configuration', 'change'],
  'merchant.read': ['configuration', 'access'],
  'key.created': ['iam', 'creation'],
  'key.revoked': ['iam', 'deletion'],
  'key.reset': ['iam', 'change'],
  'keys.imported': ['iam', 'creation'],
  'key.held-back': ['iam', 'change'],
  'key.lifted': ['iam', 'change'],
  'record.forged': ['configuration', 'change'],
  'administrator.created': ['iam', 'user', 'creation'],
  'administrator.changed': ['iam', 'user', 'change'],
  'token.created': ['iam', 'creation'],
  'token.revoked': ['iam', 'deletion'],
  'approval.requested': ['configuration', 'info'],
  'approval.approved': ['configuration', 'change'],
  'approval.rejected': ['configuration', 'info'],
  'approval.refused': ['configuration', 'info'],
  'approval-rules.changed': ['configuration', 'change'],
  'wallet.created': ['configuration', 'creation'],
  'wallet.funded': ['configuration', 'change'],
  'wallet.withdrawn': ['configuration', 'change'],
  'sign-in.succeeded': ['authentication', 'start'],
  'sign-in.failed': ['authentication', 'start'],
  'sign-in.ended': ['authentication', 'end'],
  'console-link.created': ['iam', 'creation'],
  'attempt.refused': ['configuration', 'access'],
  'instance-key.pinned': ['iam', 'creation'],
  'instance-key.confirmed': ['iam', 'change'],
  'instance-key.ended': ['iam', 'deletion'],
  'events.exported': ['configuration', 'access'],
  'records.exported': ['configuration', 'access'],
  'usage.forgotten': ['configuration', 'deletion'],
  'key.unusual-use': ['iam', 'info'],
  'key.unusual-use-decided': ['iam', 'change'],
};

const kindOfOther: Kind = ['configuration', 'info'];
const failureForm = /\.(?:failed|refused|forged)$/;

/**
 * Formats an event as one line of JSON with the field names of ECS. Values without an ECS field are below `gateway`, as
 * in the access log. `before` and `after` are strings, because a SIEM would create a field for each member of an
 * object.
 */
export function ecsLine(event: ExportedEvent): string {
  const { seq, at, action, actor, merchantId, keyId, before, after, revision, hash } = event;
  const { administratorId, proof, claimed, source, requestId, reason } = event;
  const [category, ...types] = Object.hasOwn(kinds, action) ? kinds[action as Action] : kindOfOther;
  const line = {
    '@timestamp': at,
    ecs: { version: ecsVersion },
    event: {
      id: hash ?? String(seq),
      ...{ dataset: 'gateway.events', kind: 'event', category: [category], type: types, action },
      outcome: failureForm.test(action) ? 'failure' : 'success',
      ...{ reason: reason ?? undefined, sequence: seq, hash: hash ?? undefined },
    },
    user: { id: administratorId ?? undefined, name: actor },
    source: parent('ip', source),
    http: parent('request', parent('id', requestId)),
    organization: parent('id', merchantId === '' ? null : merchantId),
    gateway: {
      key: parent('id', keyId),
      ...{ revision, proof: proof ?? undefined, claimed: claimed ?? undefined },
      before: before === null ? undefined : JSON.stringify(before),
      after: after === null ? undefined : JSON.stringify(after),
    },
  };
  // JSON escapes only some control characters. `printable` escapes the others, and characters that are invisible or
  // change the direction of a text.
  return printable(JSON.stringify(line));
}

/** Returns an object with one member; undefined if the member has no value. */
function parent<Value>(name: string, value: Value | null | undefined): Record<string, Value> | undefined {
  return value === null || value === undefined ? undefined : { [name]: value };
}
