/** A row of a list: its label and note, the beginning of its period, its first request, and where its numbers begin. */
interface ListedRow<Note> {
  readonly label: string | null;
  readonly note: Note | null;
  readonly period: number;
  readonly firstAt: number;
  readonly place: number;
}

const firstRows = 64;
/** How many numbers each row begins with: the period that it is about, and the time of its first request. */
const ownNumbers = 2;

/**
 * Lists of rows, one list for each owner. A row has a period, a label and numbers. Owners are numbers and rows are
 * columns: an object for each row would take four times the memory.
 */
export class RowLists<Note = never> {
  /** All numbers, row after row. Row 0 takes what has no room. */
  #numbers: Float64Array;
  /** By row: the next row of its list; 0 at the end of the list. */
  #next = new Int32Array(firstRows);
  /** By owner: the first row of its list. */
  #heads = new Int32Array(firstRows);
  readonly #labels: (string | null)[] = [null];
  readonly #notes: (Note | null)[] = [null];
  readonly #period: number;
  readonly #width: number;
  readonly #mostOfOwner: number;
  readonly #most: number;
  /** The beginning of the period of the latest request. A remainder of such large numbers is slow. */
  #time = 0;

  /**
   * @param period length of the periods, in milliseconds
   * @param numbers how many numbers a row counts
   * @param mostOfOwner most rows of one owner and period. Further labels share one more row, with the label null.
   * @param most most rows together
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
   * Returns the place of the first number of a row. Adds the row if it is missing. Without room for it, returns the row
   * of all further labels; `noRoom` if there is no room for that one either.
   * @param at the row is about the period in which this time is
   * @param note of a new row; it does not distinguish rows
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

  /** Adds to a number. */
  add(place: number, amount: number): void {
    this.#numbers[place] = (this.#numbers[place] ?? 0) + amount;
  }

  /** Sets a number to at least this value. */
  raise(place: number, least: number): void {
    if ((this.#numbers[place] ?? 0) < least) this.#numbers[place] = least;
  }

  numberAt(place: number): number {
    return this.#numbers[place] ?? 0;
  }

  /** Calls back for each row of an owner, the newest first. */
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

/** The place of the row that takes what has no room. */
export const noRoom = ownNumbers;

function larger<Column extends Int32Array | Float64Array>(former: Column, empty: Column): Column {
  empty.set(former);
  return empty;
}
