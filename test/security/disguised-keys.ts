/** The secret part of a key. */
export const secret = 'Nw5RigG5NVB9klCpPCcKcdJvPQgIsFyJeuMKA6w4TCK0hoHEe';
export const key = `svc_live_${secret}`;

/** The encodings that a client may apply to a key before placing it in a request. */
export const disguises: Readonly<Record<string, (key: string) => string>> = {
  unchanged: (text) => text,
  'with its prefix in upper case': (text) => text.replace('svc_live_', 'SVC_LIVE_'),
  'percent-encoded': (text) => text.replaceAll('_', '%5F').replaceAll('N', '%4e'),
  'percent-encoded three times': (text) => text.replaceAll('_', '%25255F'),
  'in base64': (text) => Buffer.from(text).toString('base64'),
  'in base64 after one byte': (text) => Buffer.from(`:${text}`).toString('base64'),
  'in base64url after two bytes': (text) => Buffer.from(`x:${text}`).toString('base64url'),
  'in hexadecimal': (text) => Buffer.from(text).toString('hex'),
  'with HTML character references': (text) => text.replaceAll('_', '&#95;'),
  'with JSON escapes': (text) => text.replaceAll('_', String.raw`\u005f`),
  'with JavaScript escapes': (text) => text.replaceAll('_', String.raw`\x5f`),
  'with %u escapes': (text) => text.replaceAll('_', '%u005f'),
  'split by a space': (text) => `${text.slice(0, 15)} ${text.slice(15)}`,
  'split by a tab': (text) => `${text.slice(0, 15)}\t${text.slice(15)}`,
  'split by a quote': (text) => `${text.slice(0, 15)}"${text.slice(15, 25)}'${text.slice(25)}`,
  'split within its prefix': (text) => `${text.slice(0, 6)} "${text.slice(6)}`,
};

/** Pieces of the secret, plain and encoded, whose appearance in output would leak the secret. */
export function piecesOf(disguise: (key: string) => string): string[] {
  const [plain, changed] = [secret, disguise(key).slice(disguise('svc_live_').length + 4)];
  return [plain, changed].flatMap((text) =>
    Array.from({ length: Math.max(0, text.length - 5) }, (_, at) => text.slice(at, at + 6).toLowerCase()),
  );
}
