/** The links to the previous and the next member of a `LinkedList`. Each member of the list must have them. */
export interface Links<Member> {
  previous: Member | null;
  next: Member | null;
}

/**
 * A doubly linked list in insertion order. A member belongs to at most one list and is removed in O(1). A Set or Map
 * keeps insertion order too, but has to skip all deleted entries to find its first member.
 */
export class LinkedList<Member extends Links<Member>> {
  #first: Member | null = null;
  #last: Member | null = null;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** The oldest member; null if the list is empty. */
  get first(): Member | null {
    return this.#first;
  }

  /** Appends a member that belongs to no list. */
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
