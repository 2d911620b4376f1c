import { keyPrefixes } from '../policy/key-format.js';
import Type from '../typebox/typebox.js';

// The description of a field is also what a caller is told to send: "name must be " and the description.

/** One line of text for people. Control characters and halves of surrogate pairs are refused: databases cut or replace them. */
export function line(longest: number, example = 'Amina Okafor') {
  return textOf(longest, example, '', '');
}

const anyCase = Object.values(keyPrefixes).map((prefix) =>
  prefix.replaceAll(/[a-z]/g, (letter) => `[${letter}${letter.toUpperCase()}]`),
);

/** The beginning of a pattern that matches no text with an API key in it: a key that is pasted by mistake would be stored. */
export const noKeyIn = `^(?!.*(?:${anyCase.join('|')}))`;

/** What a caller is told of that. */
export const noKeyWords = 'without anything that looks like an API key';

/** One line of text for people that holds no API key. */
export function keylessLine(longest: number, example = 'Till 4') {
  return textOf(longest, example, noKeyIn.slice(1), `, ${noKeyWords}`);
}

function textOf(longest: number, example: string, never: string, words: string) {
  return Type.String({
    pattern: new RegExp(`^${never}(?=.*\\S)[^\\p{Cc}\\p{Cs}\\p{Zl}\\p{Zp}]{1,${longest}}$`, 'u'),
    description: `a text of 1 to ${longest} characters on one line${words}`,
    examples: [example],
  });
}
