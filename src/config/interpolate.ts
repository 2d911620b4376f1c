/** A text with its variables put in. */
export interface Interpolated {
  readonly text: string;
  /** False: no variable stood in it, and the text is as it was, less the signs of an escape. */
  readonly changed: boolean;
  readonly problems: readonly string[];
}

/** `$${` is a literal `${`; then a whole variable; then the beginning of something that is none. */
const variable = /\$\$\{|\$\{(?<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?<fallback>[^}]*))?\}|\$\{/g;

/**
 * Puts the environment's values in for `${VAR}` and `${VAR:-default}`, once: a value is not looked at again.
 * An empty variable counts as none, as in a shell's `:-`. A line end at the end of a value, as that of a file, is no part of it.
 */
export function interpolate(source: string, env: Readonly<Record<string, string | undefined>>): Interpolated {
  const problems: string[] = [];
  let changed = false;
  const text = source.replace(variable, (match: string, ...rest: unknown[]) => {
    if (match === '$${') return '${';
    const { name, fallback } = rest.at(-1) as { name?: string; fallback?: string };
    if (name === undefined) {
      problems.push('"${" begins a variable, but no name and "}" follow; write "$${" for the characters themselves');
      return match;
    }
    changed = true;
    const value = Object.hasOwn(env, name) ? env[name]?.replace(/[\r\n]+$/, '') : undefined;
    if (value !== undefined && value !== '') return value;
    if (fallback === undefined) {
      problems.push(`the environment variable ${name} is not set, and there is no default (\${${name}:-default})`);
    }
    return fallback ?? '';
  });
  return { text, changed, problems };
}
