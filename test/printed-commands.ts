import { readFileSync } from 'node:fs';

/** A block of commands in a document. */
export interface PrintedBlock {
  /** The heading that it stands under. */
  readonly heading: string;
  /** The last line of text before it, below the same heading; empty where there is none. */
  readonly introduction: string;
  /** As it is printed, to be pasted into a shell. */
  readonly commands: string;
}

/** The blocks of shell commands that a document prints, in their order. */
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
