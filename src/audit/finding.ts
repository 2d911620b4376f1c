/** A position in a log: the file name as given on the command line, and the line number, from 1. */
export interface Position {
  readonly file: string;
  readonly line: number;
}

/** Formats a position as `file:line`. */
export function positionText({ file, line }: Position): string {
  return `${file}:${line}`;
}

/** Formats a count, such as `1 line` or `2 lines`. */
export function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

/** The kinds of defects that a verification of a log can find. */
type FindingKind =
  /** The content or the number of a line does not match its hash or a signed checkpoint. */
  | 'edited'
  /** Lines before this line are missing, or a signed run (the lines of one process in one file) has no lines left. */
  | 'missing'
  /** This line comes after lines that the gateway wrote later. */
  | 'reordered'
  /** This line is a repetition of an earlier line. */
  | 'repeated'
  /** Nothing proves that a gateway wrote this line: it may be inserted, damaged or forged. */
  | 'foreign'
  /** The first lines of a chain are missing, so in this log the chain begins with this line. */
  | 'headless'
  /**
   * The end may be missing. A chain has no end checkpoint or lacks signed lines. Or a file is empty, or ends within a
   * line.
   */
  | 'truncated'
  /** A chain was hashed without the secret of the log. */
  | 'unkeyed'
  /**
   * The lines of a gateway process have no signed checkpoint, or one of their checkpoints is invalid. Or the signature
   * cannot be verified, because the first lines are missing.
   */
  | 'unsigned'
  /**
   * The registry removed or changed a checkpoint that it had confirmed earlier: with a receipt for this checkpoint, or
   * by signing a list that contains it.
   */
  | 'rewritten'
  /** Two signed checkpoints contradict each other. */
  | 'forked';

/** A defect of a log, and its position. */
export interface Finding extends Position {
  kind: FindingKind;
  message: string;
}

/**
 * Maximum number of stored findings per kind. With one limit for all kinds, many findings of one kind would displace
 * those of other kinds.
 */
const mostOfKind = 1_000;

/** Stores the first 1,000 findings (defects) of each kind. */
class FirstOfKind {
  readonly kept: Finding[] = [];
  readonly #counts = new Map<FindingKind, number>();

  add(finding: Finding): void {
    const count = (this.#counts.get(finding.kind) ?? 0) + 1;
    if (count > mostOfKind) return;
    this.#counts.set(finding.kind, count);
    this.kept.push(finding);
  }
}

/**
 * The findings (defects) of a log. Counts all of them and stores the first 1,000 of each kind. An attacker who inserts
 * chains with thousands of gaps could exhaust this limit. So findings from signed checkpoints have a separate limit.
 */
export class Findings {
  readonly #ofLines = new FirstOfKind();
  readonly #ofSignatures = new FirstOfKind();
  count = 0;

  /** The stored findings; those from signatures come first. */
  get kept(): Finding[] {
    return [...this.#ofSignatures.kept, ...this.#ofLines.kept];
  }

  report(finding: Finding): void {
    this.count += 1;
    this.#ofLines.add(finding);
  }

  /** Reports that the log differs from its signed checkpoints. */
  reportSigned(finding: Finding): void {
    this.count += 1;
    this.#ofSignatures.add(finding);
  }
}

/** Formats a range, such as `line 5` or `the 3 lines 5 to 7`. */
export function rangeText({ from, to }: { readonly from: number; readonly to: number }): string {
  return from === to ? `line ${from}` : `the ${to - from + 1} lines ${from} to ${to}`;
}

/** Describes the lines that precede a line in its chain, such as `the 4 lines 1 to 4 of the chain …`. */
export function linesBefore({ sequence, id }: { readonly sequence: number; readonly id: string }): string {
  return sequence === 1
    ? `the beginning of the chain ${id}`
    : `${rangeText({ from: 1, to: sequence - 1 })} of the chain ${id}`;
}
