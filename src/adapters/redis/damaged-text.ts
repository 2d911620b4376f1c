/** Neither JSON nor a number. */
export const noText = 'not a string';

/**
 * Stands for a record that is a list, say, and no text: whoever reads it takes it for damaged, as it is. Redis has answered, so it
 * is no outage, which would be one for all records.
 * @param error what a GET was rejected with
 * @throws whatever else that is
 */
export function damagedText(error: unknown): string {
  if (error instanceof Error && error.message.startsWith('WRONGTYPE ')) return noText;
  throw error;
}
