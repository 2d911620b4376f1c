import { isInForce, type Asked, type Change, type Fault, type HistoryEvent, type Verdict } from './history.js';
import { Registers } from './registers.js';

/** The rules that a history can violate. */
export type Rule =
  /** A request that began after a change was in force was decided by an older record. */
  | 'old-record'
  /** A request with a valid key, or with a key whose creation was in force, got 401. */
  | 'good-key-refused'
  /** A change was reported as in force while an isolated gateway, unaware of it, still accepted requests. */
  | 'not-counted'
  /** A gateway did not decide, and no fault explains that. */
  | 'undecided'
  /** A change was not in force, and no fault explains that. */
  | 'not-in-force'
  /** A response that no gateway may send. */
  | 'unexpected';

/** A response that no state of the deployment explains. */
export interface Violation {
  readonly rule: Rule;
  readonly at: number;
  readonly text: string;
}

/** Limits for the recovery of a deployment after the end of a fault. */
export interface Limits {
  readonly decideMilliseconds: number;
  readonly inForceMilliseconds: number;
}

/** The violations, and the numbers of requests that could have revealed one. */
export interface Findings {
  readonly violations: readonly Violation[];
  /** Number of requests that began after a change to their key or merchant was in force. */
  readonly afterInForce: number;
  /**
   * Number of the requests in `afterInForce` that must be rejected, because a change that ended their key, merchant or
   * address was in force.
   */
  readonly toBeRefused: number;
}

const explanations: Partial<Record<Verdict, readonly [register: 'key' | 'status' | 'allowlist', value: string][]>> = {
  accepted: [
    ['key', 'active'],
    ['status', 'ACTIVE'],
    ['allowlist', 'open'],
  ],
  unknown: [['key', 'absent']],
  inactive: [['key', 'revoked']],
  merchantInactive: [['status', 'INACTIVE']],
  notAllowed: [['allowlist', 'closed']],
};

/** Finds responses that no state of the deployment explains. Uses only the responses and their times. */
export function check(events: readonly HistoryEvent[], limits: Limits): Findings {
  const registers = new Registers(events);
  const faults = events.filter((event) => event.kind === 'fault');
  const changes = events.filter((event) => event.kind === 'change');
  const requests = events.filter((event) => event.kind === 'request');
  const violations = [
    ...requests.flatMap((request) => wrongVerdict(registers, request) ?? []),
    ...notCounted(faults, changes, requests),
    ...requests.flatMap((request) => undecided(faults, request, limits) ?? []),
    ...changes.flatMap((change) => lateChange(faults, change, limits) ?? []),
  ];
  const afterInForce = requests.filter((request) =>
    registersOf(request).some((register) => registers.inForceBefore(register, request.sent) !== null),
  );
  const toBeRefused = afterInForce.filter((request) => wrongVerdict(registers, { ...request, verdict: 'accepted' }));
  return {
    violations: violations.sort((one, other) => one.at - other.at),
    afterInForce: afterInForce.length,
    toBeRefused: toBeRefused.length,
  };
}

function wrongVerdict(registers: Registers, request: Asked): Violation | null {
  const { gateway, keyId, merchantId, sent, received, verdict, status } = request;
  const observed = `${gateway} said "${verdict}" (${String(status)}) to ${keyId} of ${merchantId}`;
  if (verdict === 'unavailable' || verdict === 'broken') return null;
  const needed = explanations[verdict];
  if (needed === undefined) return { rule: 'unexpected', at: sent, text: observed };
  for (const [kind, value] of needed) {
    const register = `${kind}:${kind === 'key' ? keyId : merchantId}`;
    const possible = registers.possible(register, sent, received);
    if (possible.has(value)) continue;
    const rule = verdict === 'accepted' ? 'old-record' : 'good-key-refused';
    const since = registers.inForceBefore(register, sent);
    const late = since === null ? '' : `, ${Math.round(sent - since)} ms after "in force"`;
    return { rule, at: sent, text: `${observed}, but ${register} can only be ${[...possible].join(' or ')}${late}` };
  }
  return null;
}

function registersOf({ keyId, merchantId }: Asked): string[] {
  return [`key:${keyId}`, `status:${merchantId}`, `allowlist:${merchantId}`];
}

/**
 * Yields a violation for each change that was reported as in force too early. An isolated gateway decides from its cache
 * and cannot acknowledge a change that began during its isolation. So "in force" was untrue if the gateway accepts any
 * later request, with the changed key or another one.
 */
function* notCounted(
  faults: readonly Fault[],
  changes: readonly Change[],
  requests: readonly Asked[],
): Generator<Violation> {
  for (const fault of faults) {
    for (const gateway of fault.isolated) {
      const last = requests.findLast(
        (request) =>
          request.gateway === gateway &&
          request.verdict === 'accepted' &&
          request.sent > fault.begun &&
          request.received < fault.ended,
      );
      if (last === undefined) continue;
      for (const change of changes) {
        if (change.begun < fault.begun || change.ended > last.sent || !isInForce(change)) continue;
        const late = Math.round(last.sent - change.ended);
        const text = `${change.action} was in force on ${change.propagation?.gateways ?? 0}, but ${gateway}, which was cut off, accepted requests for ${late} ms more`;
        yield { rule: 'not-counted', at: change.ended, text };
      }
    }
  }
}

function undecided(
  faults: readonly Fault[],
  { gateway, sent, received, verdict, status }: Asked,
  { decideMilliseconds }: Limits,
): Violation | null {
  if (verdict !== 'unavailable' && verdict !== 'broken') return null;
  if (faults.some(({ begun, ended }) => begun <= received && sent <= ended + decideMilliseconds)) return null;
  const text = `${gateway} did not decide (${String(status)}), ${sinceLast(faults, sent)}`;
  return { rule: 'undecided', at: sent, text };
}

function lateChange(faults: readonly Fault[], change: Change, { inForceMilliseconds }: Limits): Violation | null {
  const { status, begun, ended, party, action, propagation } = change;
  if (ended === Infinity || isInForce(change) || (status !== null && status >= 400 && status < 500)) return null;
  if (faults.some((fault) => fault.begun <= ended && begun <= fault.ended + inForceMilliseconds)) return null;
  const text = `${party} did not bring into force (${String(status)}): ${action} ${JSON.stringify(propagation)}, ${sinceLast(faults, begun)}`;
  return { rule: 'not-in-force', at: begun, text };
}

function sinceLast(faults: readonly Fault[], at: number): string {
  const last = faults.filter(({ ended }) => ended <= at).toSorted((one, other) => other.ended - one.ended)[0];
  return last === undefined ? 'without a fault' : `${Math.round(at - last.ended)} ms after the end of ${last.what}`;
}
