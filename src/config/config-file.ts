import { closeSync, openSync, readSync } from 'node:fs';
import { ConfigError } from './config-error.js';

/** More than anybody writes by hand. */
const maxBytes = 1_048_576;

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'no such file',
  ENOTDIR: 'no such file: a part of its path is not a directory',
  EACCES: 'may not be read: permission denied',
  EISDIR: 'is a directory; expected a YAML file',
};

/**
 * The text of a configuration file.
 * @throws ConfigError if it cannot be read, is too large or is not UTF-8
 */
export function readConfigFile(file: string): string {
  return decode(readBytes(file), file);
}

/** A text that did not come from a file keeps to the same limit. */
export function checkedText(text: string, file: string | null): string {
  if (Buffer.byteLength(text) > maxBytes) throw tooLarge(file);
  return text;
}

function readBytes(file: string): Buffer {
  // Not by the size that the file system tells: a pipe has none.
  const buffer = Buffer.alloc(maxBytes + 1);
  let length = 0;
  try {
    const descriptor = openSync(file, 'r');
    try {
      let count = -1;
      while (count !== 0 && length < buffer.length) {
        count = readSync(descriptor, buffer, length, buffer.length - length, null);
        length += count;
      }
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown reason';
    throw refusal(file, reasons[code] ?? `cannot be read: ${code}`);
  }
  if (length > maxBytes) throw tooLarge(file);
  return buffer.subarray(0, length);
}

function decode(bytes: Buffer, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw refusal(file, 'is not UTF-8 text');
  }
}

function tooLarge(file: string | null): ConfigError {
  return refusal(file, `is larger than ${maxBytes} bytes`);
}

function refusal(file: string | null, message: string): ConfigError {
  return new ConfigError([{ path: '', message }], file);
}
