import Type, { Compile } from '../../../typebox/typebox.js';

/** How many slots a Cluster spreads its names over. */
export const slotCount = 16_384;

/** CRC16-XMODEM, by which a Cluster hashes. */
const crcOfByte = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc;
});

/** The slot of a name; where it has a part in braces, that part alone counts. */
export function slotOf(name: string): number {
  const open = name.indexOf('{');
  const close = open === -1 ? -1 : name.indexOf('}', open);
  const hashed = close > open + 1 ? name.slice(open + 1, close) : name;
  let crc = 0;
  for (const byte of Buffer.from(hashed, 'utf8')) crc = ((crc << 8) & 0xffff) ^ (crcOfByte[(crc >> 8) ^ byte] ?? 0);
  return crc % slotCount;
}

let tags: readonly string[] | null = null;

/** A short text for each slot that hashes to it: in braces, it puts a name into that slot. */
export function slotTags(): readonly string[] {
  if (tags !== null) return tags;
  const found: string[] = [];
  for (let number = 0, left = slotCount; left > 0; number += 1) {
    const tag = number.toString(36);
    const slot = slotOf(tag);
    if (found[slot] !== undefined) continue;
    found[slot] = tag;
    left -= 1;
  }
  tags = found;
  return tags;
}

/** What a slot says of itself: whose records it holds, and that no change up to a revision is missing in it. */
export interface SlotMarker {
  readonly generation: string;
  readonly revision: number;
}

const form = Compile(Type.Object({ generation: Type.String(), revision: Type.Integer({ minimum: 0 }) }));

/** The marker as it is stored. */
export function slotMarkerText({ generation, revision }: SlotMarker): string {
  return JSON.stringify({ generation, revision });
}

/** A stored marker; null where there is none, or one that cannot be used. */
export function parseSlotMarker(text: string | null): SlotMarker | null {
  try {
    const value: unknown = JSON.parse(text ?? 'null');
    return form.Check(value) ? value : null;
  } catch {
    return null;
  }
}

/**
 * Replaces a marker by one who knows what it said. Whoever does not know what a slot held before must not say that nothing
 * is missing in it: its master may have changed, and the new one lack a change.
 */
export const replaceMarker =
  "if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end redis.call('SET', KEYS[1], ARGV[2]) return 1";
