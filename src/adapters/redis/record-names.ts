/** The names of the contract's records, below a prefix that several deployments on one Redis keep apart by. */
export class RecordNames {
  readonly #prefix: string;
  readonly meta: string;
  readonly revision: string;

  constructor(prefix: string) {
    this.#prefix = prefix;
    this.meta = `${prefix}meta`;
    this.revision = `${prefix}revision`;
  }

  key(lookupId: string): string {
    return `${this.#prefix}key:${lookupId}`;
  }

  merchant(merchantId: string): string {
    return `${this.#prefix}merchant:${merchantId}`;
  }

  gateway(instanceId: string): string {
    return `${this.#prefix}gateway:${instanceId}`;
  }

  /** Prefixes of everything whose change a gateway has to hear of; not of what gateways write themselves. */
  get tracked(): readonly string[] {
    return [this.key(''), this.merchant(''), this.meta, this.revision];
  }
}
