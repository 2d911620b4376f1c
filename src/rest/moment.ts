/** Pattern for an ISO 8601 date and time with a time zone. */
export const dateTimeForm =
  /^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,3})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})$/;

/**
 * Parses an ISO 8601 date and time to milliseconds since 1970. Returns null for a day that does not exist, such as 30
 * February, because Date.parse would turn it into a later day.
 */
export function parseDateTime(text: string): number | null {
  if (!dateTimeForm.test(text) || !beginsWithDate(text)) return null;
  const moment = Date.parse(text);
  return Number.isNaN(moment) ? null : moment;
}

/** Returns true if the text begins with a calendar date that exists. */
export function beginsWithDate(text: string): boolean {
  const day = text.slice(0, 10);
  const midnight = Date.parse(`${day}T00:00:00Z`);
  return !Number.isNaN(midnight) && new Date(midnight).toISOString().startsWith(day);
}
