import { stat } from 'node:fs/promises';

/**
 * Returns a string that changes when the file is replaced or written. Follows symbolic links, so the string also
 * changes when a link gets another target.
 * @returns null if the file cannot be inspected
 */
export async function fileStamp(file: string): Promise<string | null> {
  try {
    const { dev, ino, size, mtimeNs, ctimeNs } = await stat(file, { bigint: true });
    return [dev, ino, size, mtimeNs, ctimeNs].join('/');
  } catch {
    return null;
  }
}

/** Errors that are temporary and not caused by the file itself, such as too many open files. */
const transientCodes: ReadonlySet<unknown> = new Set([
  'EMFILE',
  'ENFILE',
  'EIO',
  'EAGAIN',
  'EINTR',
  'ENOMEM',
  'ESTALE',
]);

/** Whether the error is temporary. If so, the file should be read again even if it has not changed. */
export function isTransientFileError(error: unknown): boolean {
  const cause: unknown = error instanceof Error ? (error.cause ?? error) : error;
  return transientCodes.has((cause as NodeJS.ErrnoException).code);
}
