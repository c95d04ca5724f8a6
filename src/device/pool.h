/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a device's memory: pooled by size class, or each in pages of its own against an inaccessible page.
 *
 *   POOL     blocks of size classes, kept for re-use when they are given back
 *   REDZONE  the same, with 64 bytes of a known pattern before and behind each, looked at when a block is given back
 *            and by bl_pool_damage
 *   EXACT    every block its own pages, really given back; it ends (or begins) at an inaccessible page, so that the
 *            first byte past it (before it) cannot be touched.  One that ends there is aligned to the largest power of
 *            two that divides its size, hence to its dtype; 64 bytes on the far side that lie in its own pages are a
 *            red zone.  A block of no bytes has no byte that can be touched when it is right-aligned.  When the process
 *            has no mappings left, further blocks are red-zoned ones, and `is_out_of_mappings` says so
 *
 * In the other modes blocks are aligned to 64 bytes.  Poison: a fresh block is filled with a pattern that is NaN in
 * every float dtype and far out of range as an integer, a block given back (and held) with another that carries its
 * generation.  Book-keeping lies outside of the blocks: a stray write into one cannot spoil it.
 * One thread uses a pool at a time. */
#ifndef BL_DEVICE_POOL_H
#define BL_DEVICE_POOL_H

#include <stdbool.h>
#include <stdint.h>

typedef enum bl_memory_mode {
    BL_MEMORY_POOL = 0,
    BL_MEMORY_REDZONE = 1,
    BL_MEMORY_EXACT = 2,      /* blocks end at the inaccessible page */
    BL_MEMORY_EXACT_LEFT = 3, /* blocks begin behind it */
    BL_N_MEMORY_MODES = 4
} bl_memory_mode;

/* Where a pool's bytes come from: the host's heap, or a software device's memory.  NULL: none left. */
typedef struct bl_memory_source {
    void *state;
    void *(*take)(void *state, int64_t n_bytes); /* at 64-byte alignment */
    void (*give)(void *state, void *block, int64_t n_bytes);
    /* Whole pages, with an inaccessible page before and behind them; they are really given back. */
    void *(*take_pages)(void *state, int64_t n_bytes);
    void (*give_pages)(void *state, void *pages, int64_t n_bytes);
    /* Where the host may touch the bytes at that address. */
    void *(*host)(void *state, void *address);
} bl_memory_source;

/* The host's heap. */
extern const bl_memory_source bl_memory_source_host;

typedef struct bl_pool bl_pool;

/* NULL when memory ends.  The source is copied. */
bl_pool *bl_pool_new(const bl_memory_source *source, bl_memory_mode mode, bool poison);
/* Every block that was taken must have been given back. */
void bl_pool_free(bl_pool *pool);
void *bl_pool_take(bl_pool *pool, int64_t n_bytes);
/* A block goes back with the size that it was asked for. */
void bl_pool_give(bl_pool *pool, void *block, int64_t n_bytes);

/* A block that has left its pool: the bytes outlive it. */
typedef struct bl_left {
    bl_memory_source source;
    void *begin; /* of what the source gave */
    int64_t n_bytes;
    bool is_pages;
} bl_left;
/* Takes a block that is in use off the pool's books, for good; its zones are looked at for the last time. */
void bl_pool_leave(bl_pool *pool, void *address, int64_t n_bytes, bl_left *out);
/* Gives the bytes back to the source, which must still be there: the host's always is, on any thread. */
void bl_left_give(const bl_left *left);

/* Gives what is held for re-use back to the source; returns the bytes. */
int64_t bl_pool_trim(bl_pool *pool);

/* Bytes in use by blocks taken, held for re-use, and the most that were ever in use. */
void bl_pool_memory(const bl_pool *pool, int64_t *in_use, int64_t *held, int64_t *peak);

/* A red zone that does not hold its pattern. */
typedef struct bl_redzone_damage {
    void *block;     /* beside which it lies */
    int64_t n_bytes; /* of the block, as it was asked for */
    bool is_behind;  /* else before */
    int64_t first;   /* distance of the nearest changed byte from the block's end (or its begin), from 1 */
    int64_t n_changed;
} bl_redzone_damage;

/* The next damage found when blocks were given back, oldest first, and then in a look at all blocks in use: false when
 * there is none.  Each is told once (the zone is mended).  `look` false: only what giving back found, of which the
 * first 64 are kept. */
bool bl_pool_damage(bl_pool *pool, bool look, bl_redzone_damage *out);
/* Once true, further blocks are red-zoned ones instead of exact ones. */
bool bl_pool_is_out_of_mappings(const bl_pool *pool);

/* What 8 bytes of a block tell: memory that nobody wrote, or memory that was given back, in which generation (from
 * 1, modulo 2^17; left alone otherwise). */
typedef enum bl_poison { BL_POISON_NONE = 0, BL_POISON_FRESH = 1, BL_POISON_FREED = 2 } bl_poison;
bl_poison bl_pool_poison(uint64_t word, int64_t *generation);

#endif
