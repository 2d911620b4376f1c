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
