import Type from '../typebox/typebox.js';

// The description of a field is also what a caller is told to send: "name must be " and the description.

/**
 * One line of text for people. Control characters and halves of surrogate pairs are refused: databases cut or replace
 * them, and what is stored must be what was sent.
 * @param without a pattern of what may not be in it, and the words for that; null: whatever else
 */
export function line(
  longest: number,
  example = 'Amina Okafor',
  without: { readonly pattern: string; readonly words: string } | null = null,
) {
  const never = without === null ? '' : `(?!.*(?:${without.pattern}))`;
  return Type.String({
    pattern: new RegExp(`^${never}(?=.*\\S)[^\\p{Cc}\\p{Cs}\\p{Zl}\\p{Zp}]{1,${longest}}$`, 'u'),
    description: `a text of 1 to ${longest} characters on one line${without === null ? '' : `, ${without.words}`}`,
    examples: [example],
  });
}
