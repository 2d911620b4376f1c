import Type, { Compile } from '../../../typebox/typebox.js';

/** Number of hash slots in a Cluster. */
export const slotCount = 16_384;

/** Lookup table for CRC16-XMODEM, the checksum of Redis Cluster. */
const crcOfByte = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit += 1) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc;
});

/** Returns the hash slot of a Redis key. If the key contains a hash tag in braces, only the tag is hashed. */
export function slotOf(name: string): number {
  const open = name.indexOf('{');
  const close = open === -1 ? -1 : name.indexOf('}', open);
  const hashed = close > open + 1 ? name.slice(open + 1, close) : name;
  let crc = 0;
  for (const byte of Buffer.from(hashed, 'utf8')) crc = ((crc << 8) & 0xffff) ^ (crcOfByte[(crc >> 8) ^ byte] ?? 0);
  return crc % slotCount;
}

let tags: readonly string[] | null = null;

/** Returns a short hash tag for each slot. A Redis key that contains `{tag}` belongs to that slot. */
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

/**
 * A marker, which is stored in each slot. It states that the slot has every change up to this revision of this
 * generation. A generation is one unbroken history of changes.
 */
export interface SlotMarker {
  readonly generation: string;
  readonly revision: number;
}

const form = Compile(Type.Object({ generation: Type.String(), revision: Type.Integer({ minimum: 0 }) }));

/** Serializes the marker of a slot as JSON, the form in which Redis stores it. */
export function slotMarkerText({ generation, revision }: SlotMarker): string {
  return JSON.stringify({ generation, revision });
}

/** Parses the stored marker of a slot. Returns null if the marker is missing or invalid. */
export function parseSlotMarker(text: string | null): SlotMarker | null {
  try {
    const value: unknown = JSON.parse(text ?? 'null');
    return form.Check(value) ? value : null;
  } catch {
    return null;
  }
}

/**
 * Lua: replaces a slot's marker only if the stored marker is the expected one. After a failover, the stored marker can
 * be older, because the new master lacks changes. The slot must then not be marked as complete. KEYS: the marker. ARGV:
 * the expected marker, or an empty text if none is expected; the new marker. Returns 1 if the marker was replaced,
 * otherwise 0.
 */
export const replaceMarker =
  "if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end redis.call('SET', KEYS[1], ARGV[2]) return 1";
