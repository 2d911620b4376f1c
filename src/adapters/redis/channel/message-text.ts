import { Buffer } from 'node:buffer';
import { type GatewayMessage, maxMessageBytes } from '../../../gateway/channel-ports.js';
import type { Seals } from '../seal.js';

/**
 * A message from a gateway to the registry, as stored in the Redis stream. The registry writes its reply under a Redis
 * key whose name contains the id of the message.
 */
export interface StoredMessage extends GatewayMessage {
  readonly id: string;
}

/** The field of a stream entry that contains the message as JSON. */
export const messageField = 'message';
/** A stream of messages: its Redis key without the prefix, and its maximum number of entries. */
export interface MessageStream {
  readonly name: 'messages' | 'usage';
  readonly maxMessages: number;
}

/**
 * The stream of checkpoints, with which an auditor can detect changes of the audit log. The stream can hold more
 * messages than all gateway processes together can have pending.
 */
export const checkpointStream: MessageStream = { name: 'messages', maxMessages: 10_000 };
/**
 * The stream of request counts. It is separate from the stream of checkpoints for two reasons: counts must not delay
 * checkpoints, and earlier releases of the registry reject messages with counts. The maximum keeps the stream below
 * 32 MB: each message has at most 64 KiB of counts in base64, which JSON does not lengthen.
 */
export const usageStream: MessageStream = { name: 'usage', maxMessages: 400 };
/**
 * Maximum size of a stored message or reply in bytes. It is twice the maximum of a body, because JSON escapes each
 * quote and line end with a second character.
 */
export const mostTextBytes = 2 * maxMessageBytes;

const idForm = /^[\w-]{1,64}$/;

/**
 * Serializes a message and seals it (adds an HMAC).
 * @param name Redis key of the stream. The seal covers this key, so the message is invalid in another stream.
 */
export function messageText(seals: Seals, name: string, { id, kind, body }: StoredMessage): string {
  return seals.seal(name, JSON.stringify({ id, kind, body }));
}

/**
 * Parses a message from the stream.
 * @returns null if the text is too large or malformed, or its seal (HMAC) is invalid
 */
export function readMessage(seals: Seals, name: string, text: string): StoredMessage | null {
  if (Buffer.byteLength(text) > mostTextBytes || !seals.accept(name, text)) return null;
  const { id, kind, body } = fieldsOf(text);
  if (typeof id !== 'string' || !idForm.test(id) || typeof kind !== 'string' || typeof body !== 'string') return null;
  return { id, kind, body };
}

/**
 * Serializes a reply and seals it (adds an HMAC).
 * @param name Redis key of the reply. The seal covers this key, so the text is invalid as the reply to another message.
 */
export function replyText(seals: Seals, name: string, body: string): string {
  return seals.seal(name, JSON.stringify({ body }));
}

/**
 * Parses a reply.
 * @returns null if the reply is missing or malformed, or its seal (HMAC) is invalid
 */
export function readReply(seals: Seals, name: string, text: string | null): string | null {
  if (text === null || !seals.accept(name, text)) return null;
  const { body } = fieldsOf(text);
  return typeof body === 'string' ? body : null;
}

function fieldsOf(text: string): Partial<Record<'id' | 'kind' | 'body', unknown>> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return {};
  }
}
