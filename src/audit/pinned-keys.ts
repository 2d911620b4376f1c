import { type ReadCheckpoint, readCheckpoint } from '../evidence/checkpoint.js';
import { InvalidNote, isSignedBy, type NoteKey, parseNote } from '../evidence/signed-note.js';
import type { RawLine } from './log-lines.js';
import type { GivenCheckpoint } from './signed-run.js';
import type { WitnessKeys } from './witnessed-list.js';

/** A public key that verifies the checkpoints of a gateway, and when it is valid, in milliseconds since 1970. */
export interface PinnedKey {
  readonly key: NoteKey;
  readonly from: number;
  readonly to: number;
}

/** How far the clocks of a gateway and of the registry are allowed to differ. */
export const clockToleranceMilliseconds = 60_000;
/**
 * How much too early the time in a receipt can be, because the registry rounds times down to whole seconds. A receipt
 * is the registry's signature under a checkpoint, with the time of arrival.
 */
const receiptRoundingMilliseconds = 1_000;
const noteHead = '{"note":"';

/**
 * Parses a checkpoint, and verifies its signature and the validity period of the public key. The signature is accepted
 * in these cases:
 * 1. All given keys with the checkpoint's name were valid at the time in the checkpoint.
 * 2. The signing key was valid when the registry received the checkpoint, as the registry's receipt (signature with a
 *    time) states.
 * 3. There is no receipt, and the signing key was valid at the time in the checkpoint.
 * @throws InvalidNote
 */
export function readPinned(
  note: string,
  keys: readonly PinnedKey[],
  witness: WitnessKeys | null = null,
): ReadCheckpoint {
  const checkpoint = readCheckpoint(
    note,
    keys.map(({ key }) => key),
  );
  const { name, at } = checkpoint;
  const ofName = keys.filter(({ key }) => key.name === name);
  if (ofName.every(({ from, to }) => from <= at && at <= to)) return checkpoint;
  const signed = parseNote(note);
  const receivedAt = witness?.receiptTimeOf(signed) ?? null;
  // The signature must verify with a key that was valid at the time of the receipt, or of the checkpoint if there is no
  // receipt. Otherwise, signatures of an expired and perhaps stolen key would be accepted while its successor is valid.
  const isValid = ({ from, to }: PinnedKey): boolean =>
    receivedAt === null
      ? from - clockToleranceMilliseconds <= at && at <= to
      : from - receiptRoundingMilliseconds <= receivedAt && receivedAt <= to;
  if (!ofName.some((pinned) => isValid(pinned) && isSignedBy(signed, pinned.key)))
    throw new InvalidNote(
      receivedAt === null
        ? 'the public key of the signature was not valid at the time of the checkpoint'
        : 'the public key of the signature was not valid when the registry received the checkpoint',
    );
  return checkpoint;
}

/**
 * Parses a line of a checkpoint file.
 * @returns null for an empty line, and for the incomplete line of a process that was killed
 * @throws InvalidNote
 */
export function readGivenCheckpoint(
  { bytes, ...place }: RawLine,
  keys: readonly PinnedKey[],
  witness: WitnessKeys | null,
): GivenCheckpoint | null {
  const text = bytes?.toString('utf8').trim() ?? '?';
  if (text === '') return null;
  let note: unknown;
  try {
    ({ note } = JSON.parse(text) as { readonly note?: unknown });
  } catch {
    if (text.startsWith(noteHead) || noteHead.startsWith(text)) return null;
  }
  if (typeof note !== 'string') throw new InvalidNote('the line is not of the form {"note":"…"}');
  return { ...readPinned(note, keys, witness), place: { file: place.file, line: place.number }, note };
}
