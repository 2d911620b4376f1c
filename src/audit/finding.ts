/** Where something stands: a file as it was named, and a line counted from 1. */
export interface Place {
  readonly file: string;
  readonly line: number;
}

/** `file:line`. */
export function placeText({ file, line }: Place): string {
  return `${file}:${line}`;
}

/** What can be wrong with a log. */
type FindingKind =
  /** A line's bytes are not those that were hashed. */
  | 'edited'
  /** Lines are gone in front of this one. */
  | 'missing'
  /** A line stands behind one that it came before. */
  | 'reordered'
  /** A line stands here once more. */
  | 'repeated'
  /** What stands here was never written by a gateway. */
  | 'foreign'
  /** A chain begins here without its beginning. */
  | 'headless'
  /** A chain ends here without its end. */
  | 'truncated'
  /** A chain was made without the secret. */
  | 'unkeyed'
  /** Nothing was signed of a run, or what should be a signed checkpoint is none. */
  | 'unsigned'
  /** Two things were signed of which one alone can be true. */
  | 'forked';

/** Something that is wrong with a log, and where it shows. */
export interface Finding extends Place {
  kind: FindingKind;
  message: string;
}

/** Of each kind, so that many of one hide none of another. */
const mostOfKind = 1_000;

/** The findings of a log: all are counted, the first of each kind are kept. */
export class Findings {
  readonly kept: Finding[] = [];
  readonly #ofKind = new Map<FindingKind, number>();
  count = 0;

  report(finding: Finding): void {
    this.count += 1;
    const kept = (this.#ofKind.get(finding.kind) ?? 0) + 1;
    if (kept > mostOfKind) return;
    this.#ofKind.set(finding.kind, kept);
    this.kept.push(finding);
  }
}

/** `line 5`, `the 3 lines 5 to 7`. */
export function rangeText({ from, to }: { readonly from: number; readonly to: number }): string {
  return from === to ? `line ${from}` : `the ${to - from + 1} lines ${from} to ${to}`;
}
