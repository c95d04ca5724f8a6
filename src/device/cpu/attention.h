/* SPDX-License-Identifier: Apache-2.0 */
/* What the two files of the CPU's attention share: a launch as its blocks see it. */
#ifndef BL_DEVICE_CPU_ATTENTION_H
#define BL_DEVICE_CPU_ATTENTION_H

#include "base/checked.h"
#include "device/cpu/kernel.h"

/* A block is that many rows against that many keys: its scores stay in the second-level cache. */
#ifdef BELAY_SMALL
enum { BL_ATTENTION_ROWS = 5, BL_ATTENTION_KEYS = 7 };
#else
enum { BL_ATTENTION_ROWS = 64, BL_ATTENTION_KEYS = 256 };
#endif

/* Matrices lie [heads, rows or keys, width], in the type of the arithmetic. */
typedef struct bl_attention {
    int64_t heads, rows, keys, width, value_width;
    bool is_causal;
    double scale;
    float drop;  /* chance to drop a probability, whose number in the draw is first + (head rows + row) keys + key */
    double keep; /* what one that stays is multiplied by */
    int64_t first;
    bl_rng_key key;
    void *q, *k, *v, *g;
    void *y;     /* written by the forward, read by the gradient */
    double *lse; /* so too */
    void *g_q, *g_k, *g_v;
} bl_attention;

/* Which gradients a walk over blocks owns. */
enum { BL_ATTENTION_OWNS_ROWS = 1, BL_ATTENTION_OWNS_KEYS = 2 };

/* In one type of arithmetic; `scratch` holds two blocks of scores. */
typedef struct bl_attention_code {
    /* y and lse of a block of rows from `row` on. */
    void (*forward)(const bl_attention *a, int64_t head, int64_t row, void *scratch);
    /* Adds what the block of `row` and `key` gives to the gradients that `owned` names. */
    void (*backward)(const bl_attention *a, int64_t head, int64_t row, int64_t key, int owned, void *scratch);
} bl_attention_code;

/* Rows of the block that begins at `row`. */
static inline int64_t bl_attention_block_rows(const bl_attention *a, int64_t row)
{
    return bl_min_i64(BL_ATTENTION_ROWS, a->rows - row);
}

/* Keys from `key` on that some row of the block at `row` sees, at most a block; may be negative. */
static inline int64_t bl_attention_block_keys(const bl_attention *a, int64_t row, int64_t key)
{
    int64_t n = bl_min_i64(BL_ATTENTION_KEYS, a->keys - key);
    return a->is_causal ? bl_min_i64(n, row + bl_attention_block_rows(a, row) - key) : n;
}

/* Of n keys from `key` on, how many row `row` sees. */
static inline int64_t bl_attention_seen(const bl_attention *a, int64_t row, int64_t key, int64_t n)
{
    return a->is_causal ? bl_max_i64(0, bl_min_i64(n, row + 1 - key)) : n;
}

#endif
