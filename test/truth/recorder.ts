import type { Asked, HistoryEvent } from './history.js';

/** The history of a run. Requests of former rounds are discarded, because there are too many. */
export class History {
  /** All events except requests. */
  readonly events: Exclude<HistoryEvent, Asked>[] = [];
  #requests: Asked[] = [];

  add<Event extends HistoryEvent>(event: Event): Event {
    if (event.kind === 'request') this.#requests.push(event);
    else this.events.push(event);
    return event;
  }

  /** Takes the requests since the last call. */
  takeRequests(): Asked[] {
    const requests = this.#requests;
    this.#requests = [];
    return requests;
  }
}
