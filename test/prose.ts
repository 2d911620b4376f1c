/** A sentence of a Markdown document, with the kind of its block. */
export interface Sentence {
  readonly text: string;
  /** Code spans count as one word; a link counts the words of its text. */
  readonly words: number;
  readonly kind: 'heading' | 'prose' | 'cell';
}

/** A sentence ends at `.`, `!` or `?` before a blank and a capital, digit, quote or code, except after these words. */
const abbreviation = /(?:\be\.g|\bi\.e|\bvs|\bcf|\bapprox|\bresp)\.$/;

/**
 * The sentences of a Markdown document, in order. Code blocks and HTML comments have none. Each heading, list item
 * and table cell begins a new sentence; a line break within a paragraph does not.
 */
export function sentencesOf(markdown: string): Sentence[] {
  const sentences: Sentence[] = [];
  let [paragraph, fence]: [string[], string | null] = [[], null];
  const add = (kind: Sentence['kind'], text: string): void => {
    for (const sentence of split(plain(text))) {
      sentences.push({ text: sentence.replaceAll(linkMark, ''), words: wordsOf(sentence), kind });
    }
  };
  const flush = (): void => {
    if (paragraph.length > 0) add('prose', paragraph.join(' '));
    paragraph = [];
  };
  for (const line of markdown.replaceAll(/<!--[^]*?-->/g, '').split('\n')) {
    const [, mark = null] = /^\s*(```+|~~~+)/.exec(line) ?? [];
    if (fence !== null) {
      if (mark?.startsWith(fence) === true) fence = null;
    } else if (mark !== null) {
      flush();
      fence = mark;
    } else if (/^\s*\|/.test(line)) {
      flush();
      if (!/^\s*[|:\s-]+$/.test(line)) for (const cell of cellsOf(line)) add('cell', cell);
    } else if (/^\s*#{1,6} /.test(line)) {
      flush();
      add('heading', line.replace(/^\s*#+ /, ''));
    } else if (line.trim() === '') {
      flush();
    } else {
      if (/^\s*(?:[-*+]|\d+[.)]) /.test(line)) flush();
      paragraph.push(line.replace(/^\s*(?:[-*+]|\d+[.)]|>) /, ''));
    }
  }
  flush();
  return sentences;
}

/** The median number of words, over prose only: headings and table cells are short and would lower it. */
export function medianWords(sentences: readonly Sentence[]): number {
  const counts = sentences
    .filter(({ kind }) => kind === 'prose')
    .map(({ words }) => words)
    .toSorted((a, b) => a - b);
  const middle = Math.floor(counts.length / 2);
  const [low = 0, high = 0] = [counts[middle - (counts.length % 2 === 0 ? 1 : 0)], counts[middle]];
  return (low + high) / 2;
}

/** The cells of a table row. A `|` in a code span or after a backslash does not separate cells. */
function cellsOf(row: string): string[] {
  const parts = row.trim().match(/(?:`[^`]*`|\\.|[^|])+/g) ?? [];
  return parts.map((cell) => cell.trim()).filter((cell) => cell !== '');
}

/**
 * Marks the start of a link while text is split into sentences. A sentence that begins with a link may begin in lower
 * case, as with a link to `docs/…`.
 */
const linkMark = '\u2063';

/** The text as read: a code span as one word, a link or image as its text, without emphasis marks. */
function plain(text: string): string {
  return text
    .replaceAll(/``?([^`]*)``?/g, '`code`')
    .replaceAll(/!?\[([^\]]*)\]\([^)]*\)/g, `${linkMark}$1`)
    .replaceAll(/(?<!\w)[*_]{1,2}(?=\S)|(?<=\S)[*_]{1,2}(?!\w)/g, '')
    .replaceAll(/\s+/g, ' ')
    .trim();
}

function split(text: string): string[] {
  const sentences: string[] = [];
  for (const part of text.split(/(?<=[.!?]["')\]]*) (?=[A-Z0-9`"'([…\u2063])/)) {
    const last = sentences.at(-1);
    if (last !== undefined && abbreviation.test(last)) sentences[sentences.length - 1] = `${last} ${part}`;
    else if (part !== '') sentences.push(part);
  }
  return sentences;
}

function wordsOf(sentence: string): number {
  return sentence.split(' ').filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
}
