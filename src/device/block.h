/* SPDX-License-Identifier: Apache-2.0 */
/* What a pool that watches its blocks knows of each: a table by address, in the heap, never in the blocks.  Bytes of a
 * block are reached through its host address only (`begin`), which the caller has from the source. */
#ifndef BL_DEVICE_BLOCK_H
#define BL_DEVICE_BLOCK_H

#include "base/attributes.h"
#include "device/pool.h"

enum { BL_ZONE_BYTES = 64 };

typedef struct bl_block {
    char *address;
    int64_t n_bytes;    /* as asked for */
    uint64_t serial;    /* of its take */
    int64_t generation; /* how often it was given back */
    int before, behind; /* bytes of its red zones */
    bool is_exact, is_held;
} bl_block;

/* Rows with address NULL are free. */
typedef struct bl_block_table {
    bl_block *row;
    int64_t n, capacity;
} bl_block_table;

/* Room for one more; false when there is no memory. */
BL_MUST_USE bool bl_block_reserve(bl_block_table *table);
/* NULL when it is not in the table. */
bl_block *bl_block_find(const bl_block_table *table, const void *address);
/* The row of that address, a new one if need be: room must have been reserved.  Rows move with put, reserve and
 * remove. */
bl_block *bl_block_put(bl_block_table *table, void *address);
void bl_block_remove(bl_block_table *table, const void *address);
void bl_block_table_fini(bl_block_table *table);

/* Writes the pattern into both zones; `begin` is where the host sees the block's first byte. */
void bl_block_fence(const bl_block *block, unsigned char *begin);
/* The first zone that is damaged, mended then; false when none is. */
bool bl_block_damage(const bl_block *block, unsigned char *begin, bl_redzone_damage *out);
bool bl_block_is_damaged(const bl_block *block, const unsigned char *begin);

/* Fills a block: as fresh, or as given back in that generation. */
void bl_block_poison_fresh(const bl_block *block, unsigned char *begin);
void bl_block_poison_freed(const bl_block *block, unsigned char *begin);

#endif
