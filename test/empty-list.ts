/** A pattern for `t.match` that matches only an array without elements. The pattern `[]` matches every array. */
export const emptyList = { length: 0 };
