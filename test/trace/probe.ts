import { Session, type Debugger, type Profiler } from 'node:inspector';

// Runs inside a gateway, before it: says over the channel to its parent which of its functions ran, and in which order.

/** What the parent asks for. */
export type Question =
  | { readonly ask: 'begin' }
  | { readonly ask: 'taken' }
  | { readonly ask: 'follow'; readonly functions: readonly Place[] }
  | { readonly ask: 'forget' }
  | { readonly ask: 'followed' }
  | { readonly ask: 'unfollow' };

/** A function of a script, by where its text begins. */
export interface Place {
  readonly scriptId: string;
  readonly line: number;
  readonly column: number;
  readonly endLine: number;
  readonly endColumn: number;
}

const session = new Session();
session.connect();
// Before the first module of the gateway: of a function that was compiled earlier it would count less.
post('Profiler.enable');
post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
const way: number[] = [];
(globalThis as { wayOfTrace?: number[] }).wayOfTrace = way;

/** Asks the inspector, which answers at once where it looks at its own thread. */
function post(method: string, parameters: object = {}): unknown {
  let answered: unknown;
  session.post(method as never, parameters as never, (error: Error | null, result: unknown) => {
    if (error !== null) throw new Error(method, { cause: error });
    answered = result;
  });
  return answered;
}

/** Notes a function each time it begins: a breakpoint whose condition is never true stops nothing. */
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

/** The gateway's own code, and that of the plugin which carries the requests. */
function isLookedAt(url: string): boolean {
  return url.includes('/node_modules/') ? /\/@fastify\/(?:http-proxy|reply-from)\//.test(url) : url.includes('/dist/');
}

function answer(question: Question): unknown {
  switch (question.ask) {
    case 'begin':
      post('Profiler.takePreciseCoverage'); // counts from here on
      return null;
    case 'taken': {
      const { result } = post('Profiler.takePreciseCoverage') as Profiler.TakePreciseCoverageReturnType;
      return result.filter(({ url }) => isLookedAt(url));
    }
    case 'follow':
      post('Debugger.enable');
      for (const [index, place] of question.functions.entries()) follow(place, index);
      return null;
    case 'forget': // what ran beside requests
      way.length = 0;
      return null;
    case 'followed':
      return [...new Set(way)];
    case 'unfollow':
      post('Debugger.disable'); // with its breakpoints
      return null;
  }
}

process.on('message', (question: Question) => process.send?.(answer(question)));
process.channel?.unref();
