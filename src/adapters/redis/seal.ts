import { createHmac, createSecretKey, type KeyObject, timingSafeEqual } from 'node:crypto';
import { MalformedRecord, type RecordProblem } from '../../gateway/records.js';

/**
 * How a text is sealed: by the secret that seals now, by another one that is accepted as well, by none of them, or not at all.
 * Without a secret every seal is another one's.
 */
export type SealState = 'current' | 'accepted' | 'other' | 'none';

/** The seal is the last member of a JSON object: `,"seal":"<base64url of 32 bytes>"}`. */
const sealForm = /,"seal":"([A-Za-z0-9_-]{43})"\}$/;
const lengthOfSeal = ',"seal":""}'.length + 43;
/** What the id of a secret is made of. It is no record: every record's name and text have a line end between them. */
const idSubject = 'id';

/**
 * The secrets that prove that a text was written by somebody who has one: the registry, for records; a gateway, for what it
 * acknowledges. The name is sealed too, so that a text says nothing under another name.
 */
export class Seals {
  readonly #secrets: readonly KeyObject[];
  /** Names of the secrets that say nothing about them, that of the one which seals first; none without a secret. */
  readonly ids: readonly string[];

  /** @param secrets the first one seals, all are accepted; none: nothing is sealed, and every text is accepted */
  constructor(secrets: readonly Buffer[]) {
    this.#secrets = secrets.map((secret) => createSecretKey(secret));
    this.ids = this.#secrets.map((secret) => createHmac('sha256', secret).update(idSubject).digest('hex').slice(0, 8));
  }

  /** Whether texts are sealed, and only sealed ones believed. */
  get areOn(): boolean {
    return this.#secrets.length > 0;
  }

  /** Seals a text, where there is a secret. @param text a JSON object with a member, and none named `seal` */
  seal(name: string, text: string): string {
    const [secret] = this.#secrets;
    if (secret === undefined) return text;
    return `${text.slice(0, -1)},"seal":"${sealOf(secret, name, text)}"}`;
  }

  /** How a text is sealed. It is looked at before anything in it is parsed. */
  stateOf(name: string, sealed: string): SealState {
    const seal = sealForm.exec(sealed.slice(-lengthOfSeal))?.[1];
    if (seal === undefined) return 'none';
    const text = withoutSeal(sealed);
    const given = Buffer.from(seal, 'latin1');
    // Each is compared, whichever fits: the time says nothing about that.
    const fits = this.#secrets.map((secret) =>
      timingSafeEqual(given, Buffer.from(sealOf(secret, name, text), 'latin1')),
    );
    if (fits[0] === true) return 'current';
    return fits.includes(true) ? 'accepted' : 'other';
  }

  /** Whether a text may be believed: where there is a secret, only one that is sealed. */
  accept(name: string, text: string): boolean {
    return !this.areOn || isProof(this.stateOf(name, text));
  }

  /** @throws MalformedRecord for a text that may not be believed */
  require(name: string, text: string): void {
    if (!this.areOn) return;
    const state = this.stateOf(name, text);
    if (isProof(state)) return;
    if (state === 'none') throw new MalformedRecord('the record is not sealed', { reason: 'unsealed' });
    throw new MalformedRecord('the seal of the record is of another secret, name or text', { reason: 'wrong_seal' });
  }
}

/** Neither seals nor asks for seals. */
export const noSeals = new Seals([]);

/** Whether somebody with a secret has written it. */
export function isProof(state: SealState): boolean {
  return state === 'current' || state === 'accepted';
}

/** A text as it was before it was sealed; one without a seal as it is. */
export function withoutSeal(text: string): string {
  return sealForm.test(text.slice(-lengthOfSeal)) ? `${text.slice(0, -lengthOfSeal)}}` : text;
}

function sealOf(secret: KeyObject, name: string, text: string): string {
  return createHmac('sha256', secret).update(`${name}\n${text}`).digest('base64url');
}

/** Told of a record that cannot be used: its name, what is wrong with it, and of which kind that is. */
export type OnMalformed = (storeKey: string, problem: string, reason: RecordProblem) => void;

/** A gateway's seals. Of what it reads in each beat it tells once that it refuses it, and again when that has changed. */
export class SealCheck {
  readonly seals: Seals;
  readonly #onMalformed: OnMalformed;
  readonly #refused = new Map<string, string>();

  constructor(seals: Seals, onMalformed: OnMalformed) {
    [this.seals, this.#onMalformed] = [seals, onMalformed];
  }

  /** @throws MalformedRecord for a text that may not be believed */
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

  /** A text that may be believed; null for any other. */
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

/** Believes every text, and seals none. */
export const noCheck = new SealCheck(noSeals, () => undefined);
