/**
 * Headers as names and values by turns; a value may be several. An object made by spreading others costs as much as all
 * checks of a request together, and V8 keeps a shape for each.
 */
export type HeaderList = (string | string[])[];

/** Whether a list has a header of this name, in the same case. */
export function hasHeader(list: Readonly<HeaderList>, name: string): boolean {
  for (let index = 0; index < list.length; index += 2) if (list[index] === name) return true;
  return false;
}
