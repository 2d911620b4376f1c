/**
 * What a segment of a path is to services that ignore letter case and cut off what follows a dot. A dot in front, as in
 * `.well-known`, begins a name.
 */
export function foldSegment(segment: string): string {
  const dot = segment.indexOf('.', 1);
  return (dot === -1 ? segment : segment.slice(0, dot)).toLowerCase();
}
