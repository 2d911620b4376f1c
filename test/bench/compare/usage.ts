import { readdirSync, readFileSync } from 'node:fs';

/** CPU time and memory of a process with all that it has started. */
export interface Usage {
  readonly cpuMicroseconds: number;
  readonly residentMegabytes: number;
}

/** What a process and its children, such as its workers, have used so far, and hold now. */
export function usageOf(pid: number): Usage {
  let [cpuMicroseconds, residentKibibytes] = [0, 0];
  for (const one of withChildren(pid)) {
    cpuMicroseconds += cpuOf(one);
    residentKibibytes += Number(/^VmRSS:\s+(\d+)/m.exec(read(`/proc/${one}/status`))?.[1] ?? 0);
  }
  return { cpuMicroseconds, residentMegabytes: Math.round(residentKibibytes * 0.01024) / 10 };
}

/** CPU time of all threads. utime and stime of `stat` say the same, but in steps of ten milliseconds. */
function cpuOf(pid: number): number {
  const tasks = readdirSync(`/proc/${pid}/task`);
  const nanoseconds = tasks.map((task) => Number(read(`/proc/${pid}/task/${task}/schedstat`).split(' ')[0]));
  if (nanoseconds.some((each) => each > 0)) return nanoseconds.reduce((sum, each) => sum + each, 0) / 1000;
  const fields = fieldsOf(pid);
  return (Number(fields[11]) + Number(fields[12])) * 10_000;
}

/** The fields of `stat` behind the name, which may hold blanks: the state first, then the parent. */
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

/** Empty for what has ended meanwhile. */
function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}
