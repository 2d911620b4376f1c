import type { GatewayInbox, GatewayMessage, RegistryChannel } from '../../gateway/channel-ports.js';

/** Passes messages from a gateway to a registry in the same process. */
export class MemoryChannel implements RegistryChannel, GatewayInbox {
  #handlers: Parameters<GatewayInbox['serve']>[0] = {};
  readonly workingSince = performance.now();

  serve(handlers: Parameters<GatewayInbox['serve']>[0]): void {
    this.#handlers = handlers;
  }

  send({ kind, body }: GatewayMessage): Promise<string> {
    const handler = Object.hasOwn(this.#handlers, kind) ? this.#handlers[kind] : undefined;
    return handler === undefined ? Promise.reject(new Error('the registry does not reply')) : handler(body);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
