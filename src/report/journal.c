/* SPDX-License-Identifier: Apache-2.0 */
/* Writing the journal. */
#include "report/journal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "file/map.h"

enum { KERNELS_BYTES = 1 << 13, STRINGS_BYTES = 1 << 18, N_SITES = 4096, HASH_SIZE = 8192, MODULES_LIMIT = 1 << 16 };

struct bl_journal {
    bl_file_map map;
    char *path; /* NULL: memory */
    bl_journal_head *head;
    char *kernels; /* names of kernels of the user's own, behind the ops' */
    uint32_t kernels_used;
    int n_ops;
    char *strings;
    uint32_t strings_used;
    uint64_t *sites;
    uint32_t n_sites;
    bl_launch_record *launches;
    bl_storage_record *storages;
    bl_storage_record *alive;
    bl_stream_record *streams;
    uint32_t free_place[BL_TABLE_ALIVE]; /* a stack of places that were given back */
    uint32_t n_free, n_places;           /* places below n_places have been used */
    uint32_t text_hash[HASH_SIZE];       /* offset into strings, 0: empty */
    uint32_t site_hash[HASH_SIZE];       /* index into sites, 0: empty */
};

/* Executable mappings of this process, "start-end offset path" a line, cut at a whole line. */
static void read_modules(bl_text *out)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1024];
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long long start, end, offset;
        char rights[8];
        int path = 0;
        if (sscanf(line, "%llx-%llx %7s %llx %*s %*s %n", &start, &end, rights, &offset, &path) != 4 || path == 0 ||
            strchr(rights, 'x') == NULL || line[path] != '/' || out->n_bytes > MODULES_LIMIT)
            continue;
        line[strcspn(line, "\n")] = '\0';
        bl_text_format(out, "%llx-%llx %llx %s\n", start, end, offset, line + path);
    }
    if (maps != NULL)
        fclose(maps);
}

static void list_codes(bl_text *out)
{
#define BELAY_FAULT(enumerator, number, name, severity, status, why, advice)                                           \
    bl_text_format(out, "%d %s\n", number, name);
#include <belay/fault.def>
#undef BELAY_FAULT
}

static uint64_t place(uint64_t *at, bl_journal_section *section, uint64_t n_bytes)
{
    section->offset = *at;
    section->n_bytes = n_bytes;
    *at += (n_bytes + 63) / 64 * 64;
    return section->offset;
}

static belay_code create(bl_journal *journal, const char *path, const bl_text *ops, const bl_text *codes,
                         const bl_text *modules, bl_error *error)
{
    bl_journal_head head = {.magic = BL_JOURNAL_MAGIC,
                            .version = BL_JOURNAL_VERSION,
                            .pid = (uint32_t)getpid(),
                            .started = bl_clock_wall(),
                            .launch_bytes = sizeof(bl_launch_record),
                            .storage_bytes = sizeof(bl_storage_record),
                            .stream_bytes = sizeof(bl_stream_record)};
    uint64_t at = (sizeof head + 63) / 64 * 64;
    place(&at, &head.ops, (uint64_t)ops->n_bytes + KERNELS_BYTES);
    place(&at, &head.codes, (uint64_t)codes->n_bytes);
    place(&at, &head.modules, (uint64_t)modules->n_bytes);
    place(&at, &head.strings, STRINGS_BYTES);
    place(&at, &head.sites, N_SITES * sizeof(uint64_t));
    place(&at, &head.launches, BL_RING_LAUNCHES * sizeof(bl_launch_record));
    place(&at, &head.storages, BL_RING_STORAGES * sizeof(bl_storage_record));
    place(&at, &head.alive, BL_TABLE_ALIVE * sizeof(bl_storage_record));
    place(&at, &head.streams, BL_TABLE_STREAMS * sizeof(bl_stream_record));
    TRY(bl_file_map_create(path, (int64_t)at, &journal->map, error));
    char *base = journal->map.bytes;
    memcpy(base + head.ops.offset, bl_text_get(ops), (size_t)ops->n_bytes);
    memcpy(base + head.codes.offset, bl_text_get(codes), (size_t)codes->n_bytes);
    memcpy(base + head.modules.offset, bl_text_get(modules), (size_t)modules->n_bytes);
    memcpy(base, &head, sizeof head);
    journal->head = (bl_journal_head *)base;
    journal->kernels = base + head.ops.offset + ops->n_bytes;
    journal->strings = base + head.strings.offset;
    journal->strings_used = 1;
    journal->sites = (uint64_t *)(base + head.sites.offset);
    journal->n_sites = 1;
    journal->launches = (bl_launch_record *)(base + head.launches.offset);
    journal->storages = (bl_storage_record *)(base + head.storages.offset);
    journal->alive = (bl_storage_record *)(base + head.alive.offset);
    journal->streams = (bl_stream_record *)(base + head.streams.offset);
    return BELAY_OK;
}

