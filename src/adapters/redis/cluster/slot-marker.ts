import Type, { Compile } from '../../../typebox/typebox.js';

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
