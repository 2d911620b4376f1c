import { readFileSync } from 'node:fs';

/** A block of commands in a document. */
export interface PrintedBlock {
  /** The heading above the block. */
  readonly heading: string;
  /** The last line of text between heading and block; empty without such a line. */
  readonly introduction: string;
  /** The text as printed, for pasting into a shell. */
  readonly commands: string;
}

/** The blocks of shell commands in a document, in order. */
export function printedBlocks(document: string): PrintedBlock[] {
  const blocks: PrintedBlock[] = [];
  let [heading, introduction] = ['', ''];
  let commands: string[] | null = null;
  for (const line of readFileSync(document, 'utf8').split('\n')) {
    if (line === '```' && commands !== null) {
      blocks.push({ heading, introduction, commands: commands.join('\n') });
      [commands, introduction] = [null, ''];
    } else if (commands !== null) commands.push(line);
    else if (line === '```sh') commands = [];
    else if (line.startsWith('#')) [heading, introduction] = [line.replace(/^#+ /, ''), ''];
    else if (line !== '') introduction = line;
  }
  return blocks;
}
