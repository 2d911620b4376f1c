/** In a pattern of `t.match`: an array without elements. There, `[]` matches every array. */
export const emptyList = { length: 0 };
