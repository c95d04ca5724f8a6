/* SPDX-License-Identifier: Apache-2.0 */
/* The storages that a journal knows, with their lives, and the one that an address belongs to. */
#ifndef BL_TRIAGE_JOURNAL_STORAGE_H
#define BL_TRIAGE_JOURNAL_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attributes.h"
#include "report/journal.h"

typedef struct bl_storage_life {
    uint64_t storage, address, n_bytes;
    uint64_t event; /* the last one of it: births and deaths are counted together */
    uint32_t name;  /* number of a text of the journal */
    bool is_alive;
    bool is_born, has_died; /* whether the journal still holds the moment */
    uint64_t birth_step, death_step;
    uint32_t birth_site, death_site;
    uint64_t birth_launch, death_launch; /* serial of the last launch before */
} bl_storage_life;

typedef struct bl_storage_list {
    bl_storage_life *list;
    int64_t n;
} bl_storage_list;

/* False without memory. */
BL_MUST_USE bool bl_storage_list_init(const bl_journal_reader *reader, bl_storage_list *out);
void bl_storage_list_fini(bl_storage_list *list);

typedef enum bl_storage_place { BL_PLACE_INSIDE, BL_PLACE_BEHIND, BL_PLACE_BEFORE } bl_storage_place;

typedef struct bl_storage_hit {
    const bl_storage_life *life;
    bl_storage_place place;
    uint64_t distance; /* from its first byte; behind its end from there, 0 is the first byte behind */
} bl_storage_hit;

/* The storage that holds the address: one that lives, else the one that was freed last.  Where none that lives holds it,
 * the nearest one is told too, when it is nearer than its own size or 64 KiB.  How many were found: 0, 1 or 2. */
int bl_storage_list_find(const bl_storage_list *list, uint64_t address, bl_storage_hit out[2]);

#endif
