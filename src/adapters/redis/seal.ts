import { createHmac, createSecretKey, type KeyObject, timingSafeEqual } from 'node:crypto';
import { MalformedRecord, type RecordProblem } from '../../gateway/records.js';

/**
 * Which secret made the seal (HMAC) of a text.
 * - `current`: the current secret
 * - `accepted`: another accepted secret
 * - `other`: an unknown secret. Without a configured secret, every seal is `other`.
 * - `none`: the text has no seal
 */
export type SealState = 'current' | 'accepted' | 'other' | 'none';

/** Matches the seal (HMAC): the last member of a JSON object, `,"seal":"<base64url of 32 bytes>"}`. */
const sealForm = /,"seal":"([A-Za-z0-9_-]{43})"\}$/;
const lengthOfSeal = ',"seal":""}'.length + 43;
/**
 * The HMAC input from which the id of a secret is computed. The input for a record consists of Redis key, line feed and
 * text. The value `id` contains no line feed, so it differs from the input for any record.
 */
const idSubject = 'id';

/**
 * Seals texts with HMAC-SHA256. A seal proves that a holder of the secret (the registry or a gateway) wrote the text.
 * It also covers the Redis key, so a copy of the text under another Redis key is invalid.
 */
export class Seals {
  readonly #secrets: readonly KeyObject[];
  /**
   * One id for each secret. An id does not reveal its secret. The id of the current secret comes first. Empty if no
   * secret is configured.
   */
  readonly ids: readonly string[];

  /**
   * @param secrets the first secret makes seals (HMACs), and every secret verifies them; if the list is empty, nothing
   * is sealed and every text is accepted
   */
  constructor(secrets: readonly Buffer[]) {
    this.#secrets = secrets.map((secret) => createSecretKey(secret));
    this.ids = this.#secrets.map((secret) => createHmac('sha256', secret).update(idSubject).digest('hex').slice(0, 8));
  }

  /** Whether a secret is configured. If so, texts are sealed (HMAC), and a text without a valid seal is rejected. */
  get areOn(): boolean {
    return this.#secrets.length > 0;
  }

  /**
   * Adds a seal (HMAC) to a text, if a secret is configured.
   * @param text a JSON object with at least one member, and no member named `seal`
   */
  seal(name: string, text: string): string {
    const [secret] = this.#secrets;
    if (secret === undefined) return text;
    return `${text.slice(0, -1)},"seal":"${sealOf(secret, name, text)}"}`;
  }

  /** Returns which secret made the seal (HMAC) of a text, if any. Expects the exact stored text, as sealed. */
  stateOf(name: string, sealed: string): SealState {
    const seal = sealForm.exec(sealed.slice(-lengthOfSeal))?.[1];
    if (seal === undefined) return 'none';
    const text = withoutSeal(sealed);
    const given = Buffer.from(seal, 'latin1');
    // Compare with every secret, so that the duration does not reveal which secret matches (timing attack).
    const fits = this.#secrets.map((secret) =>
      timingSafeEqual(given, Buffer.from(sealOf(secret, name, text), 'latin1')),
    );
    if (fits[0] === true) return 'current';
    return fits.includes(true) ? 'accepted' : 'other';
  }

  /** Whether a text can be used: it has a valid seal (HMAC), or no secret is configured. */
  accept(name: string, text: string): boolean {
    return !this.areOn || isProof(this.stateOf(name, text));
  }

  /**
   * Verifies the seal (HMAC) of a text.
   * @throws MalformedRecord if a secret is configured and the text has no valid seal
   */
  require(name: string, text: string): void {
    if (!this.areOn) return;
    const state = this.stateOf(name, text);
    if (isProof(state)) return;
    if (state === 'none') throw new MalformedRecord('the record is not sealed', { reason: 'unsealed' });
    throw new MalformedRecord(
      'the seal of the record is invalid: it was made with another secret, or the record was changed or renamed',
      {
        reason: 'wrong_seal',
      },
    );
  }
}

/** An instance that adds no seals (HMACs) and accepts every text. */
export const noSeals = new Seals([]);

/** Whether the seal (HMAC) was made with an accepted secret. */
export function isProof(state: SealState): boolean {
  return state === 'current' || state === 'accepted';
}

/** Returns the text without its seal (HMAC); unchanged if it is not sealed. */
export function withoutSeal(text: string): string {
  return sealForm.test(text.slice(-lengthOfSeal)) ? `${text.slice(0, -lengthOfSeal)}}` : text;
}

function sealOf(secret: KeyObject, name: string, text: string): string {
  return createHmac('sha256', secret).update(`${name}\n${text}`).digest('base64url');
}

/** Called for a record that cannot be used, with its Redis key, the problem in words, and the kind of problem. */
export type OnMalformed = (storeKey: string, problem: string, reason: RecordProblem) => void;

/**
 * Verifies seals (HMACs) for a gateway. A gateway reads some texts in each heartbeat, so a rejected text is reported
 * again only after the text has changed.
 */
export class SealCheck {
  readonly seals: Seals;
  readonly #onMalformed: OnMalformed;
  readonly #refused = new Map<string, string>();

  constructor(seals: Seals, onMalformed: OnMalformed) {
    [this.seals, this.#onMalformed] = [seals, onMalformed];
  }

  /**
   * Verifies the seal (HMAC) of a text, and reports a rejected text.
   * @throws MalformedRecord if a secret is configured and the text has no valid seal
   */
  require(name: string, text: string): void {
    try {
      this.seals.require(name, text);
      this.#refused.delete(name);
    } catch (error) {
      if (error instanceof MalformedRecord && this.#refused.get(name) !== text) {
        this.#refused.set(name, text);
        this.#onMalformed(name, error.message, error.reason);
      }
      throw error;
    }
  }

  /**
   * Returns the text if it can be used. Returns null if the text is missing, or if a secret is configured and the text
   * has no valid seal.
   */
  opened(name: string, text: string | null): string | null {
    try {
      if (text !== null) this.require(name, text);
      return text;
    } catch (error) {
      if (error instanceof MalformedRecord) return null;
      throw error;
    }
  }
}
