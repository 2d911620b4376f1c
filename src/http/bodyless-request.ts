import type { IncomingMessage } from 'node:http';

/** What Node's types do not tell of a request: what has become of its stream, and whether what comes of it is dropped. */
interface WithState {
  _dumped?: boolean;
  readonly _readableState?: Record<'ended' | 'endEmitted' | 'destroyed' | 'closed' | 'closeEmitted', boolean>;
}

/**
 * Says of an HTTP/1.1 request without a body that its stream is over. Node would end it as one that had a body, in four ticks
 * of the event loop, which is 5 % of what a request costs. Later versions of Node do the same where a server asks for it
 * (`optimizeEmptyRequests`); they look into `headers`, which are empty here.
 */
export function endBodyless(request: IncomingMessage): void {
  const withState = request as WithState;
  const { _readableState: state } = withState;
  if (state === undefined) return;
  withState._dumped = true;
  state.ended = true;
  state.endEmitted = true;
  state.destroyed = true;
  state.closed = true;
  state.closeEmitted = true;
}
