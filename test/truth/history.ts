/** What a change sets: a register, such as `key:key_1` or `status:m_1`, and its new value. */
export interface Write {
  readonly register: string;
  readonly value: string;
}

/** How far the registry says that a change has come. */
export interface Propagation {
  readonly gateways: number | null;
  readonly confirmed: number;
  readonly pending: readonly { readonly instanceId: string; readonly staleUntil: string | null }[];
  readonly projected?: boolean;
}

/**
 * A call that changes something, from before it began to after its response was read; until then it ends at Infinity, has no status,
 * and writes what is known of it. All moments are of one monotonic clock.
 */
export interface Change {
  readonly kind: 'change';
  /** The registry that was asked. */
  readonly party: string;
  readonly action: string;
  readonly begun: number;
  readonly ended: number;
  /** The status of the response; null where there was none. */
  readonly status: number | null;
  readonly propagation: Propagation | null;
  readonly writes: readonly Write[];
}

/** What a gateway said to a request. */
export type Verdict =
  'accepted' | 'unknown' | 'inactive' | 'merchantInactive' | 'notAllowed' | 'unavailable' | 'broken' | 'other';

/** A request with a key, from before its first byte was sent to after its response was read. */
export interface Asked {
  readonly kind: 'request';
  readonly gateway: string;
  readonly keyId: string;
  readonly merchantId: string;
  readonly sent: number;
  readonly answered: number;
  readonly verdict: Verdict;
  readonly status: number | null;
}

/** What was done to the deployment, until its cause was gone. Infinity: it is not gone yet. */
export interface Fault {
  readonly kind: 'fault';
  readonly name: string;
  readonly what: string;
  readonly begun: number;
  ended: number;
  /** The gateways that nothing reached from Redis, and nothing left for it, from `begun` to `ended`. */
  readonly isolated: readonly string[];
}

/** The database was put back to what it was when it was copied. */
export interface Restore {
  readonly kind: 'restore';
  readonly copyBegun: number;
  readonly copyEnded: number;
  readonly begun: number;
  readonly ended: number;
  /** Since when Redis has lost nothing, until the registry had compared the database with it; Infinity where it lost something meanwhile. */
  storeKeptSince: number;
}

/** A process ended, and with it every call that it had begun. */
interface Ended {
  readonly kind: 'ended';
  readonly party: string;
  readonly at: number;
}

/** Something that happened. */
export type HistoryEvent = Change | Asked | Fault | Restore | Ended;

/** Whether the registry said of a change that no gateway honours the former state any more. */
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

/** When an event began. */
export function beginOf(event: HistoryEvent): number {
  if (event.kind === 'request') return event.sent;
  return event.kind === 'ended' ? event.at : event.begun;
}
