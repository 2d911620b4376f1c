import type { Acknowledgement } from '../gateway-records.js';
import type { AcknowledgementText } from '../records-link.js';
import type { Seals } from '../seal.js';
import type { BelievedState } from '../store-state.js';

/** The fields that identify the gateway in an acknowledgement (the newest change that a gateway has applied). */
export type GatewayIdentity = Pick<Acknowledgement, 'instanceId' | 'environment' | 'host' | 'startedAt' | 'version'>;

/**
 * The lifetime of an acknowledgement in Redis, as a multiple of the lifetime of the lease (permission to use the
 * cache). The registry needs the acknowledgement for only one lifetime of the lease after the last heartbeat, and then
 * removes the gateway from its list. The rest is a margin.
 */
const lifetimesOfAcknowledgement = 3;
/**
 * With a registry of an earlier release, an acknowledgement lasts this much longer than the lease. Such a registry
 * waits for a gateway until its acknowledgement expires. So the acknowledgement must last longer than the gateway
 * serves stale records.
 */
const formerMarginMilliseconds = 5_500;

/** Builds an acknowledgement (the newest change that the gateway has applied) in the form in which Redis stores it. */
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
  // A registry of an earlier release waits for a gateway only until its acknowledgement expires. So the acknowledgement
  // must last as long as the gateway serves stale records.
  const former = lifetimeMilliseconds + formerMarginMilliseconds;
  return {
    name,
    text: seals.seal(name, JSON.stringify(acknowledgement)),
    lifetimeMilliseconds: replicas === null ? former : granted,
  };
}
