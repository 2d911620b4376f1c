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
      note: Type.Optional(Type.String({ maxLength: 16_384 })),
      head: Type.Optional(Type.String({ maxLength: 16_384 })),
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

/** The content of a checkpoint line: a log line that is not about requests, but about the hash chain itself. */
export type Checkpoint = Static<typeof checkpointSchema>['gateway']['chain'] & {
  readonly reason: Static<typeof checkpointSchema>['event']['reason'];
  readonly at: string;
};

/** A parsed line of a hash chain. The line is sealed: it ends with its number and its hash. */
export interface SealedLine {
  /** The id of the chain. */
  readonly id: string;
  readonly sequence: number;
  readonly hash: string;
  /** The line as stored in its file, without its line end. Its hash covers all but the last 76 bytes. */
  readonly bytes: Buffer;
  /** What the line states if it is a checkpoint; null if the line is about requests. */
  readonly checkpoint: Checkpoint | null;
  /** How many requests the line is about; 0 for a checkpoint. */
  readonly requests: number;
}

const head = '{"service":{"ephemeral_id":"';
const idLength = 26;
const headLength = head.length + idLength;
const maxSequenceDigits = 15;
const sealHead = ',"hash":"';
const sealEnd = '"}}';
const sequenceMark = ',"sequence":';
const [zero, nine] = [0x30, 0x39];
/**
 * The text that identifies a checkpoint line. It cannot occur within a value, because its quotes would be escaped
 * there.
 */
const checkpointMark = '"action":"checkpoint"';
/** Number of bytes at the end of a line that are parsed as text. They contain the sequence number and the hash. */
const tailBytes = 1 + sequenceMark.length + maxSequenceDigits + sealLength;
/**
 * Number of bytes at the end of a checkpoint line in which `checkpointMark` must occur. Only the reason, the sequence
 * number and the hash follow the mark.
 */
const checkpointTailBytes = 160;
const aggregateMark = Buffer.from('"aggregate":{"count":');
const longestCount = 15;

/**
 * The beginning of the last parsed line and its chain id. They are cached, because most lines belong to the same chain
 * as the line before.
 */
let newest = { start: '', id: '' };

/**
 * Parses a line of a chain by the positions of its members, because parsing its JSON takes longer.
 * @returns null if it is not a line of a chain
 */
export function parseSealedLine(line: Buffer): SealedLine | null {
  const end = line.length - sealLength;
  if (end < headLength + maxSequenceDigits) return null;
  const tail = line.toString('latin1', Math.max(headLength, line.length - tailBytes));
  const start = line.toString('latin1', 0, headLength);
  const sealAt = tail.length - sealLength;
  if (!tail.startsWith(sealHead, sealAt) || !tail.endsWith(sealEnd)) return null;
  if (start !== newest.start && !start.startsWith(head)) return null;
  const sequenceAt = beforeDigits(tail, sealAt);
  const at = sequenceAt - sequenceMark.length;
  if (!tail.startsWith(sequenceMark, at) || !isSequence(tail, sequenceAt, sealAt)) return null;
  // In the line of one request, the member before the sequence number is a number. In checkpoints and in lines shared
  // by several requests, it is a string.
  const isPlain = tail[at - 1] !== '"';
  const checkpoint = !isPlain && hasCheckpointMark(line) ? parseCheckpoint(line) : null;
  if (checkpoint === undefined) return null;
  const requests = checkpoint !== null ? 0 : isPlain ? 1 : requestsIn(line);
  if (start !== newest.start) newest = { start, id: start.slice(head.length) };
  const { id } = newest;
  const sequence = numberIn(tail, sequenceAt, sealAt);
  // The characters of the hash are not validated here: the line is later compared with its computed hash.
  const hash = tail.slice(sealAt + sealHead.length, -sealEnd.length);
  return { id, sequence, hash, bytes: line, checkpoint, requests };
}

function hasCheckpointMark(line: Buffer): boolean {
  return line.toString('latin1', Math.max(headLength, line.length - checkpointTailBytes)).includes(checkpointMark);
}

/**
 * Returns the index of the first digit of the number that ends before `end`. Steps back digit by digit, because
 * `lastIndexOf` with the text before the number would take most of the parsing time.
 */
function beforeDigits(text: string, end: number): number {
  for (let at = end; at > 0; at -= 1) {
    const code = text.charCodeAt(at - 1);
    if (code < zero || code > nine) return at;
  }
  return 0;
}

/** Whether the digits from `from` to `to` are a positive number without leading zeros, of at most 15 digits. */
function isSequence(text: string, from: number, to: number): boolean {
  return to > from && to - from <= maxSequenceDigits && text.charCodeAt(from) !== zero;
}

/** Converts digits to a number. This loop is faster than Number(), which needs a substring. */
function numberIn(text: string, from: number, to: number): number {
  let number = 0;
  for (let at = from; at < to; at += 1) number = 10 * number + text.charCodeAt(at) - zero;
  return number;
}

function requestsIn(line: Buffer): number {
  const at = line.indexOf(aggregateMark);
  if (at === -1) return 1;
  const from = at + aggregateMark.length;
  return Number(/^\d+/.exec(line.toString('latin1', from, from + longestCount))?.[0] ?? 1);
}

/** Whether these bytes could be the beginning of a line whose end is missing; false for complete JSON. */
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

/** Parses a checkpoint line. Returns undefined if it is invalid. */
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
