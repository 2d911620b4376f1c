/** A value if it is in memory, or a promise if it must be fetched. */
export type Eventual<T> = T | Promise<T>;

/**
 * Continues with a value, synchronously if it is available. The records of nearly every request are cached, and an
 * `await` at each step would cost extra turns and promises. A synchronous failure throws.
 */
export function follow<T, U>(value: Eventual<T>, next: (value: T) => Eventual<U>): Eventual<U> {
  return value instanceof Promise ? value.then(next) : next(value);
}
