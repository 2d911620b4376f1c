import { ExitListRefused } from './exit-list-refused.js';

/** @throws ExitListRefused for bytes that are no text */
export function decodeList(bytes: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (error) {
    throw new ExitListRefused('malformed', 'it is not UTF-8 text', { cause: error });
  }
}
