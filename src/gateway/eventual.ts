/** A value that is in memory, or a promise of a value that must be fetched first. */
export type Eventual<T> = T | Promise<T>;

/**
 * Calls `next` with a value. If the value is in memory, the call is synchronous, and errors of `next` are thrown.
 * Otherwise `next` is called when the promise resolves. Nearly every request finds its records in the cache, so the
 * synchronous call saves the cost of an `await` at each step.
 */
export function follow<T, U>(value: Eventual<T>, next: (value: T) => Eventual<U>): Eventual<U> {
  return value instanceof Promise ? value.then(next) : next(value);
}
