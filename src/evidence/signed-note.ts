import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  hash,
  type KeyObject,
  sign,
  verify,
} from 'node:crypto';

/** A note, a key or a proof that does not have its form. The message says why, and repeats nothing of it. */
export class InvalidNote extends Error {
  override readonly name = 'InvalidNote';
}

/** Names keys and logs: an address without a scheme. Blanks and `+` would end it where it stands in a note or in a key. */
const noteName = /^[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}$/;

/** Who has signed: a public key under a name. */
export interface NoteKey {
  readonly name: string;
  /** The first four bytes of a hash of name and key. */
  readonly id: Buffer;
  readonly publicKey: KeyObject;
  /** The 32 bytes of the public key. */
  readonly bytes: Buffer;
}

/** A line of a note that has not been checked: whose it claims to be, and the bytes of the signature. */
interface NoteSignature {
  readonly name: string;
  readonly id: Buffer;
  readonly signature: Buffer;
}

/** A signed note (c2sp.org/signed-note), taken apart. */
export interface SignedNote {
  /** What is signed, up to and with its last line end. */
  readonly text: string;
  readonly signatures: readonly NoteSignature[];
}

/** Ed25519, as notes number the kinds of signatures. */
const ed25519Type = 0x01;
const keyBytes = 32;
const idBytes = 4;
const signatureBytes = 64;
const mostNoteBytes = 16_384;
const base64 = '[A-Za-z0-9+/]+={0,2}';
const keyForm = new RegExp(`^([^+ ]+)\\+([0-9a-f]{8})\\+(${base64})$`);
const signatureForm = new RegExp(`^— ([^+ ]+) (${base64})$`);
/** What stands before the 32 bytes of an Ed25519 public key in DER (RFC 8410). */
const spkiHead = Buffer.from('302a300506032b6570032100', 'hex');

/** Signs notes with an Ed25519 key. */
export class NoteSigner {
  readonly key: NoteKey;
  readonly #privateKey: KeyObject;

  constructor(name: string, privateKey: KeyObject) {
    this.#privateKey = privateKey;
    this.key = keyOf(name, createPublicKey(privateKey));
  }

  /** A signer whose private key exists in this process alone, and ends with it. */
  static inMemory(name: string): NoteSigner {
    return new NoteSigner(name, generateKeyPairSync('ed25519').privateKey);
  }

  /** @throws InvalidNote where the text is not the PEM of an Ed25519 private key */
  static ofPem(name: string, pem: string): NoteSigner {
    let key: KeyObject;
    try {
      key = createPrivateKey(pem);
    } catch {
      throw new InvalidNote('expected a private key in PEM');
    }
    if (key.asymmetricKeyType !== 'ed25519') throw new InvalidNote('expected an Ed25519 private key');
    return new NoteSigner(name, key);
  }

  /** The line with this signer's signature of a text, with its line end. */
  lineFor(text: string): string {
    const { name, id } = this.key;
    return `— ${name} ${Buffer.concat([id, sign(null, Buffer.from(text), this.#privateKey)]).toString('base64')}\n`;
  }
}

/** A key as it is handed on, a C2SP vkey: its name, its id in hex, and its type and bytes in base64. */
export function keyText({ name, id, bytes }: NoteKey): string {
  return `${name}+${id.toString('hex')}+${Buffer.concat([Buffer.of(ed25519Type), bytes]).toString('base64')}`;
}

/** The key that was read last: all checkpoints of a run have the same, and to read it takes longer than to verify with it. */
let latest: { readonly text: string; readonly key: NoteKey } | null = null;

/** @throws InvalidNote */
export function parseKey(text: string): NoteKey {
  if (latest?.text !== text) latest = { text, key: readKey(text) };
  return latest.key;
}

function readKey(text: string): NoteKey {
  const [, name = '', id = '', encoded = ''] = keyForm.exec(text) ?? [];
  if (!noteName.test(name)) throw new InvalidNote('expected a key such as name+1a2b3c4d+AZl/xNyt…');
  const bytes = Buffer.from(encoded, 'base64');
  if (bytes.length !== 1 + keyBytes || bytes[0] !== ed25519Type)
    throw new InvalidNote('expected an Ed25519 public key');
  const key = keyOf(
    name,
    createPublicKey({ key: Buffer.concat([spkiHead, bytes.subarray(1)]), format: 'der', type: 'spki' }),
  );
  if (key.id.toString('hex') !== id) throw new InvalidNote("the key's id is not that of its name and bytes");
  return key;
}

/** Takes a note apart. @throws InvalidNote */
export function parseNote(note: string): SignedNote {
  if (note.length > mostNoteBytes) throw new InvalidNote(`expected a note of at most ${mostNoteBytes} bytes`);
  const end = note.lastIndexOf('\n\n');
  if (end <= 0 || !note.endsWith('\n')) throw new InvalidNote('expected a text, an empty line and signatures');
  const signatures = note
    .slice(end + '\n\n'.length, -1)
    .split('\n')
    .map((line): NoteSignature => {
      const [, name = '', encoded = ''] = signatureForm.exec(line) ?? [];
      const bytes = Buffer.from(encoded, 'base64');
      if (bytes.length <= idBytes) throw new InvalidNote('expected a signature in each line behind the empty one');
      return { name, id: bytes.subarray(0, idBytes), signature: bytes.subarray(idBytes) };
    });
  return { text: note.slice(0, end + 1), signatures };
}

/** Whether a note has a signature of this key, and that signature is right. */
export function isSignedBy({ text, signatures }: SignedNote, key: NoteKey): boolean {
  const claimed = signatures.filter(({ name, id }) => name === key.name && id.equals(key.id));
  return claimed.some(
    ({ signature }) => signature.length === signatureBytes && verify(null, Buffer.from(text), key.publicKey, signature),
  );
}

function keyOf(name: string, publicKey: KeyObject): NoteKey {
  const bytes = publicKey.export({ format: 'der', type: 'spki' }).subarray(-keyBytes);
  const named = Buffer.concat([Buffer.from(`${name}\n`), Buffer.of(ed25519Type), bytes]);
  return { name, id: hash('sha256', named, 'buffer').subarray(0, idBytes), publicKey, bytes };
}