belay_code bl_journal_open(const char *path, const char *const *op_names, int n_ops, bl_journal **out, bl_error *error)
{
    *out = NULL;
    bl_text ops = {0}, codes = {0}, modules = {0};
    bl_journal *journal = bl_alloc(1, sizeof *journal);
    if (journal != NULL && path != NULL)
        journal->path = bl_strdup(path);
    if (journal != NULL)
        journal->n_ops = n_ops;
    for (int i = 0; i < n_ops; i++)
        bl_text_add_bytes(&ops, op_names[i], (int64_t)strlen(op_names[i]) + 1);
    list_codes(&codes);
    read_modules(&modules);
    belay_code code = BELAY_OK;
    if (journal == NULL || (path != NULL && journal->path == NULL) || ops.failed || codes.failed || modules.failed)
        code = bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the journal");
    else
        code = create(journal, path, &ops, &codes, &modules, error);
    bl_text_fini(&ops);
    bl_text_fini(&codes);
    bl_text_fini(&modules);
    if (code == BELAY_OK) {
        *out = journal;
    } else if (journal != NULL) {
        bl_free(journal->path);
        bl_free(journal);
    }
    return code;
}

const char *bl_journal_path(const bl_journal *journal) { return journal->path; }

void bl_journal_close(bl_journal *journal, int keep)
{
    if (journal == NULL)
        return;
    journal->head->closed = 1;
    bl_file_map_close(&journal->map);
    if (!keep && journal->path != NULL)
        unlink(journal->path);
    bl_free(journal->path);
    bl_free(journal);
}

static uint32_t hash_bytes(const void *bytes, size_t n)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * 16777619u;
    return h;
}

uint32_t bl_journal_text(bl_journal *journal, const char *text)
{
    size_t length = strlen(text);
    if (length == 0)
        return 0;
    uint32_t at = hash_bytes(text, length) % HASH_SIZE;
    for (int probe = 0; probe < HASH_SIZE; probe++, at = (at + 1) % HASH_SIZE) {
        uint32_t known = journal->text_hash[at];
        if (known != 0 && strcmp(journal->strings + known, text) == 0)
            return known;
        if (known != 0)
            continue;
        if (journal->strings_used + length + 1 > STRINGS_BYTES)
            return 0;
        memcpy(journal->strings + journal->strings_used, text, length + 1);
        journal->text_hash[at] = journal->strings_used;
        journal->strings_used += (uint32_t)length + 1;
        return journal->text_hash[at];
    }
    return 0;
}

const char *bl_journal_text_get(const bl_journal *journal, uint32_t number)
{
    return number < journal->strings_used ? journal->strings + number : "";
}

uint32_t bl_journal_site(bl_journal *journal, uintptr_t address)
{
    if (address == 0)
        return 0;
    uint32_t at = (uint32_t)((address * 0x9E3779B97F4A7C15ull) >> 40) % HASH_SIZE;
    for (int probe = 0; probe < HASH_SIZE; probe++, at = (at + 1) % HASH_SIZE) {
        uint32_t known = journal->site_hash[at];
        if (known != 0 && journal->sites[known] == address)
            return known;
        if (known != 0)
            continue;
        if (journal->n_sites == N_SITES)
            return 0;
        journal->sites[journal->n_sites] = address;
        return journal->site_hash[at] = journal->n_sites++;
    }
    return 0;
}

