/** Text that is HTML already. */
export interface Html {
  readonly html: string;
}

type Part = string | number | Html | readonly Html[];

/** What a page would obey, and what a reader would not see: controls, and what turns the direction of text. */
const hidden = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;
const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/** A template in which every value is escaped, for an element's text and for a quoted attribute. */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return { html: strings.reduce((text, string, index) => text + textOf(parts[index - 1] ?? '') + string) };
}

/** The product's own text, such as a style sheet: never a value. */
export function raw(text: string): Html {
  return { html: text };
}

function textOf(part: Part): string {
  if (typeof part === 'object') return 'html' in part ? part.html : part.map((one) => one.html).join('');
  return String(part)
    .replace(hidden, (character) => `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`)
    .replace(/[&<>"']/g, (character) => entities[character] ?? '');
}
