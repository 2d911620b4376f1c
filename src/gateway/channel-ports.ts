/** A message from a gateway to the registry. */
export interface GatewayMessage {
  /** Type of the message, such as `checkpoint`. */
  readonly kind: string;
  readonly body: string;
}

/**
 * Sends messages from a gateway to the registry and returns the replies. The secret for records protects them against
 * reading and modification. Messages and replies may be lost: the sender repeats a message until it gets the reply, so
 * a handler may receive it twice.
 */
export interface RegistryChannel {
  /** @returns the reply. Rejects on timeout */
  send(message: GatewayMessage): Promise<string>;
  close(): Promise<void>;
}

/** The registry's side of the channels from all gateways. */
export interface GatewayInbox {
  /** Start of the current uninterrupted reception in milliseconds since 1970; null while interrupted. */
  readonly workingSince: number | null;
  /**
   * Passes each message to the handler of its kind and sends the handler's reply. If a handler rejects, no reply is
   * sent and the sender repeats the message.
   */
  serve(handlers: Readonly<Record<string, (body: string) => Promise<string>>>): void;
  close(): Promise<void>;
}
