/** A key, and whatever stands behind it up to the next word: one that was made elsewhere may have any of these characters. */
const keyForm = /svc_(?:live|test)_\s*[^\s"']*/gi;
/** The same in JSON, where a backslash belongs to the character behind it. */
const keyInJsonForm = /svc_(?:live|test)_[^\s"'\\]*/gi;
const keyBeginning = /svc_(?:live|test)_/i;
/** Without any of these there is no key, written plainly or encoded; most texts are so. */
const maybeKey = /svc_|%/i;
const encodedOctet = /%[0-9a-f]{2}/gi;
const mostDecodings = 5;

/** Says whether a text holds a key, or what could be the beginning of one. */
export function holdsKey(text: string): boolean {
  return keyBeginning.test(text);
}

/**
 * A text in which nothing is left of an API key but its prefix: callers put keys into paths, user agents and wherever
 * else they do not belong, and a log would keep them. A key that is percent-encoded, wholly, in part or twice, is found
 * as well; then the text is told decoded.
 */
export function maskKeys(text: string): string {
  if (!maybeKey.test(text)) return text;
  const decoded = decode(text);
  return (holdsKey(decoded) ? decoded : text).replace(keyForm, withoutSecret);
}

/** A line of JSON in which no key is left that is written as such; it stays a line of JSON. */
export function maskKeysInJson(line: string): string {
  return line.replace(keyInJsonForm, withoutSecret);
}

function withoutSecret(key: string): string {
  return `${key.slice(0, 'svc_live_'.length)}…`;
}

function decode(text: string): string {
  let decoded = text;
  for (let count = 0; count < mostDecodings && decoded.includes('%'); count += 1) {
    decoded = decoded.replace(encodedOctet, (octet) => String.fromCharCode(parseInt(octet.slice(1), 16)));
  }
  return decoded;
}
