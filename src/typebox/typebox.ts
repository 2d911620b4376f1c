/**
 * The only module that imports typebox. The build bundles it into one file, because typebox has 680 modules. Loading
 * these separately would take 20 MB of memory and a third of a second in every process.
 */
export { default } from 'typebox';
export type { Static, TNull, TObject, TProperties, TSchema, TSchemaOptions, TString, TUnion } from 'typebox';
export { Compile } from 'typebox/compile';
export { Check } from 'typebox/value';
