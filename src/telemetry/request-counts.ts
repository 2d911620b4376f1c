/** A request as the metrics see it. Codes and configured names alone, so that no caller can make new series. */
export interface RequestLabels {
  /** `accepted`, a denial code or an error code. */
  readonly code: string;
  readonly status: number;
  /** The route's configured path; `none` where there was none. */
  readonly route: string;
}

/** How many requests there were with the same labels. */
interface RequestCount extends RequestLabels {
  count: number;
}

/**
 * Counts requests by their labels. By one after the other: a name made of all of them would have to be made, and hashed,
 * for each request, which costs more than all the look-ups.
 */
export class RequestCounts {
  readonly #counts: RequestCount[] = [];
  readonly #byRoute = new Map<string, Map<string, Map<number, RequestCount>>>();

  add({ route, code, status }: RequestLabels): void {
    const counted = this.#byRoute.get(route)?.get(code)?.get(status);
    if (counted === undefined) this.#addFirst({ route, code, status, count: 1 });
    else counted.count += 1;
  }

  all(): readonly Readonly<RequestCount>[] {
    return this.#counts;
  }

  #addFirst(first: RequestCount): void {
    const byCode = this.#byRoute.get(first.route) ?? new Map<string, Map<number, RequestCount>>();
    const byStatus = byCode.get(first.code) ?? new Map<number, RequestCount>();
    this.#byRoute.set(first.route, byCode.set(first.code, byStatus.set(first.status, first)));
    this.#counts.push(first);
  }
}
