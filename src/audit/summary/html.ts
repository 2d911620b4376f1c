/** A text that is already HTML, so it needs no escaping. */
export interface Html {
  readonly html: string;
}

type Part = string | number | Html | readonly Html[];

/**
 * Control, format and bidirectional characters. They are invisible but can change how the page is displayed, so they
 * are escaped.
 */
const hidden = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;
const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

/**
 * Builds HTML from a tagged template, and escapes every value that is not `Html`. The escaping suffices only for the
 * text of an element and for a quoted attribute.
 */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  return { html: strings.reduce((text, string, index) => text + textOf(parts[index - 1] ?? '') + string) };
}

/**
 * Marks a constant of this program, such as a style sheet, as HTML. Passing a logged value would allow HTML injection.
 */
export function raw(text: string): Html {
  return { html: text };
}

/** Returns a table with one row of headings; a paragraph `None.` if there are no rows. */
export function table(names: readonly string[], rows: readonly (readonly string[])[]): Html {
  if (rows.length === 0) return html`<p>None.</p>`;
  return html`<table>
    <tr>
      ${names.map((name) => html`<th>${name}</th>`)}
    </tr>
    ${rows.map(
      (row) =>
        html`<tr>
          ${row.map((value) => html`<td>${value}</td>`)}
        </tr>`,
    )}
  </table>`;
}

function textOf(part: Part): string {
  if (typeof part === 'object') return 'html' in part ? part.html : part.map((one) => one.html).join('');
  return String(part)
    .replace(hidden, (character) => `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`)
    .replace(/[&<>"']/g, (character) => entities[character] ?? '');
}
