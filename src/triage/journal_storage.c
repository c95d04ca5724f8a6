/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/memory.h"
#include "triage/journal_storage.h"

enum { NEAR = 64 * 1024 };

/* ---- lives ----------------------------------------------------------------------------------------------------------- */

/* By storage, then in the order of the events; of a birth in both places the table's copy comes second. */
static int compare(const void *left, const void *right)
{
    const bl_storage_record *a = left, *b = right;
    if (a->storage != b->storage)
        return a->storage < b->storage ? -1 : 1;
    if (a->serial != b->serial)
        return a->serial < b->serial ? -1 : 1;
    return (int)a->reserved - (int)b->reserved;
}

/* All records of the ring and of the table; those of the table have `reserved` 1. */
static int64_t collect(const bl_journal_reader *reader, bl_storage_record *out, uint64_t n_ring)
{
    uint64_t last = bl_journal_reader_head(reader)->n_storages;
    int64_t n = 0;
    for (uint64_t back = 0; back < n_ring && back < last; back++) {
        if (!bl_journal_reader_storage(reader, last - back, &out[n]))
            continue;
        out[n++].reserved = 0;
    }
    for (int64_t place = 0; place < bl_journal_reader_n_places(reader); place++) {
        if (!bl_journal_reader_alive(reader, place, &out[n]))
            continue;
        out[n].is_death = 0;
        out[n++].reserved = 1;
    }
    return n;
}

static void live_through(bl_storage_life *life, const bl_storage_record *record)
{
    life->storage = record->storage;
    life->address = record->address;
    life->n_bytes = record->n_bytes;
    life->event = record->serial;
    life->name = record->name;
    life->is_alive = record->is_death == 0;
    if (record->is_death != 0) {
        life->has_died = true;
        life->death_step = record->step;
        life->death_site = record->site;
        life->death_launch = record->launch;
    } else {
        life->is_born = true;
        life->has_died = false;
        life->birth_step = record->step;
        life->birth_site = record->site;
        life->birth_launch = record->launch;
    }
}

bool bl_storage_list_init(const bl_journal_reader *reader, bl_storage_list *out)
{
    const bl_journal_head *head = bl_journal_reader_head(reader);
    uint64_t n_ring = head->storages.n_bytes / sizeof(bl_storage_record);
    int64_t most = (int64_t)n_ring + bl_journal_reader_n_places(reader);
    *out = (bl_storage_list){.list = bl_alloc(most + 1, sizeof(bl_storage_life))};
    bl_storage_record *records = bl_alloc(most + 1, sizeof *records);
    if (out->list == NULL || records == NULL) {
        bl_free(records);
        bl_storage_list_fini(out);
        return false;
    }
    int64_t n = collect(reader, records, n_ring);
    if (n > 1)
        qsort(records, (size_t)n, sizeof *records, compare);
    for (int64_t i = 0; i < n; i++) {
        out->n += i == 0 || records[i].storage != records[i - 1].storage;
        live_through(&out->list[out->n - 1], &records[i]);
    }
    bl_free(records);
    return true;
}

void bl_storage_list_fini(bl_storage_list *list)
{
    bl_free(list->list);
    *list = (bl_storage_list){0};
}

/* ---- addresses ------------------------------------------------------------------------------------------------------- */

static bool is_inside(const bl_storage_life *life, uint64_t address)
{
    return address >= life->address && address - life->address < life->n_bytes;
}

/* Beside the storage, and not far. */
static bool is_near(const bl_storage_life *life, uint64_t address, bl_storage_hit *out)
{
    uint64_t reach = life->n_bytes > NEAR ? life->n_bytes : NEAR;
    bool is_before = address < life->address;
    if (life->n_bytes == 0 || is_inside(life, address))
        return false;
    *out = (bl_storage_hit){.life = life,
                            .place = is_before ? BL_PLACE_BEFORE : BL_PLACE_BEHIND,
                            .distance = is_before ? life->address - address : address - life->address - life->n_bytes};
    return out->distance < reach;
}

static bool is_better_inside(const bl_storage_life *a, const bl_storage_life *b)
{
    if (b == NULL || a->is_alive != b->is_alive)
        return b == NULL || a->is_alive;
    return a->event > b->event;
}

static bool is_better_near(const bl_storage_hit *a, const bl_storage_hit *b)
{
    if (b->life == NULL || a->distance != b->distance)
        return b->life == NULL || a->distance < b->distance;
    return is_better_inside(a->life, b->life);
}

int bl_storage_list_find(const bl_storage_list *list, uint64_t address, bl_storage_hit out[2])
{
    const bl_storage_life *inside = NULL;
    bl_storage_hit nearest = {0}, hit;
    for (int64_t i = 0; i < list->n; i++)
        if (is_inside(&list->list[i], address) && is_better_inside(&list->list[i], inside))
            inside = &list->list[i];
    /* Beside a freed one only what lives is told: the freed ones lie everywhere. */
    for (int64_t i = 0; i < list->n && (inside == NULL || !inside->is_alive); i++)
        if ((inside == NULL || list->list[i].is_alive) && is_near(&list->list[i], address, &hit) &&
            is_better_near(&hit, &nearest))
            nearest = hit;
    int n = 0;
    if (inside != NULL)
        out[n++] = (bl_storage_hit){.life = inside, .place = BL_PLACE_INSIDE, .distance = address - inside->address};
    if (nearest.life != NULL)
        out[n++] = nearest;
    return n;
}
