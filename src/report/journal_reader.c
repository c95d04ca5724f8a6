/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a journal: every offset, size and number in it is checked before it is used.  It is read from a copy: the file
 * may be written, cut or replaced at any time. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "file/reader.h"
#include "report/journal.h"
#include "report/site.h"

enum { JOURNAL_LIMIT = 1 << 30 };

struct bl_journal_reader {
    char *bytes;
    int64_t n_bytes;
    bl_journal_head head;
};

static int section_fits(const bl_journal_section *s, int64_t n_bytes)
{
    return s->offset <= (uint64_t)n_bytes && s->n_bytes <= (uint64_t)n_bytes - s->offset && s->offset % 8 == 0;
}

static const char *refuse(const bl_journal_reader *r)
{
    const bl_journal_head *h = &r->head;
    const bl_journal_section *all[] = {&h->ops,      &h->codes,    &h->modules, &h->strings, &h->sites,
                                       &h->launches, &h->storages, &h->alive,   &h->streams};
    if (h->magic != BL_JOURNAL_MAGIC)
        return "its first bytes are not a journal's";
    if (h->version != BL_JOURNAL_VERSION)
        return "it was written by another version";
    if (h->launch_bytes != sizeof(bl_launch_record) || h->storage_bytes != sizeof(bl_storage_record) ||
        h->stream_bytes != sizeof(bl_stream_record))
        return "its records have another size";
    for (int i = 0; i < BL_COUNT(all); i++)
        if (!section_fits(all[i], r->n_bytes))
            return "a section lies outside of the file";
    if (h->launches.n_bytes < sizeof(bl_launch_record) || h->storages.n_bytes < sizeof(bl_storage_record))
        return "a ring has no room for a record";
    return NULL;
}

belay_code bl_journal_reader_take(const char *path, char *bytes, int64_t n_bytes, bl_journal_reader **out,
                                  bl_error *error)
{
    *out = NULL;
    bl_journal_reader *reader = bl_alloc(1, sizeof *reader);
    if (reader == NULL) {
        bl_free(bytes);
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to read %s", path);
    }
    *reader = (bl_journal_reader){.bytes = bytes, .n_bytes = n_bytes};
    const char *why = "it is shorter than a journal's head";
    if (n_bytes >= (int64_t)sizeof reader->head) {
        memcpy(&reader->head, bytes, sizeof reader->head);
        why = refuse(reader);
    }
    if (why == NULL) {
        *out = reader;
        return BELAY_OK;
    }
    bl_journal_reader_close(reader);
    bl_error_set(error, BELAY_FILE_FORMAT, "%s is no journal", path);
    bl_error_fact(error, "%s", why);
    return BELAY_FILE_FORMAT;
}

belay_code bl_journal_reader_open(const char *path, bl_journal_reader **out, bl_error *error)
{
    char *bytes = NULL;
    int64_t n_bytes = 0;
    *out = NULL;
    TRY(bl_file_read_whole(path, JOURNAL_LIMIT, &bytes, &n_bytes, error));
    return bl_journal_reader_take(path, bytes, n_bytes, out, error);
}

void bl_journal_reader_close(bl_journal_reader *reader)
{
    if (reader == NULL)
        return;
    bl_free(reader->bytes);
    bl_free(reader);
}

const bl_journal_head *bl_journal_reader_head(const bl_journal_reader *reader) { return &reader->head; }

static const char *bytes_of(const bl_journal_reader *r, const bl_journal_section *s) { return r->bytes + s->offset; }

int bl_journal_reader_launch(const bl_journal_reader *r, uint64_t serial, bl_launch_record *out)
{
    uint64_t capacity = r->head.launches.n_bytes / sizeof *out;
    uint64_t last = r->head.n_launches;
    serial = serial == 0 ? last : serial;
    memcpy(out, bytes_of(r, &r->head.launches) + serial % capacity * sizeof *out, sizeof *out);
    bool is_whole = serial != 0 && out->serial == serial && out->n_operands <= BL_MAX_OPERANDS;
    for (int k = 0; is_whole && k < out->n_operands; k++)
        is_whole = out->operand[k].rank <= BL_MAX_RANK;
    return is_whole;
}

