import { stat } from 'node:fs/promises';

/**
 * What changes when a file is replaced or written: behind a symbolic link too, so that the swap of a link's target shows.
 * @returns null where there is no file that could be looked at
 */
export async function fileStamp(file: string): Promise<string | null> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(file, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join('/');
  } catch {
    return null;
  }
}
