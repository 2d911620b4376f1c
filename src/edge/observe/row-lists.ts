/** A row of a `RowLists` table, as its method `each` reports it. Times are in milliseconds since 1970. */
interface ListedRow<Note> {
  readonly label: string | null;
  readonly note: Note | null;
  /** Start of the hour or day of the row. */
  readonly period: number;
  /** Time of the first request in the row. */
  readonly firstAt: number;
  /** Index of the row's first counter in the table. */
  readonly place: number;
}

const firstRows = 64;
/**
 * Each row begins with this many values, which precede its counters: the start of its hour or day, and the time of its
 * first request.
 */
const ownNumbers = 2;

/**
 * A table of counters. Each row has several counters, and belongs to one owner, one period (an hour or a day) and one
 * label. An owner is a key or a merchant, and is identified by an integer (0 or greater). The rows of an owner form a
 * linked list. The table is stored in columns, because an object for each row would take four times the memory.
 */
export class RowLists<Note = never> {
  /** The values and counters of all rows, row after row. Row 0 counts the requests for which the table has no room. */
  #numbers: Float64Array;
  /** Per row: the index of the owner's next row; 0 at the end of the list. */
  #next = new Int32Array(firstRows);
  /** Per owner (key or merchant): the index of the first row of its list; 0 for an owner without rows. */
  #heads = new Int32Array(firstRows);
  readonly #labels: (string | null)[] = [null];
  readonly #notes: (Note | null)[] = [null];
  readonly #period: number;
  readonly #width: number;
  readonly #mostOfOwner: number;
  readonly #most: number;
  /**
   * Start of the hour or day of the latest request. Cached, because the remainder (`%`) of large numbers is slow to
   * compute.
   */
  #time = 0;

  /**
   * @param period length of the periods (hours or days), in milliseconds
   * @param numbers number of counters in a row
   * @param mostOfOwner maximum number of rows of one owner (key or merchant) in one period. Further labels share one
   *   more row, whose label is null.
   * @param most maximum number of rows of all owners together
   */
  constructor(period: number, numbers: number, mostOfOwner = Infinity, most = Infinity) {
    this.#period = period;
    [this.#width, this.#mostOfOwner, this.#most] = [ownNumbers + numbers, mostOfOwner, most];
    this.#numbers = new Float64Array(firstRows * this.#width);
  }

  get isEmpty(): boolean {
    return this.#labels.length === 1;
  }

  /**
   * Returns the index of a row's first counter. Adds the row if it is missing. If there is no room for the row, falls
   * back to the owner's row with the label null. If there is no room for that row either, returns `noRoom`.
   * @param at a time within the period of the row, in milliseconds since 1970
   * @param note stored when the row is added; ignored if a row with this owner, period and label exists
   */
  rowOf(owner: number, at: number, label: string | null, note: Note | null = null): number {
    if (at < this.#time || at >= this.#time + this.#period) this.#time = at - (at % this.#period);
    const [numbers, width, time] = [this.#numbers, this.#width, this.#time];
    let [length, further] = [0, noRoom];
    for (let row = this.#heads[owner] ?? 0; row !== 0; row = this.#next[row] ?? 0) {
      if (numbers[row * width] !== time) continue;
      if (this.#labels[row] === label) return row * width + ownNumbers;
      if (this.#labels[row] === null) further = row * width + ownNumbers;
      length += 1;
    }
    if (this.#labels.length > this.#most) return further;
    if (length < this.#mostOfOwner) return this.#append(owner, time, at, label, note);
    return further === noRoom ? this.#append(owner, time, at, null, null) : further;
  }

  /** Adds an amount to the counter with this index. */
  add(place: number, amount: number): void {
    this.#numbers[place] = (this.#numbers[place] ?? 0) + amount;
  }

  /** Raises the counter with this index to at least this value. */
  raise(place: number, least: number): void {
    if ((this.#numbers[place] ?? 0) < least) this.#numbers[place] = least;
  }

  numberAt(place: number): number {
    return this.#numbers[place] ?? 0;
  }

  /** Calls back for each row of an owner (key or merchant), the newest first. */
  each(owner: number, callback: (row: ListedRow<Note>) => void): void {
    for (let row = this.#heads[owner] ?? 0; row !== 0; row = this.#next[row] ?? 0) {
      const place = row * this.#width + ownNumbers;
      const [period, firstAt] = [this.numberAt(place - ownNumbers), this.numberAt(place - 1)];
      callback({ label: this.#labels[row] ?? null, note: this.#notes[row] ?? null, period, firstAt, place });
    }
  }

  #append(owner: number, time: number, at: number, label: string | null, note: Note | null): number {
    const row = this.#labels.push(label) - 1;
    this.#notes.push(note);
    const place = row * this.#width;
    if (row >= this.#next.length) {
      this.#next = larger(this.#next, new Int32Array(2 * row));
      this.#numbers = larger(this.#numbers, new Float64Array(2 * place));
    }
    if (owner >= this.#heads.length) this.#heads = larger(this.#heads, new Int32Array(2 * owner));
    this.#next[row] = this.#heads[owner] ?? 0;
    this.#heads[owner] = row;
    this.#numbers[place] = time;
    this.#numbers[place + 1] = at;
    return place + ownNumbers;
  }
}

/** Index of the first counter of row 0. This row counts the requests for which the table has no room. */
export const noRoom = ownNumbers;

function larger<Column extends Int32Array | Float64Array>(former: Column, empty: Column): Column {
  empty.set(former);
  return empty;
}
