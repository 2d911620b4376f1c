import http from 'node:http';

/** An HTTP call, timed from before its first sent byte to after its last received byte. */
export interface Called {
  readonly sent: number;
  readonly received: number;
  /** The status of the response; null without a response. */
  readonly status: number | null;
  readonly body: { readonly message?: string; readonly data?: unknown };
  /** Whether the connection was refused, so that nothing was sent. */
  readonly isRefused: boolean;
  /** Whether the call failed because a reused keep-alive connection was closed, perhaps before the call. */
  readonly isStale: boolean;
}

/** The parameters of a call. */
export interface CallOptions {
  readonly port: number;
  readonly method: string;
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly body?: object | undefined;
  readonly agent: http.Agent;
  readonly timeoutMilliseconds: number;
}

/** Makes a call; never rejects. */
export function call(options: CallOptions): Promise<Called> {
  const { port, method, path, headers, body, agent, timeoutMilliseconds } = options;
  return new Promise((resolve) => {
    const content = body === undefined ? {} : { 'content-type': 'application/json' };
    const sent = performance.now();
    const request = http.request({ host: '127.0.0.1', port, method, path, agent, headers: { ...headers, ...content } });
    const late = setTimeout(() => request.destroy(new Error('no response in time')), timeoutMilliseconds);
    const end = (status: number | null, text: string, code = '', isStale = false): void => {
      clearTimeout(late);
      const received = performance.now();
      resolve({ sent, received, status, body: parsed(text), isRefused: code === 'ECONNREFUSED', isStale });
    };
    const failed = (error: NodeJS.ErrnoException): void => {
      end(null, '', error.code, request.reusedSocket && error.code === 'ECONNRESET');
    };
    request.once('error', failed);
    request.once('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.once('error', failed).once('end', () => {
        end(response.statusCode ?? null, text);
      });
    });
    request.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

function parsed(text: string): Called['body'] {
  try {
    return JSON.parse(text) as Called['body'];
  } catch {
    return {};
  }
}
