/** A date and time with its zone, as ISO 8601 writes it. */
export const momentForm =
  /^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,3})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})$/;

/** Reads a moment of that form; null for a day that no calendar has, which Date.parse would take for a later one. */
export function momentIn(text: string): number | null {
  if (!momentForm.test(text) || !beginsWithDay(text)) return null;
  const moment = Date.parse(text);
  return Number.isNaN(moment) ? null : moment;
}

/** Whether the date in front is one that a calendar has. */
export function beginsWithDay(text: string): boolean {
  const day = text.slice(0, 10);
  const midnight = Date.parse(`${day}T00:00:00Z`);
  return !Number.isNaN(midnight) && new Date(midnight).toISOString().startsWith(day);
}
