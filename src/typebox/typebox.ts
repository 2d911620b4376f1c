/**
 * The one door to typebox. The build makes one file of it with all that stands behind: as it is published, typebox is 680
 * modules, which take 20 MB of memory and a third of a second in every process.
 */
export { default } from 'typebox';
export type { Static, TNull, TObject, TProperties, TSchema, TSchemaOptions, TString, TUnion } from 'typebox';
export { Compile } from 'typebox/compile';
export { Check } from 'typebox/value';
