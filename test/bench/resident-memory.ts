import { readFile } from 'node:fs/promises';

/** Peak (`VmHWM`) or current (`VmRSS`) resident memory of a process in MiB; null where `/proc` does not report it. */
export async function residentMebibytes(pid: number, which: 'VmHWM' | 'VmRSS'): Promise<number | null> {
  const text = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  const kibibytes = new RegExp(`^${which}:\\s+(\\d+) kB$`, 'm').exec(text)?.[1];
  return kibibytes === undefined ? null : Math.round(Number(kibibytes) / 1024);
}
