import { stat } from 'node:fs/promises';
import { OperatorError } from '../../config/operator-error.js';
import { readOperatorFile } from '../../config/operator-file.js';
import { ExitListRefused } from './exit-list-refused.js';
import { decodeList } from './decode-list.js';
import { maxListBytes } from './source-content.js';
import type { SourceContent } from './source-content.js';

/**
 * Reads a list from a file.
 * @throws ExitListRefused where it cannot be read
 */
export async function readListFile(file: string): Promise<SourceContent> {
  try {
    const bytes = await readOperatorFile(file, 'The Tor exit list', maxListBytes);
    // A file that goes away in between was there when it was read.
    const written = await stat(file).then(
      ({ mtime }) => mtime.toISOString(),
      () => null,
    );
    return { text: decodeList(bytes), etag: null, lastModified: null, writtenAt: written };
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    throw new ExitListRefused('unreadable', error.message.replace(/^The Tor exit list /, '').replace(/\.$/, ''), {
      cause: error,
    });
  }
}
