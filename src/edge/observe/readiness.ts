import type { Clock, KeyStore, TorExits } from '../../gateway/ports.js';
import type { LineSink } from '../../telemetry/line-sink.js';
import type { OpenTls } from '../tls/open-tls.js';
import { expiryWarnings } from '../tls/tls-material.js';

/** What the gateway's state depends on. */
interface ReadinessSources {
  readonly keyStore: Pick<KeyStore, 'unavailableReason' | 'startingReason'>;
  readonly torExits: Pick<TorExits, 'unavailableReason' | 'ageWarning'>;
  readonly accessLog: Pick<LineSink, 'problem' | 'checkpoints'>;
  readonly selfCheck?: { warnings(): readonly string[] } | null;
  readonly clock: Clock;
}

/** Whether the gateway is ready for traffic, and what operators should know of that. */
export class Readiness {
  draining = false;
  tls: OpenTls | null = null;
  warmUp: { readonly over: boolean } | null = null;
  readonly #sources: ReadinessSources;
  readonly #goesOnWithoutLog: boolean;

  /** @param onFailure where the operator prefers traffic to its trace, a log that cannot be written stops nothing */
  constructor(sources: ReadinessSources, onFailure: 'refuse' | 'continue') {
    this.#sources = sources;
    this.#goesOnWithoutLog = onFailure === 'continue';
  }

  /** Why requests are refused for the sake of their trace; null while they are not. */
  readonly refusingLogProblem = (): string | null =>
    this.#goesOnWithoutLog ? null : this.#sources.accessLog.problem();

  /** Why the gateway is not ready for traffic; empty while it is. */
  readonly problems = (): string[] => {
    const { keyStore, torExits } = this.#sources;
    const storeProblem = keyStore.unavailableReason() ?? keyStore.startingReason?.() ?? null;
    const torProblem = torExits.unavailableReason();
    const logProblem = this.refusingLogProblem();
    return [
      ...(this.draining ? ['draining'] : []),
      ...(this.warmUp?.over === false ? ['warming up'] : []),
      ...(storeProblem === null ? [] : [`key store: ${storeProblem}`]),
      ...(torProblem === null ? [] : [`Tor exits: ${torProblem}`]),
      ...(logProblem === null ? [] : [`access log: ${logProblem}`]),
    ];
  };

  /** What is wrong, or soon will be, though it keeps nobody from being served. */
  readonly warnings = (): string[] => {
    const { accessLog, clock, torExits } = this.#sources;
    const logProblem = this.#goesOnWithoutLog ? accessLog.problem() : null;
    const tlsProblem = this.tls?.reload.problem ?? null;
    const torWarning = torExits.ageWarning?.() ?? null;
    const checkpointProblem = accessLog.checkpoints?.()?.problem ?? null;
    return [
      ...(tlsProblem === null ? [] : [`the new certificates cannot be used; the ones before stay: ${tlsProblem}`]),
      ...(this.tls === null
        ? []
        : expiryWarnings(this.tls.endpoint.material, clock.now()).map(({ warning }) => warning)),
      ...(torWarning === null ? [] : [`Tor exits: ${torWarning}`]),
      ...(this.#sources.selfCheck?.warnings() ?? []),
      ...(logProblem === null ? [] : [`access log: ${logProblem}; requests are taken all the same`]),
      ...(checkpointProblem === null ? [] : [`checkpoints of the access log cannot be written: ${checkpointProblem}`]),
    ];
  };
}
