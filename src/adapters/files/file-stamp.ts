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

/** What is not the file's fault: too many are open, or the disk could not be read just then. */
const passing: ReadonlySet<unknown> = new Set(['EMFILE', 'ENFILE', 'EIO', 'EAGAIN', 'EINTR', 'ENOMEM', 'ESTALE']);

/** Whether a file that could not be read is worth another look though it has not changed. */
export function mayPass(error: unknown): boolean {
  const cause: unknown = error instanceof Error ? (error.cause ?? error) : error;
  return passing.has((cause as NodeJS.ErrnoException).code);
}
