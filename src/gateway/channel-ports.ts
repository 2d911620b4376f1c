/** Maximum length of the body of a message or a reply, in characters. For ASCII, this is also the number of bytes. */
export const maxMessageBytes = 65_536;

/** A message from a gateway to the registry. */
export interface GatewayMessage {
  /** The type of the message, such as `checkpoint`. It selects the handler. */
  readonly kind: string;
  readonly body: string;
}

/**
 * Sends messages from a gateway to the registry and returns the replies. Each message has an HMAC. The secret for this
 * HMAC also authenticates records. Messages and replies can be lost. The sender repeats a message until it gets a
 * reply, so a handler can receive a message twice.
 */
export interface RegistryChannel {
  /** Sends one message. @returns the reply; rejects on timeout */
  send(message: GatewayMessage): Promise<string>;
  close(): Promise<void>;
}

/** The registry's receiver for the messages of all gateways. */
export interface GatewayInbox {
  /**
   * Since when the receiver has worked without interruption, in `performance.now()` milliseconds. Null during an
   * interruption.
   */
  readonly workingSince: number | null;
  /**
   * Passes each message to the handler of its kind, and sends the handler's result as the reply. If a handler rejects,
   * no reply is sent, so the sender repeats the message.
   */
  serve(handlers: Readonly<Record<string, (body: string) => Promise<string>>>): void;
  close(): Promise<void>;
}
