import { keyPrefixes } from '../policy/key-format.js';
import Type from '../typebox/typebox.js';

// Clients read the description of a field too: "name must be " followed by the description.

/** One line of text. Rejects control characters and lone surrogates: databases truncate or replace them. */
export function line(longest: number, example = 'Amina Okafor') {
  return textOf(longest, example, '', '');
}

const anyCase = Object.values(keyPrefixes).map((prefix) =>
  prefix.replaceAll(/[a-z]/g, (letter) => `[${letter}${letter.toUpperCase()}]`),
);

/** Start of a pattern that rejects any text with an API key: a key pasted by mistake would be stored. */
export const noKeyIn = `^(?!.*(?:${anyCase.join('|')}))`;

/** The same in words, for clients. */
export const noKeyWords = 'without anything that looks like an API key';

/** One line of text without an API key. */
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
