import { Buffer } from 'node:buffer';
import type { GatewayMessage } from '../../../gateway/channel-ports.js';
import type { Seals } from '../seal.js';

/** A message in the stream. Its id names the reply. */
export interface StoredMessage extends GatewayMessage {
  readonly id: string;
}

/** The field of a stream entry that contains the message. */
export const messageField = 'message';
/** Limit of the stream's length: more messages than all gateway processes can have pending. */
export const maxMessages = 10_000;
/** Maximum size of a message and of a reply, in bytes. */
export const maxMessageBytes = 65_536;

/** A sealed text has at most so many bytes: quotes and line ends in a body are escaped. */
export const mostTextBytes = 2 * maxMessageBytes;

const idForm = /^[\w-]{1,64}$/;

/** @param name of the stream, which the seal covers */
export function messageText(seals: Seals, name: string, { id, kind, body }: StoredMessage): string {
  return seals.seal(name, JSON.stringify({ id, kind, body }));
}

/** @returns null for a text that is too large, malformed, or not sealed with the secret */
export function readMessage(seals: Seals, name: string, text: string): StoredMessage | null {
  if (Buffer.byteLength(text) > mostTextBytes || !seals.accept(name, text)) return null;
  const { id, kind, body } = fieldsOf(text);
  if (typeof id !== 'string' || !idForm.test(id) || typeof kind !== 'string' || typeof body !== 'string') return null;
  return { id, kind, body };
}

/** @param name of the reply, which the seal covers */
export function replyText(seals: Seals, name: string, body: string): string {
  return seals.seal(name, JSON.stringify({ body }));
}

/** @returns null for a missing or malformed reply, or one that is not sealed with the secret */
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
