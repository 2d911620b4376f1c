/** A value that a change writes. The register names what the value belongs to, e.g. `key:key_1` or `status:m_1`. */
export interface Write {
  readonly register: string;
  readonly value: string;
}

/** The propagation of a change, as the registry reports it. */
export interface Propagation {
  readonly gateways: number | null;
  readonly confirmed: number;
  readonly pending: readonly { readonly instanceId: string; readonly staleUntil: string | null }[];
  readonly projected?: boolean;
}

/**
 * A call that changes something, timed from before its start to after its response was read. Before the response,
 * `ended` is Infinity, `status` is null, and `writes` has only what the call itself names. All times come from one
 * monotonic clock.
 */
export interface Change {
  readonly kind: 'change';
  /** The registry that received the call. */
  readonly party: string;
  readonly action: string;
  readonly begun: number;
  readonly ended: number;
  /** The status of the response; null without a response. */
  readonly status: number | null;
  readonly propagation: Propagation | null;
  readonly writes: readonly Write[];
}

/** The result of a request at a gateway. */
export type Verdict =
  'accepted' | 'unknown' | 'inactive' | 'merchantInactive' | 'notAllowed' | 'unavailable' | 'broken' | 'other';

/** A request with a key, timed from before its first sent byte to after its response was read. */
export interface Asked {
  readonly kind: 'request';
  readonly gateway: string;
  readonly keyId: string;
  readonly merchantId: string;
  readonly sent: number;
  readonly received: number;
  readonly verdict: Verdict;
  readonly status: number | null;
}

/** A fault of the deployment. `ended` is the time when its cause was removed; Infinity: not yet. */
export interface Fault {
  readonly kind: 'fault';
  readonly name: string;
  readonly what: string;
  readonly begun: number;
  ended: number;
  /** The gateways without any traffic from or to Redis between `begun` and `ended`. */
  readonly isolated: readonly string[];
}

/** A restore of the database from a copy. */
export interface Restore {
  readonly kind: 'restore';
  readonly copyBegun: number;
  readonly copyEnded: number;
  readonly begun: number;
  readonly ended: number;
  /** Redis has lost nothing since this time; Infinity: Redis may have lost something in this round of faults. */
  storeKeptSince: number;
}

/** The end of a process, which also ends all its calls. */
interface Ended {
  readonly kind: 'ended';
  readonly party: string;
  readonly at: number;
}

/** An event of a history. */
export type HistoryEvent = Change | Asked | Fault | Restore | Ended;

/** Whether the registry reported that no gateway honours the former state any more. */
export function isInForce({ status, propagation }: Pick<Change, 'status' | 'propagation'>): boolean {
  return (
    status !== null &&
    status < 300 &&
    propagation !== null &&
    propagation.projected !== false &&
    propagation.gateways === propagation.confirmed &&
    propagation.pending.length === 0
  );
}

/** The start time of an event. */
export function beginOf(event: HistoryEvent): number {
  if (event.kind === 'request') return event.sent;
  return event.kind === 'ended' ? event.at : event.begun;
}
