import { keyPrefixes } from '../policy/key-format.js';
import Type from '../typebox/typebox.js';

// An error message for clients consists of a field's name, "must be" and the field's description. So each description
// below must complete such a sentence.

/**
 * Creates the schema for one line of text that is not blank. The schema rejects control characters, lone surrogates and
 * Unicode line separators. Some databases truncate a text at a control character, or replace lone surrogates.
 */
export function line(longest: number, example = 'Amina Okafor') {
  return textOf(longest, example, '', '');
}

const anyCase = Object.values(keyPrefixes).map((prefix) =>
  prefix.replaceAll(/[a-z]/g, (letter) => `[${letter}${letter.toUpperCase()}]`),
);

/** Start of a pattern that rejects text with an API key. Otherwise a key that was pasted by mistake would be stored. */
export const noKeyIn = `^(?!.*(?:${anyCase.join('|')}))`;

/** The rule of `noKeyIn` in words, for error messages. */
export const noKeyWords = 'without anything that looks like an API key';

/** Creates the schema for one line of text without an API key. */
export function keylessLine(longest: number, example = 'Till 4') {
  return textOf(longest, example, noKeyIn.slice(1), `, ${noKeyWords}`);
}

/** Matches one line of text, not blank and of any length, without an API key. */
export const keylessText = lineForm('', noKeyIn.slice(1));

function lineForm(longest: number | '', never: string): RegExp {
  return new RegExp(`^${never}(?=.*\\S)[^\\p{Cc}\\p{Cs}\\p{Zl}\\p{Zp}]{1,${longest}}$`, 'u');
}

function textOf(longest: number, example: string, never: string, words: string) {
  return Type.String({
    pattern: lineForm(longest, never),
    description: `a text of 1 to ${longest} characters on one line${words}`,
    examples: [example],
  });
}