int bl_journal_reader_storage(const bl_journal_reader *r, uint64_t serial, bl_storage_record *out)
{
    uint64_t capacity = r->head.storages.n_bytes / sizeof *out;
    serial = serial == 0 ? r->head.n_storages : serial;
    memcpy(out, bytes_of(r, &r->head.storages) + serial % capacity * sizeof *out, sizeof *out);
    return serial != 0 && out->serial == serial;
}

int64_t bl_journal_reader_n_places(const bl_journal_reader *r)
{
    return (int64_t)(r->head.alive.n_bytes / sizeof(bl_storage_record));
}

int bl_journal_reader_alive(const bl_journal_reader *r, int64_t place, bl_storage_record *out)
{
    if (place < 0 || place >= bl_journal_reader_n_places(r))
        return false;
    memcpy(out, bytes_of(r, &r->head.alive) + (uint64_t)place * sizeof *out, sizeof *out);
    return out->serial != 0;
}

int bl_journal_reader_n_streams(const bl_journal_reader *r)
{
    uint64_t n = r->head.streams.n_bytes / sizeof(bl_stream_record);
    return n < BL_TABLE_STREAMS ? (int)n : BL_TABLE_STREAMS;
}

int bl_journal_reader_stream(const bl_journal_reader *r, int row, bl_stream_record *out)
{
    if (row < 0 || row >= bl_journal_reader_n_streams(r))
        return false;
    memcpy(out, bytes_of(r, &r->head.streams) + (uint64_t)row * sizeof *out, sizeof *out);
    out->device[sizeof out->device - 1] = '\0';
    return out->is_open != 0;
}

/* The text at an offset of a section, when it ends inside of it. */
static const char *text_at(const bl_journal_reader *r, const bl_journal_section *s, uint64_t offset)
{
    const char *base = bytes_of(r, s);
    if (offset >= s->n_bytes || memchr(base + offset, '\0', s->n_bytes - offset) == NULL)
        return "?";
    return base + offset;
}

const char *bl_journal_reader_op(const bl_journal_reader *r, uint32_t op)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < op; i++) {
        const char *text = text_at(r, &r->head.ops, at);
        if (text[0] == '?' && text[1] == '\0')
            return text;
        at += strlen(text) + 1;
    }
    return text_at(r, &r->head.ops, at);
}

const char *bl_journal_reader_text(const bl_journal_reader *r, uint32_t number)
{
    return text_at(r, &r->head.strings, number);
}

uint64_t bl_journal_reader_site(const bl_journal_reader *r, uint32_t site)
{
    uint64_t address = 0;
    if (site < r->head.sites.n_bytes / sizeof address)
        memcpy(&address, bytes_of(r, &r->head.sites) + site * sizeof address, sizeof address);
    return address;
}

/* A line of the module map: "start-end offset path". */
typedef struct module_line {
    uint64_t start, end, offset;
    const char *path;
    int path_length;
} module_line;

static bool parse_module(const char *line, const char *end, module_line *out)
{
    char numbers[64];
    const char *path = memchr(line, '/', (size_t)(end - line));
    if (path == NULL || path - line >= (int)sizeof numbers || end - path > 4096)
        return false;
    memcpy(numbers, line, (size_t)(path - line));
    numbers[path - line] = '\0';
    char *at;
    out->start = strtoull(numbers, &at, 16);
    out->end = *at == '-' ? strtoull(at + 1, &at, 16) : 0;
    out->offset = strtoull(at, &at, 16);
    out->path = path;
    out->path_length = (int)(end - path);
    return out->end > out->start;
}

static bool find_module(const bl_journal_reader *r, uint64_t address, module_line *out)
{
    const char *at = bytes_of(r, &r->head.modules), *end = at + r->head.modules.n_bytes;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = newline != NULL ? newline : end;
        if (parse_module(at, line_end, out) && address >= out->start && address < out->end)
            return true;
        at = line_end + 1;
    }
    return false;
}

void bl_journal_reader_describe_site(const bl_journal_reader *r, uint32_t site, char *out, size_t size)
{
    uint64_t address = bl_journal_reader_site(r, site);
    module_line module;
    if ((address & BL_SITE_LABEL) != 0) {
        snprintf(out, size, "%s", bl_journal_reader_text(r, (uint32_t)address));
    } else if (address == 0 || !find_module(r, address - 1, &module)) {
        snprintf(out, size, "unknown");
    } else {
        char path[4097];
        snprintf(path, sizeof path, "%.*s", module.path_length, module.path);
        bl_report_site_in(path, address - module.start + module.offset, out, size);
    }
}
