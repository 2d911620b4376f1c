import { once } from 'node:events';
import { type IncomingMessage, request as send } from 'node:http';

/**
 * Sends the head of a POST, and the body only after `act`. Returns the status of the response.
 * @param act waits until the server has authenticated the head, and then changes something
 */
export async function postLateBody(
  url: string,
  headers: Readonly<Record<string, string>>,
  body: string,
  act: () => Promise<void>,
): Promise<number | undefined> {
  const all = { ...headers, 'content-type': 'application/json', 'transfer-encoding': 'chunked' };
  const request = send(url, { method: 'POST', headers: all, agent: false });
  const responded = once(request, 'response') as Promise<[IncomingMessage]>;
  request.flushHeaders();
  await act();
  request.end(body);
  const [response] = await responded;
  response.resume();
  return response.statusCode;
}
