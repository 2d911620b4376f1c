/** What a member of a `LinkedList` has for the list to use. */
export interface Links<Member> {
  previous: Member | null;
  next: Member | null;
}

/**
 * Members in the order in which they came. Each stands in one list at most, and leaves it from anywhere in constant time. Sets and
 * maps keep this order too, but finding their first member goes past all that have left.
 */
export class LinkedList<Member extends Links<Member>> {
  #first: Member | null = null;
  #last: Member | null = null;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The member that came before all others; null where there is none. */
  get first(): Member | null {
    return this.#first;
  }

  /** Adds a member that stands in no list behind all others. */
  append(member: Member): void {
    member.previous = this.#last;
    member.next = null;
    if (this.#last === null) this.#first = member;
    else this.#last.next = member;
    this.#last = member;
    this.#size += 1;
  }

  /** Removes a member of this list. */
  remove(member: Member): void {
    if (member.previous === null) this.#first = member.next;
    else member.previous.next = member.next;
    if (member.next === null) this.#last = member.previous;
    else member.next.previous = member.previous;
    member.previous = null;
    member.next = null;
    this.#size -= 1;
  }
}
