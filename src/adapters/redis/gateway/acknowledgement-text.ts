import type { Acknowledgement } from '../gateway-records.js';
import type { AcknowledgementText } from '../records-link.js';
import type { Seals } from '../seal.js';
import type { BelievedState } from '../store-state.js';

/**
 * The fields of an acknowledgement that identify the gateway. An acknowledgement states which changes the gateway has
 * applied.
 */
export type GatewayIdentity = Pick<Acknowledgement, 'instanceId' | 'environment' | 'host' | 'startedAt' | 'version'>;

/**
 * How long an acknowledgement stays in Redis, in lifetimes of the lease that permits the gateway to use its cache.
 * After the last heartbeat, the registry needs the acknowledgement for only one lifetime. Then the registry removes the
 * gateway from its list. The other two lifetimes are a margin.
 */
const lifetimesOfAcknowledgement = 3;
/**
 * With a registry of an earlier release, an acknowledgement stays in Redis for this much longer than the lease lasts.
 * That registry waits for a gateway only until the gateway's acknowledgement expires. So the acknowledgement must last
 * longer than the gateway serves stale records.
 */
const formerMarginMilliseconds = 5_500;

/** Builds an acknowledgement in the form in which Redis stores it. */
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
  const former = lifetimeMilliseconds + formerMarginMilliseconds;
  return {
    name,
    text: seals.seal(name, JSON.stringify(acknowledgement)),
    lifetimeMilliseconds: replicas === null ? former : granted,
  };
}
