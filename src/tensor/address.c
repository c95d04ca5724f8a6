/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/address.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/checked.h"
#include "device/trap.h"

enum { NEAR = 1 << 20, PAGE = 4096 };

/* The storage that is nearest so far. */
typedef struct nearest {
    uint64_t of;       /* where the only one that counts begins; 0: any */
    uint64_t distance; /* 0: inside */
    uint64_t begin, n_bytes, serial;
    uint32_t name;
    const bl_storage *alive;
    bool is_known;
    bl_storage_record death; /* of a dead one */
} nearest;

/* Bytes between the address and the range, counted from 1. */
static uint64_t distance_of(uint64_t address, uint64_t begin, uint64_t n_bytes)
{
    if (address < begin)
        return begin - address;
    return address - begin < n_bytes ? 0 : address - begin - n_bytes + 1;
}

static bool is_nearer(const nearest *best, uint64_t address, uint64_t begin, uint64_t n_bytes)
{
    uint64_t distance = distance_of(address, begin, n_bytes);
    return (best->of == 0 || best->of == begin) && distance <= NEAR && (!best->is_known || distance < best->distance);
}

static void look_at_alive(const belay_context *context, const bl_device *device, uint64_t address, nearest *best)
{
    for (int64_t s = 1; s < context->n_slots; s++) {
        const bl_slot *slot = bl_slot_at(context, (uint32_t)s);
        const bl_storage *storage = slot->is_alive ? slot->storage : NULL;
        if (storage == NULL || (device != NULL && context->places[storage->place].device != device))
            continue;
        uint64_t begin = (uint64_t)(uintptr_t)storage->data, n_bytes = (uint64_t)storage->n_bytes;
        if (is_nearer(best, address, begin, n_bytes))
            *best = (nearest){.of = best->of,
                              .distance = distance_of(address, begin, n_bytes),
                              .begin = begin,
                              .n_bytes = n_bytes,
                              .serial = storage->serial,
                              .name = storage->name,
                              .alive = storage,
                              .is_known = true};
    }
}

/* The latest event of storages, from serial `from` down, that is the death (or the birth) of one; 0: none is left. */
static uint64_t find_event(const bl_journal *journal, uint64_t from, bool is_death, uint64_t storage,
                           bl_storage_record *out)
{
    for (uint64_t serial = from; serial > 0 && bl_journal_storage_get(journal, serial, out); serial--)
        if ((out->is_death != 0) == is_death && (storage == 0 || out->storage == storage))
            return serial;
    return 0;
}

static void look_at_dead(const belay_context *context, uint64_t address, nearest *best)
{
    bl_storage_record r;
    uint64_t serial = bl_journal_n_storages(context->journal);
    while ((serial = find_event(context->journal, serial, true, 0, &r)) != 0) {
        if (is_nearer(best, address, r.address, r.n_bytes))
            *best = (nearest){.of = best->of,
                              .distance = distance_of(address, r.address, r.n_bytes),
                              .begin = r.address,
                              .n_bytes = r.n_bytes,
                              .serial = r.storage,
                              .name = r.name,
                              .is_known = true,
                              .death = r};
        serial--;
    }
}

/* "made at: train.c:26, in step 2, 12 launches earlier". */
static void add_moment(const belay_context *context, const bl_storage_record *event, const char *key, uint64_t launch,
                       bl_text *out)
{
    uintptr_t address = bl_journal_site_get(context->journal, event->site);
    char words[256] = "unknown";
    if (address != 0)
        bl_context_site(context, address, words, sizeof words);
    bl_text_format(out, "%s: %s, in step %" PRIu64, key, words, event->step);
    if (launch > event->launch)
        bl_text_format(out, ", %" PRIu64 " launch%s earlier", launch - event->launch,
                       launch - event->launch == 1 ? "" : "es");
    bl_text_add(out, "\n");
}

static void add_facts(const belay_context *context, const nearest *n, uint64_t launch, bl_text *facts)
{
    bl_storage_record birth;
    if (find_event(context->journal, bl_journal_n_storages(context->journal), false, n->serial, &birth) != 0)
        add_moment(context, &birth, "made at", launch, facts);
    if (n->alive == NULL)
        add_moment(context, &n->death, "freed at", launch, facts);
}

/* Of a device that cannot read it: a byte of this process. */
static bool is_host(const bl_device *device, uint64_t address)
{
    return !device->api->synchronous && bl_trap_is_readable(address);
}

static const bl_storage *describe(const belay_context *context, const bl_device *device, uint64_t of, uint64_t address,
                                  uint64_t launch, bl_text *words, bl_text *facts)
{
    nearest best = {.of = of};
    look_at_alive(context, device, address, &best);
    if (!best.is_known || best.distance > PAGE)
        look_at_dead(context, address, &best);
    if (!best.is_known) {
        bool is_hosts = address >= PAGE && is_host(device, address);
        bl_text_format(words, "address 0x%" PRIx64 ", %s", address,
                       address < PAGE ? "a null pointer"
                       : is_hosts     ? "which is the host's own memory"
                                      : "near which no tensor lies or lay");
        bl_text_add(facts, is_hosts ? "a device cannot read it: give what it points to as an operand\n" : "");
        return NULL;
    }
    if (best.distance == 0)
        bl_text_format(words, "byte %" PRIu64 " of ", address - best.begin);
    else
        bl_text_format(words, "%" PRIu64 " byte%s %s of ", best.distance, best.distance == 1 ? "" : "s",
                       address < best.begin ? "before the begin" : "past the end");
    const char *name = bl_journal_text_get(context->journal, best.name);
    bl_text_format(words, "%s (%" PRIu64 " byte%s)%s", name[0] != '\0' ? name : "a tensor", best.n_bytes,
                   best.n_bytes == 1 ? "" : "s", best.alive == NULL ? ", which was freed" : "");
    add_facts(context, &best, launch != 0 ? launch : context->n_launches, facts);
    return best.alive;
}

const bl_storage *bl_address_describe(const belay_context *context, const bl_device *device, uint64_t address,
                                      uint64_t launch, bl_text *words, bl_text *facts)
{
    return describe(context, device, 0, address, launch, words, facts);
}

void bl_address_describe_beside(const belay_context *context, const bl_device *device, const void *block,
                                uint64_t address, bl_text *words, bl_text *facts)
{
    (void)describe(context, device, (uint64_t)(uintptr_t)block, address, 0, words, facts);
}
