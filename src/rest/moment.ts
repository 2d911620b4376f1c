/** An ISO 8601 date and time with its zone. */
export const dateTimeForm =
  /^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,3})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})$/;

/**
 * Parses a date and time of that form; null for a day outside the calendar, which Date.parse would turn into a later
 * one.
 */
export function parseDateTime(text: string): number | null {
  if (!dateTimeForm.test(text) || !beginsWithDate(text)) return null;
  const moment = Date.parse(text);
  return Number.isNaN(moment) ? null : moment;
}

/** Whether the text begins with a date of the calendar. */
export function beginsWithDate(text: string): boolean {
  const day = text.slice(0, 10);
  const midnight = Date.parse(`${day}T00:00:00Z`);
  return !Number.isNaN(midnight) && new Date(midnight).toISOString().startsWith(day);
}
