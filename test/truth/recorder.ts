import type { Asked, HistoryEvent } from './history.js';

/** Everything that happened. Requests of former rounds are forgotten: there are too many of them. */
export class History {
  /** Changes, faults, and what else there are few of. */
  readonly events: Exclude<HistoryEvent, Asked>[] = [];
  #requests: Asked[] = [];

  add<Event extends HistoryEvent>(event: Event): Event {
    if (event.kind === 'request') this.#requests.push(event);
    else this.events.push(event);
    return event;
  }

  /** The requests since this was last called. */
  takeRequests(): Asked[] {
    const requests = this.#requests;
    this.#requests = [];
    return requests;
  }
}
