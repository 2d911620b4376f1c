import type { Clock, TorExits } from '../../gateway/ports.js';
import type { KeyStore } from '../../gateway/key-store.js';
import type { LineSink } from '../../telemetry/line-sink.js';
import type { OpenTls } from '../tls/open-tls.js';
import { expiryWarnings } from '../../tls/tls-material.js';

/** Components of the gateway that determine its readiness. */
interface ReadinessSources {
  readonly keyStore: Pick<KeyStore, 'unavailableReason' | 'startingReason'>;
  readonly torExits: Pick<TorExits, 'unavailableReason' | 'ageWarning'>;
  readonly accessLog: Pick<LineSink, 'problem' | 'checkpoints'>;
  readonly selfCheck?: { warnings(): readonly string[] } | null;
  readonly clock: Clock;
}

/** Determines whether the gateway is ready for traffic, and collects problems and warnings for operators. */
export class Readiness {
  draining = false;
  tls: OpenTls | null = null;
  warmUp: { readonly over: boolean } | null = null;
  readonly #sources: ReadinessSources;
  readonly #goesOnWithoutLog: boolean;
  /**
   * The access log that the checks of a request use. They reject each request while `problem` returns a text. If the
   * configuration accepts requests without a log, `problem` always returns null, so that no request is rejected.
   */
  readonly requiredLog: Pick<LineSink, 'problem'>;

  /**
   * @param onFailure whether requests are rejected (`refuse`) or accepted (`continue`) while the log cannot be written
   */
  constructor(sources: ReadinessSources, onFailure: 'refuse' | 'continue') {
    this.#sources = sources;
    this.#goesOnWithoutLog = onFailure === 'continue';
    this.requiredLog = this.#goesOnWithoutLog ? { problem: () => null } : sources.accessLog;
  }

  /** Returns why the gateway is not ready for traffic; empty while it is ready. */
  readonly problems = (): string[] => {
    const { keyStore, torExits } = this.#sources;
    const storeProblem = keyStore.unavailableReason() ?? keyStore.startingReason?.() ?? null;
    const torProblem = torExits.unavailableReason();
    const logProblem = this.requiredLog.problem();
    const receipts = this.#sources.accessLog.checkpoints?.()?.receipts ?? null;
    const isUnregistered = receipts?.isRequired === true && !receipts.isRegistered;
    return [
      ...(this.draining ? ['draining'] : []),
      ...(this.warmUp?.over === false ? ['warming up'] : []),
      ...(storeProblem === null ? [] : [`key store: ${storeProblem}`]),
      ...(torProblem === null ? [] : [`Tor exits: ${torProblem}`]),
      ...(logProblem === null ? [] : [`access log: ${logProblem}`]),
      ...(isUnregistered
        ? [
            `access log: the registry has not signed a receipt for a checkpoint of this process yet (${receipts.problem ?? 'no checkpoint was sent'})`,
          ]
        : []),
    ];
  };

  /** Returns current and upcoming problems that do not affect readiness. */
  readonly warnings = (): string[] => {
    const { accessLog, clock, torExits } = this.#sources;
    const logProblem = this.#goesOnWithoutLog ? accessLog.problem() : null;
    const tlsProblem = this.tls?.reload.problem ?? null;
    const torWarning = torExits.ageWarning?.() ?? null;
    const checkpoints = accessLog.checkpoints?.() ?? null;
    const [checkpointProblem, receiptProblem] = [checkpoints?.problem ?? null, checkpoints?.receipts?.problem ?? null];
    return [
      ...(tlsProblem === null
        ? []
        : [`the previous certificates stay in use because the new ones cannot be used: ${tlsProblem}`]),
      ...(this.tls === null
        ? []
        : expiryWarnings(this.tls.endpoint.material, clock.now()).map(({ warning }) => warning)),
      ...(torWarning === null ? [] : [`Tor exits: ${torWarning}`]),
      ...(this.#sources.selfCheck?.warnings() ?? []),
      ...(logProblem === null ? [] : [`access log: ${logProblem}; requests are accepted without a log line`]),
      ...(checkpointProblem === null ? [] : [`checkpoints of the access log cannot be written: ${checkpointProblem}`]),
      ...(receiptProblem === null
        ? []
        : [`the registry signs no receipts for the access log, or has lost checkpoints (${receiptProblem})`]),
    ];
  };
}
