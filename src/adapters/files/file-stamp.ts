import { stat } from 'node:fs/promises';

/**
 * A stamp that changes when a file is replaced or written. It follows symbolic links, so it also detects a link with a
 * new target.
 * @returns null when the file cannot be inspected
 */
export async function fileStamp(file: string): Promise<string | null> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(file, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join('/');
  } catch {
    return null;
  }
}

/** Errors that are not the file's fault: too many open files, or a disk that was unreadable for a moment. */
const transientCodes: ReadonlySet<unknown> = new Set([
  'EMFILE',
  'ENFILE',
  'EIO',
  'EAGAIN',
  'EINTR',
  'ENOMEM',
  'ESTALE',
]);

/** Whether to read the file again after this error, although it has not changed. */
export function isTransientFileError(error: unknown): boolean {
  const cause: unknown = error instanceof Error ? (error.cause ?? error) : error;
  return transientCodes.has((cause as NodeJS.ErrnoException).code);
}
