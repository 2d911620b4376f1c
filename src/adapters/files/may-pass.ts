/** What is not the file's fault: too many are open, or the disk could not be read just then. */
const passing: ReadonlySet<unknown> = new Set(['EMFILE', 'ENFILE', 'EIO', 'EAGAIN', 'EINTR', 'ENOMEM', 'ESTALE']);

/** Whether a file that could not be read is worth another look though it has not changed. */
export function mayPass(error: unknown): boolean {
  const cause: unknown = error instanceof Error ? (error.cause ?? error) : error;
  return passing.has((cause as NodeJS.ErrnoException).code);
}
