import { Session, type Debugger, type Profiler } from 'node:inspector';

// Preloaded into a gateway process: reports to the parent over IPC which functions ran, and in which order.

/** The requests of the parent. */
export type Question =
  | { readonly ask: 'begin' }
  | { readonly ask: 'taken' }
  | { readonly ask: 'follow'; readonly functions: readonly Place[] }
  | { readonly ask: 'forget' }
  | { readonly ask: 'followed' }
  | { readonly ask: 'unfollow' };

/** A function of a script, identified by its position. */
export interface Place {
  readonly scriptId: string;
  readonly line: number;
  readonly column: number;
  readonly endLine: number;
  readonly endColumn: number;
}

const session = new Session();
session.connect();
// Starts before the gateway's first module, because coverage of functions compiled earlier would be incomplete.
post('Profiler.enable');
post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
const way: number[] = [];
(globalThis as { wayOfTrace?: number[] }).wayOfTrace = way;

const { now } = Date;

/**
 * Stops the clock. Otherwise code that runs at most once per millisecond would run in every request on a slow machine,
 * but not on a fast one.
 */
function stopClock(): void {
  const stoppedAt = now();
  Date.now = () => stoppedAt;
}

/** Calls the inspector and returns its result. It responds synchronously to the thread that it inspects. */
function post(method: string, parameters: object = {}): unknown {
  let reply: unknown;
  session.post(method as never, parameters as never, (error: Error | null, result: unknown) => {
    if (error !== null) throw new Error(method, { cause: error });
    reply = result;
  });
  return reply;
}

/**
 * Records each call of a function. A breakpoint's condition records the call and is always false, so the breakpoint
 * never pauses.
 */
function follow({ scriptId, line, column, endLine, endColumn }: Place, index: number): void {
  const { locations } = post('Debugger.getPossibleBreakpoints', {
    start: { scriptId, lineNumber: line, columnNumber: column },
    end: { scriptId, lineNumber: endLine, columnNumber: endColumn },
    restrictToFunction: true,
  }) as Debugger.GetPossibleBreakpointsReturnType;
  const [location] = locations;
  if (location === undefined) return;
  post('Debugger.setBreakpoint', { location, condition: `(globalThis.wayOfTrace.push(${index}), false)` });
}

/** Whether to trace a script: the gateway's own code, and the proxy plugin's. */
function isTraced(url: string): boolean {
  return url.includes('/node_modules/') ? /\/@fastify\/(?:http-proxy|reply-from)\//.test(url) : url.includes('/dist/');
}

function respond(question: Question): unknown {
  switch (question.ask) {
    case 'begin':
      stopClock();
      post('Profiler.takePreciseCoverage'); // resets the counters
      return null;
    case 'taken': {
      Date.now = now;
      const { result } = post('Profiler.takePreciseCoverage') as Profiler.TakePreciseCoverageReturnType;
      return result.filter(({ url }) => isTraced(url));
    }
    case 'follow':
      post('Debugger.enable');
      for (const [index, place] of question.functions.entries()) follow(place, index);
      return null;
    case 'forget': // discards calls outside of requests
      way.length = 0;
      return null;
    case 'followed':
      return [...new Set(way)];
    case 'unfollow':
      post('Debugger.disable'); // also removes the breakpoints
      return null;
  }
}

process.on('message', (question: Question) => process.send?.(respond(question)));
process.channel?.unref();
