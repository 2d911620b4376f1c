import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  hash,
  type KeyObject,
  sign,
  verify,
} from 'node:crypto';

/** Thrown if a note, key or proof is malformed, or a signature is invalid. The message quotes no part of the input. */
export class InvalidNote extends Error {
  override readonly name = 'InvalidNote';
}

/**
 * Matches the names of keys and logs, which are URLs without a scheme. Spaces and `+` are forbidden, because they
 * delimit the name in a note or a key.
 */
const noteName = /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$/;

/**
 * What a key signs: notes, or receipts. A receipt (c2sp.org/tlog-cosignature) states that its signer saw a note at a
 * given time. The signer of receipts is a server called the witness.
 */
export type KeyPurpose = 'note' | 'receipt';

/** The public key of a signer, with the name of the key. */
export interface NoteKey {
  readonly name: string;
  readonly purpose: KeyPurpose;
  /** The first four bytes of a hash over the name, the purpose and the key. Signature lines contain this id. */
  readonly id: Buffer;
  readonly publicKey: KeyObject;
  /** The 32 bytes of the Ed25519 public key. */
  readonly bytes: Buffer;
}

/** A signature line of a note, not yet verified: the name and id of the claimed key, and the signature. */
interface NoteSignature {
  readonly name: string;
  readonly id: Buffer;
  readonly signature: Buffer;
}

/** A parsed signed note (c2sp.org/signed-note). */
export interface SignedNote {
  /** The signed text, including its last line end. */
  readonly text: string;
  readonly signatures: readonly NoteSignature[];
}

/** The bytes that identify the Ed25519 signature types in signed notes. */
const types: Readonly<Record<KeyPurpose, number>> = { note: 0x01, receipt: 0x04 };
const keyBytes = 32;
const idBytes = 4;
const signatureBytes = 64;
const timeBytes = 8;
const mostNoteBytes = 16_384;
const base64 = '[A-Za-z0-9+/]+={0,2}';
const keyForm = new RegExp(`^([^+ ]+)\\+([0-9a-f]{8})\\+(${base64})$`);
const signatureForm = new RegExp(`^— ([^+ ]+) (${base64})$`);
/** The DER bytes that precede a 32-byte Ed25519 public key (RFC 8410). */
const spkiHead = Buffer.from('302a300506032b6570032100', 'hex');

/** Signs notes and receipts with an Ed25519 private key. */
export class NoteSigner {
  readonly key: NoteKey;
  /** The same public key with the purpose `receipt`, which verifies the receipts of this signer. */
  readonly receiptKey: NoteKey;
  readonly #privateKey: KeyObject;

  constructor(name: string, privateKey: KeyObject) {
    if (!noteName.test(name))
      throw new InvalidNote('the name of the key must be 1 to 200 letters, digits and . _ : / -, such as gw.example/a');
    this.#privateKey = privateKey;
    this.key = keyOf(name, 'note', createPublicKey(privateKey));
    this.receiptKey = forPurpose(this.key, 'receipt');
  }

  /** Creates a signer with a new private key that exists only in the memory of this process. */
  static inMemory(name: string): NoteSigner {
    return new NoteSigner(name, generateKeyPairSync('ed25519').privateKey);
  }

  /**
   * Creates a signer from a PEM file's text. @throws InvalidNote if the text is not the PEM of an Ed25519 private key
   */
  static ofPem(name: string, pem: string): NoteSigner {
    let key: KeyObject;
    try {
      key = createPrivateKey(pem);
    } catch {
      throw new InvalidNote('the file is not an unencrypted private key in PEM format');
    }
    if (key.asymmetricKeyType !== 'ed25519') throw new InvalidNote('the private key is not an Ed25519 key');
    return new NoteSigner(name, key);
  }