uint16_t bl_journal_kernel(bl_journal *journal, const char *name)
{
    size_t length = strlen(name);
    int number = journal->n_ops;
    for (const char *at = journal->kernels; at < journal->kernels + journal->kernels_used; at += strlen(at) + 1) {
        if (strcmp(at, name) == 0)
            return (uint16_t)number;
        number++;
    }
    if (length == 0 || number > UINT16_MAX || journal->kernels_used + length + 1 > KERNELS_BYTES)
        return 0;
    memcpy(journal->kernels + journal->kernels_used, name, length + 1);
    journal->kernels_used += (uint32_t)length + 1;
    return (uint16_t)number;
}

uintptr_t bl_journal_site_get(const bl_journal *journal, uint32_t number)
{
    return number < journal->n_sites ? (uintptr_t)journal->sites[number] : 0;
}

bl_launch_record *bl_journal_launch(bl_journal *journal, uint64_t serial)
{
    bl_launch_record *record = &journal->launches[serial % BL_RING_LAUNCHES];
    __atomic_store_n(&record->serial, 0, __ATOMIC_RELEASE);
    return record;
}

void bl_journal_launched(bl_journal *journal, bl_launch_record *record, uint64_t serial)
{
    __atomic_store_n(&record->serial, serial, __ATOMIC_RELEASE);
    __atomic_store_n(&journal->head->n_launches, serial, __ATOMIC_RELEASE);
}

void bl_journal_launch_refused(bl_journal *journal, uint64_t serial)
{
    __atomic_store_n(&journal->launches[serial % BL_RING_LAUNCHES].number, 0, __ATOMIC_RELEASE);
}

bl_stream_record *bl_journal_stream_open(bl_journal *journal, int row, const bl_stream_record *record)
{
    bl_stream_record *to = &journal->streams[row], copy = *record;
    bl_journal_stream_close(journal, row);
    copy.opened_after = journal->head->n_launches;
    copy.is_open = 0;
    *to = copy;
    __atomic_store_n(&to->is_open, 1, __ATOMIC_RELEASE);
    return to;
}

void bl_journal_stream_close(bl_journal *journal, int row)
{
    __atomic_store_n(&journal->streams[row].is_open, 0, __ATOMIC_RELEASE);
}

/* Writes a record so that a reader never takes half of it for a whole one. */
static void write_storage(const bl_journal *journal, bl_storage_record *to, const bl_storage_record *record,
                          uint64_t serial)
{
    __atomic_store_n(&to->serial, 0, __ATOMIC_RELEASE);
    bl_storage_record copy = *record;
    copy.serial = 0;
    copy.launch = journal->head->n_launches;
    *to = copy;
    __atomic_store_n(&to->serial, serial, __ATOMIC_RELEASE);
}

/* Places count from 1; entry `place` - 1 of the table. */
static uint32_t take_place(bl_journal *journal)
{
    if (journal->n_free > 0)
        return journal->free_place[--journal->n_free];
    return journal->n_places < BL_TABLE_ALIVE ? ++journal->n_places : 0;
}

void bl_journal_storage(bl_journal *journal, const bl_storage_record *record, uint32_t *place)
{
    uint64_t serial = journal->head->n_storages + 1;
    write_storage(journal, &journal->storages[serial % BL_RING_STORAGES], record, serial);
    __atomic_store_n(&journal->head->n_storages, serial, __ATOMIC_RELEASE);
    if (record->is_death != 0) {
        if (*place == 0)
            return;
        __atomic_store_n(&journal->alive[*place - 1].serial, 0, __ATOMIC_RELEASE);
        journal->free_place[journal->n_free++] = *place;
        *place = 0;
        return;
    }
    *place = take_place(journal);
    if (*place != 0)
        write_storage(journal, &journal->alive[*place - 1], record, serial);
    else
        journal->head->n_unlisted++;
}

uint64_t bl_journal_n_storages(const bl_journal *journal) { return journal->head->n_storages; }

bool bl_journal_storage_get(const bl_journal *journal, uint64_t serial, bl_storage_record *out)
{
    *out = journal->storages[serial % BL_RING_STORAGES];
    return serial != 0 && out->serial == serial;
}

void bl_journal_storage_name(bl_journal *journal, uint32_t place, uint32_t name)
{
    if (place != 0)
        journal->alive[place - 1].name = name;
}
