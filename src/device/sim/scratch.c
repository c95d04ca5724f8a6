/* SPDX-License-Identifier: Apache-2.0 */
#include "device/sim/scratch.h"

#include "base/checked.h"
#include "base/memory.h"

enum { HEAD_BYTES = 64 }; /* of the link, so that the block keeps its alignment */

_Static_assert(sizeof(bl_sim_scratch) <= HEAD_BYTES, "the link fits before the block");

void bl_sim_scratch_init(bl_sim_scratch *scratch) { scratch->next = scratch->before = scratch; }

static void unlink_block(bl_sim_scratch *link)
{
    link->before->next = link->next;
    link->next->before = link->before;
    bl_free(link);
}

void bl_sim_scratch_fini(bl_sim_scratch *scratch)
{
    while (scratch->next != scratch)
        unlink_block(scratch->next);
}

static void *take(void *state, int64_t n_bytes)
{
    bl_sim_scratch *scratch = state, *link;
    int64_t all;
    if (n_bytes < 0 || !bl_checked_add(n_bytes, HEAD_BYTES, &all))
        return NULL;
    link = bl_alloc_aligned(all, HEAD_BYTES);
    if (link == NULL)
        return NULL;
    *link = (bl_sim_scratch){.next = scratch->next, .before = scratch};
    scratch->next->before = link;
    scratch->next = link;
    return (char *)link + HEAD_BYTES;
}

static void give(void *state, void *block, int64_t n_bytes)
{
    (void)state, (void)n_bytes;
    unlink_block((bl_sim_scratch *)(void *)((char *)block - HEAD_BYTES));
}

static void *host(void *state, void *address)
{
    (void)state;
    return address;
}

/* Pages of their own are for tensors. */
static void *take_no_pages(void *state, int64_t n_bytes)
{
    (void)state, (void)n_bytes;
    return NULL;
}

static void give_no_pages(void *state, void *pages, int64_t n_bytes) { (void)state, (void)pages, (void)n_bytes; }

bl_memory_source bl_sim_scratch_source(bl_sim_scratch *scratch)
{
    return (bl_memory_source){scratch, take, give, take_no_pages, give_no_pages, host};
}