  /** Signs a text, and returns the signature line with its line end. */
  lineFor(text: string): string {
    return signatureLine(this.key, sign(null, Buffer.from(text), this.#privateKey));
  }

  /**
   * Signs a receipt: the statement that this signer saw the text at this time. Returns the signature line with its line
   * end.
   * @param seconds the time, in seconds since 1970
   */
  receiptFor(text: string, seconds: number): string {
    const time = Buffer.alloc(timeBytes);
    time.writeBigUInt64BE(BigInt(seconds));
    return signatureLine(
      this.receiptKey,
      Buffer.concat([time, sign(null, receiptText(text, seconds), this.#privateKey)]),
    );
  }
}

function signatureLine({ name, id }: NoteKey, signature: Buffer): string {
  return `— ${name} ${Buffer.concat([id, signature]).toString('base64')}\n`;
}

function receiptText(text: string, seconds: number | bigint): Buffer {
  return Buffer.from(`cosignature/v1\ntime ${seconds}\n${text}`);
}

/** Formats a public key as a C2SP vkey: its name, its id in hex, and its type and bytes in base64. */
export function keyText({ name, purpose, id, bytes }: NoteKey): string {
  return `${name}+${id.toString('hex')}+${Buffer.concat([Buffer.of(types[purpose]), bytes]).toString('base64')}`;
}

/** Returns the same public key with another purpose, and so with another id, because the id covers the purpose. */
export function forPurpose({ name, publicKey }: NoteKey, purpose: KeyPurpose): NoteKey {
  return keyOf(name, purpose, publicKey);
}

/**
 * The last parsed key, as a cache. All checkpoints of one gateway process contain the same key, and parsing a key takes
 * longer than verifying a signature.
 */
let latest: { readonly text: string; readonly key: NoteKey } | null = null;

/** Parses a public key in the C2SP vkey format. @throws InvalidNote */
export function parseKey(text: string): NoteKey {
  if (latest?.text !== text) latest = { text, key: readKey(text) };
  return latest.key;
}

function readKey(text: string): NoteKey {
  const [, name = '', id = '', encoded = ''] = keyForm.exec(text) ?? [];
  if (!noteName.test(name))
    throw new InvalidNote('the public key is not of the form NAME+ID+BASE64, such as gw.example/a+1a2b3c4d+AZl/xNyt…');
  const bytes = Buffer.from(encoded, 'base64');
  const purpose = bytes[0] === types.note ? 'note' : 'receipt';
  if (bytes.length !== 1 + keyBytes || bytes[0] !== types[purpose])
    throw new InvalidNote('the public key is not an Ed25519 key');
  const key = keyOf(
    name,
    purpose,
    createPublicKey({ key: Buffer.concat([spkiHead, bytes.subarray(1)]), format: 'der', type: 'spki' }),
  );
  if (key.id.toString('hex') !== id)
    throw new InvalidNote(
      'the public key NAME+ID+BASE64 was changed or is incomplete: its ID does not match NAME and BASE64',
    );
  return key;
}

/** Parses a signed note, but does not verify its signatures. @throws InvalidNote */
export function parseNote(note: string): SignedNote {
  if (note.length > mostNoteBytes) throw new InvalidNote(`the signed note is longer than ${mostNoteBytes} bytes`);
  const end = note.lastIndexOf('\n\n');
  if (end <= 0 || !note.endsWith('\n'))
    throw new InvalidNote(
      'the signed note has no empty line before its signatures, or no line end after them: it may be truncated',
    );
  const signatures = note
    .slice(end + '\n\n'.length, -1)
    .split('\n')
    .map((line): NoteSignature => {
      const [, name = '', encoded = ''] = signatureForm.exec(line) ?? [];
      const bytes = Buffer.from(encoded, 'base64');
      if (bytes.length <= idBytes)
        throw new InvalidNote('a line after the empty line of the signed note is not a signature');
      return { name, id: bytes.subarray(0, idBytes), signature: bytes.subarray(idBytes) };
    });
  return { text: note.slice(0, end + 1), signatures };
}

/** Whether a note has a valid signature of this key. */
export function isSignedBy(note: SignedNote, key: NoteKey): boolean {
  if (key.purpose !== 'note') return false;
  const text = Buffer.from(note.text);
  return claimedBy(note, key).some(
    (signature) => signature.length === signatureBytes && verify(null, text, key.publicKey, signature),
  );
}

/**
 * Returns the time in a receipt of this key: when the witness saw the note, in milliseconds since 1970. Null if the
 * note has no valid receipt of this key.
 */
export function receiptTimeOf(note: SignedNote, key: NoteKey): number | null {
  if (key.purpose !== 'receipt') return null;
  for (const receipt of claimedBy(note, key)) {
    if (receipt.length !== timeBytes + signatureBytes) continue;
    const seconds = receipt.readBigUInt64BE();
    if (verify(null, receiptText(note.text, seconds), key.publicKey, receipt.subarray(timeBytes)))
      return Number(seconds) * 1000;
  }
  return null;
}

function claimedBy({ signatures }: SignedNote, key: NoteKey): Buffer[] {
  const claimed = signatures.filter(({ name, id }) => name === key.name && id.equals(key.id));
  return claimed.map(({ signature }) => signature);
}

function keyOf(name: string, purpose: KeyPurpose, publicKey: KeyObject): NoteKey {
  const bytes = publicKey.export({ format: 'der', type: 'spki' }).subarray(-keyBytes);
  const named = Buffer.concat([Buffer.from(`${name}\n`), Buffer.of(types[purpose]), bytes]);
  return { name, purpose, id: hash('sha256', named, 'buffer').subarray(0, idBytes), publicKey, bytes };
}
