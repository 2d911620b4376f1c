import { readdirSync, readFileSync } from 'node:fs';

/** CPU time and memory of a process and its descendants. */
export interface Usage {
  readonly cpuMicroseconds: number;
  readonly residentMegabytes: number;
}

/** CPU time used so far, and resident memory now, of a process and its descendants, e.g. workers. */
export function usageOf(pid: number): Usage {
  let [cpuMicroseconds, residentKibibytes] = [0, 0];
  for (const one of withChildren(pid)) {
    cpuMicroseconds += cpuOf(one);
    residentKibibytes += Number(/^VmRSS:\s+(\d+)/m.exec(read(`/proc/${one}/status`))?.[1] ?? 0);
  }
  return { cpuMicroseconds, residentMegabytes: Math.round(residentKibibytes * 0.01024) / 10 };
}

/**
 * CPU time of all threads in microseconds. Uses `stat` only if `schedstat` has no times, because the times in `stat`
 * have a resolution of only ten milliseconds.
 */
function cpuOf(pid: number): number {
  const tasks = readdirSync(`/proc/${pid}/task`);
  const nanoseconds = tasks.map((task) => Number(read(`/proc/${pid}/task/${task}/schedstat`).split(' ')[0]));
  if (nanoseconds.some((each) => each > 0)) return nanoseconds.reduce((sum, each) => sum + each, 0) / 1000;
  const fields = fieldsOf(pid);
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}

/** The fields of `stat` after the name, which may contain blanks: first the state, then the parent's pid. */
function fieldsOf(pid: number): string[] {
  const text = read(`/proc/${pid}/stat`);
  return text.slice(text.lastIndexOf(')') + 2).split(' ');
}

function withChildren(root: number): number[] {
  const parents = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => [Number(name), Number(fieldsOf(Number(name))[1])] as const);
  const found = [root];
  for (const one of found) found.push(...parents.filter(([, parent]) => parent === one).map(([pid]) => pid));
  return found;
}

/** Reads a file; returns an empty text if the process has ended meanwhile. */
function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
