/** What is there at once where it is held in memory, and a promise of it where it has to be asked for. */
export type Eventual<T> = T | Promise<T>;

/**
 * Goes on with a value, at once where it is there: nearly every request's records are held, and an `await` at each step
 * from the request to its decision costs such a request turns and promises for nothing. What fails at once throws.
 */
export function follow<T, U>(value: Eventual<T>, next: (value: T) => Eventual<U>): Eventual<U> {
  return value instanceof Promise ? value.then(next) : next(value);
}
