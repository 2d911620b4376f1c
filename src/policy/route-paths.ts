/**
 * The paths below basePath to which the gateway itself responds. A configured route with exactly the same path replaces
 * the gateway's own route.
 */
export const ownPaths = ['/whoami', '/openapi.json'] as const;

/**
 * Converts a path segment to the form in which some services compare it: in lower case, without the suffix after a dot.
 * A leading dot, as in `.well-known`, is part of the name.
 */
export function foldSegment(segment: string): string {
  const dot = segment.indexOf('.', 1);
  return (dot === -1 ? segment : segment.slice(0, dot)).toLowerCase();
}
