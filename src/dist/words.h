/* SPDX-License-Identifier: Apache-2.0 */
/* What a word says, in words. */
#ifndef BL_DIST_WORDS_H
#define BL_DIST_WORDS_H

#include "dist/group.h"

/* Appends to a text of that size; what does not fit is cut. */
void bl_words_add(char *out, size_t size, const char *format, ...) BL_PRINTF(3, 4);

/* One more name of a list, behind `n_told` others of `n`: "a, b, c, d and 3 others".  False when nothing more is to be
 * named. */
bool bl_words_name(bl_text *out, int64_t n_told, int64_t n, const char *name);

/* "all_reduce #37", and the same with all that is compared: "all_reduce #37 of 8 f32 by sum". */
void bl_word_call(const bl_word *word, char *out, size_t size);
void bl_word_describe(const bl_word *word, char *out, size_t size);

bool bl_word_fits(const bl_word *a, const bl_word *b);
/* A rank whose window has faulted, or which has nothing in the window that it ends, goes by what the others do: where they
 * average and it does not, its word becomes theirs, marked BL_FLAG_FOLLOWS.  The same on all ranks. */
void bl_words_follow(bl_word *all, int size);
/* BELAY_OK, or comm.mismatch with the words about it; touches nothing but the words. */
belay_code bl_words_compare(const bl_word *all, int size, bl_report_fault *fault);
/* Whether that rank says something else than the most do; nobody does in a tie. */
bool bl_word_odd(const bl_word *all, int size, int rank);

#endif
