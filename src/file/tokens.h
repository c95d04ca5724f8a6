/* SPDX-License-Identifier: Apache-2.0 */
/* Token files in the format of llm.c, read.
 *
 *   256 int32      little-endian: 20240520, version 1, number of tokens, zeros or anything
 *   the rest       the tokens, uint16, little-endian
 *
 * A file is opened only if its header and its length agree.  It is not mapped: one that shrinks while it is read is
 * file.read, not a signal.  Source of the format: https://github.com/karpathy/llm.c (dev/data/data_common.py).
 *
 * Codes: file.open file.read file.format, mem.exhausted. */
#ifndef BL_FILE_TOKENS_H
#define BL_FILE_TOKENS_H

#include <stdint.h>

#include "base/error.h"

enum { BL_TOKENS_HEADER = 1024, BL_TOKENS_MAGIC = 20240520, BL_TOKENS_VERSION = 1 };

typedef struct bl_tokens bl_tokens;

BL_MUST_USE belay_code bl_tokens_open(const char *path, bl_tokens **out, bl_error *error);
void bl_tokens_close(bl_tokens *file);

/* How many there are, at least 1. */
int64_t bl_tokens_count(const bl_tokens *file);
const char *bl_tokens_path(const bl_tokens *file);

/* Tokens [first, first + n), which lie in the file (else bug.invariant). */
BL_MUST_USE belay_code bl_tokens_read(const bl_tokens *file, int64_t first, int64_t n, uint16_t *into, bl_error *error);

#endif
