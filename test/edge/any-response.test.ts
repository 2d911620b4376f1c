import type { Socket } from 'node:net';
import { setImmediate as turn, setTimeout as wait } from 'node:timers/promises';
import fc from 'fast-check';
import t from 'tap';
import { connect, exchangeBytes, liveKey, parseResponse, requestBytes } from './harness.js';
import { startBareUpstream, startTestGateway } from './harness.js';
import { bytesWritten, cut, places, written } from './service-responses.js';

/** The response that a client received. */
interface Got {
  readonly status: number;
  readonly body: string;
  readonly isWhole: boolean;
}

const badGateway: Got = { status: 502, body: '{"success":false,"message":"Bad gateway","data":null}', isWhole: true };
async function askHttp1(port: number): Promise<Got> {
  const request = requestBytes({ headers: [['x-api-key', liveKey], ['x-forwarded-proto', 'https']] }); // prettier-ignore
  const response = parseResponse(await exchangeBytes(connect(port, null), request));
  const { status, body } = response;
  if (response.header('transfer-encoding') !== 'chunked') {
    return { status, body, isWhole: body.length === Number(response.header('content-length') ?? NaN) };
  }
  let [whole, rest] = ['', body];
  for (;;) {
    const [, size = '', more = ''] = /^([\da-f]+)\r\n([^]*)$/.exec(rest) ?? [];
    const length = Number.parseInt(size, 16);
    if (length === 0 || Number.isNaN(length)) return { status, body: whole, isWhole: length === 0 };
    whole += more.slice(0, length);
    rest = more.slice(length + 2);
  }
}

t.test(
  'whatever a service sends, and wherever it breaks off, clients get that response, a part of it, or 502',
  async (t) => {
    let pieces: readonly Buffer[] = [];
    let end: (socket: Socket) => unknown = () => undefined;
    const url = await startBareUpstream(t, (socket) => {
      const respond = async (): Promise<void> => {
        for (const piece of pieces) {
          socket.write(piece);
          await turn();
        }
        end(socket);
      };
      socket.on('error', () => undefined).on('data', () => void respond());
    });
    const gateway = await startTestGateway(t, { upstreamUrl: url, config: { trustedProxies: ['127.0.0.1'] } });
    const endings = { end: (socket: Socket) => socket.end(), reset: (socket: Socket) => socket.resetAndDestroy() };
    const breakingOff = fc.option(
      fc.record({ place: fc.double({ min: 0, max: 1, noNaN: true }), how: fc.constantFrom('end', 'reset') }),
    );
    await fc.assert(
      fc.asyncProperty(written, places, breakingOff, async (response, places, broken) => {
        const bytes = bytesWritten(response);
        const sent = bytes.subarray(0, Math.floor((broken?.place ?? 1) * bytes.length));
        pieces = cut(sent, places);
        end = broken === null ? (response.framing === 'close' ? endings.end : () => undefined) : endings[broken.how];
        const body = response.pieces.join('');
        gateway.lines.length = 0;
        const got = await askHttp1(gateway.http);
        while (gateway.lines.length === 0) await wait(1);
        const { code } = gateway.lines[0]?.event as { code: string };
        const details = JSON.stringify({ got, code });
        if (code === 'accepted') {
          // A response delimited by the end of the connection cannot be checked for completeness.
          const isAll = got.body === body || (response.framing === 'close' && body.startsWith(got.body));
          if (!got.isWhole || got.status !== response.status || !isAll)
            throw new Error(`logged as accepted, but received otherwise: ${details}`);
        } else {
          const isPart = !got.isWhole && got.status === response.status && body.startsWith(got.body);
          const isBadGateway = JSON.stringify(got) === JSON.stringify(badGateway);
          if (code !== 'upstream_failed' || !(isPart || isBadGateway))
            throw new Error(`neither a part of the response nor 502: ${details}`);
          if (broken === null) throw new Error(`a complete response was refused: ${details}`);
        }
        if (gateway.lines.length > 1) throw new Error('two lines');
      }),
      { numRuns: 400 },
    );
    t.same(gateway.internalErrors, []);
  },
);
