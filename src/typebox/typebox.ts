/**
 * The only module that imports typebox. The build bundles this module and typebox into one file. Otherwise every
 * process would load the 680 modules of typebox separately, which takes 20 MB of memory and a third of a second.
 */
export { default } from 'typebox';
export type { Static, TNull, TObject, TProperties, TSchema, TSchemaOptions, TString, TUnion } from 'typebox';
export { Compile } from 'typebox/compile';
export { Check } from 'typebox/value';
