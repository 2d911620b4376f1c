/** A value that is in memory, or a promise of a value that must be fetched first. */
export type Eventual<T> = T | Promise<T>;

/**
 * Calls `next` with a value: synchronously if the value is in memory, otherwise when its promise resolves. This saves
 * the cost of an `await` at each step, because nearly every request finds its records in the cache. Errors of a
 * synchronous `next` are thrown.
 */
export function follow<T, U>(value: Eventual<T>, next: (value: T) => Eventual<U>): Eventual<U> {
  return value instanceof Promise ? value.then(next) : next(value);
}
