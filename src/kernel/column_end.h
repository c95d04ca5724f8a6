/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a dtype column: forgets its words, so that the next one can set them. */
#undef BL_SUM
#undef BL_HAS_FLOAT
#undef BL_HAS_NUMBER
#undef BL_HAS_ANY
#undef BL_COLUMN
#undef BL_T
#undef BL_REAL
#undef BL_DTYPE
#undef BL_IS_FLOAT
#undef BL_IS_BOOL
#undef BL_REAL_IS_F64
#undef BL_YES
#undef BL_NO
