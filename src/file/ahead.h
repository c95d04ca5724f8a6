/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an input in blocks, and where that pays ahead of its consumer, in a thread of its own: then copying and
 * unpacking take no time of the consumer's.  Small files and everything that may block (pipes, standard input) are read
 * by the consumer's thread. */
#ifndef BL_FILE_AHEAD_H
#define BL_FILE_AHEAD_H

#include "file/input.h"

typedef struct bl_ahead bl_ahead;

/* Room for blocks of `block_bytes`, each with `front_bytes` in front of it that are the consumer's.  NULL without
 * memory. */
bl_ahead *bl_ahead_new(int64_t front_bytes, int64_t block_bytes);
void bl_ahead_free(bl_ahead *ahead);

/* From now until _stop the input is this reader's alone. */
void bl_ahead_start(bl_ahead *ahead, bl_input *input);
/* The next block; shorter than block_bytes only at the end, then and only then it is the last one that may be asked
 * for.  It and the room in front of it stay until the second call after this one. */
char *bl_ahead_next(bl_ahead *ahead, int64_t *n_bytes);
/* Also before the end. */
void bl_ahead_stop(bl_ahead *ahead);

#endif
