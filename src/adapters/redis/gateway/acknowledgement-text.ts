import type { Acknowledgement } from '../gateway-records.js';
import type { AcknowledgementText } from '../records-link.js';
import type { Seals } from '../seal.js';
import type { BelievedState } from '../store-state.js';

/** The gateway that writes the acknowledgement. */
export type GatewayIdentity = Pick<Acknowledgement, 'instanceId' | 'environment' | 'host' | 'startedAt' | 'version'>;

/**
 * An acknowledgement expires after three lifetimes. The registry needs it for one lifetime without a heartbeat; then it
 * removes the gateway.
 */
const lifetimesOfAcknowledgement = 3;
/** A registry of an earlier release waits for a gateway this much longer than the gateway serves stale records. */
const formerMarginMilliseconds = 5_500;

/** An acknowledgement in the form in which Redis stores it. */
export function acknowledgementText(
  identity: GatewayIdentity,
  { generation, revision, replicas }: BelievedState,
  reported: Required<Pick<Acknowledgement, 'beat' | 'lifetimeMilliseconds' | 'now'>> & Pick<Acknowledgement, 'leaving'>,
  name: string,
  seals: Seals,
): AcknowledgementText {
  const acknowledgement: Acknowledgement = { revision, generation, ...reported, ...identity };
  const { lifetimeMilliseconds, leaving } = reported;
  const granted = lifetimeMilliseconds * (leaving === true ? 1 : lifetimesOfAcknowledgement);
  // A registry of an earlier release does not wait for a gateway whose acknowledgement has expired, so it must not
  // expire while the gateway serves stale records.
  const former = lifetimeMilliseconds + formerMarginMilliseconds;
  return {
    name,
    text: seals.seal(name, JSON.stringify(acknowledgement)),
    lifetimeMilliseconds: replicas === null ? former : granted,
  };
}
