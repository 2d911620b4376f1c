import { sealLength, treeAlgorithm } from '../telemetry/chain.js';
import Type, { Compile, type Static } from '../typebox/typebox.js';

const hash = Type.String({ pattern: '^[0-9a-f]{64}$' });
const count = Type.Integer({ minimum: 0 });

const checkpointSchema = Type.Object({
  '@timestamp': Type.String({ maxLength: 40 }),
  gateway: Type.Object({
    chain: Type.Object({
      algorithm: Type.Enum(['sha256', 'hmac-sha256', treeAlgorithm]),
      previous: hash,
      lost: count,
      next: Type.Optional(Type.String({ maxLength: 26 })),
      predecessor: Type.Optional(
        Type.Union([
          Type.Null(),
          Type.Object({
            id: Type.Union([Type.Null(), Type.String({ maxLength: 26 })]),
            sequence: Type.Union([Type.Null(), count]),
            hash: Type.Union([Type.Null(), hash]),
            torn: count,
          }),
        ]),
      ),
    }),
  }),
  event: Type.Object({ reason: Type.Enum(['start', 'interval', 'file-end', 'file-start', 'end']) }),
});

const checkpoints = Compile(checkpointSchema);

/** What a checkpoint says of its chain. */
export type Checkpoint = Static<typeof checkpointSchema>['gateway']['chain'] & {
  readonly reason: Static<typeof checkpointSchema>['event']['reason'];
  readonly at: string;
};

/** A line of a chain, taken apart. */
export interface SealedLine {
  /** The chain's id. */
  readonly id: string;
  readonly sequence: number;
  readonly hash: string;
  /** What was hashed. */
  readonly text: Buffer;
  /** Null for the line of a request. */
  readonly checkpoint: Checkpoint | null;
  /** How many requests it stands for; 0 for a checkpoint. */
  readonly requests: number;
}

const head = '{"service":{"ephemeral_id":"';
const idLength = 26;
const headLength = head.length + idLength;
const maxSequenceDigits = 15;
const sealHead = ',"hash":"';
const sealEnd = '"}}';
const sequenceMark = ',"sequence":';
const sequenceForm = /^[1-9]\d{0,14}$/;
/** Within a value it would stand with its quotes escaped. */
const checkpointMark = '"action":"checkpoint"';
/** The end of a line, in which that stands: behind it come the reason, the number and the hash. */
const tailBytes = 160;
const aggregateMark = Buffer.from('"aggregate":{"count":');
const longestCount = 15;

/** Takes a line apart by its places; null where it is no line of a chain. */
export function parseSealedLine(line: Buffer): SealedLine | null {
  const end = line.length - sealLength;
  if (end < headLength + maxSequenceDigits) return null;
  const tail = line.toString('latin1', Math.max(headLength, line.length - tailBytes));
  const seal = tail.slice(-sealLength);
  const at = tail.lastIndexOf(sequenceMark, tail.length - sealLength);
  const digits = tail.slice(at + sequenceMark.length, -sealLength);
  const start = line.toString('latin1', 0, headLength);
  // The digits of the hash are checked when it is compared.
  const isSealed = seal.startsWith(sealHead) && seal.endsWith(sealEnd);
  if (!isSealed || at === -1 || !sequenceForm.test(digits) || !start.startsWith(head)) return null;
  // The event of a checkpoint ends with its reason, that of a shared line with a time, and that of an accepted request with a number.
  const isPlain = tail[at - 1] !== '"';
  const checkpoint = !isPlain && tail.includes(checkpointMark) ? parseCheckpoint(line) : null;
  if (checkpoint === undefined) return null;
  const id = start.slice(head.length);
  const requests = checkpoint !== null ? 0 : isPlain ? 1 : requestsIn(line);
  const hash = seal.slice(sealHead.length, -sealEnd.length);
  return { id, sequence: Number(digits), hash, text: line.subarray(0, end), checkpoint, requests };
}

function requestsIn(line: Buffer): number {
  const at = line.indexOf(aggregateMark);
  if (at === -1) return 1;
  const from = at + aggregateMark.length;
  return Number(/^\d+/.exec(line.toString('latin1', from, from + longestCount))?.[0] ?? 1);
}

/** Whether this may be the beginning of a line that is still being written: no piece of one is a whole JSON object. */
export function mayBeginLine(bytes: Buffer): boolean {
  const text = bytes.toString('utf8');
  if (!text.startsWith(head) && !head.startsWith(text)) return false;
  try {
    JSON.parse(text);
    return false;
  } catch {
    return true;
  }
}

/** Undefined where a line that claims to be a checkpoint is none. */
function parseCheckpoint(line: Buffer): Checkpoint | undefined {
  let value: unknown;
  try {
    value = JSON.parse(line.toString('utf8'));
  } catch {
    return undefined;
  }
  if (!checkpoints.Check(value)) return undefined;
  return { ...value.gateway.chain, reason: value.event.reason, at: value['@timestamp'] };
}
