/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/text.h"
#include "report/journal.h"
#include "triage/journal_join.h"
#include "triage/journal_launch.h"
#include "triage/journal_storage.h"

enum { MOST_ADDRESSES = 16, MOST_LAUNCHES = 4, NAME_SHOWN = 64, SITE_BYTES = 160, LOW = 65536 };

typedef struct journal {
    bl_journal_reader *reader;
    int file;
} journal;

struct bl_journals {
    journal *list;
    int n;
    int64_t capacity, n_bytes;
    bl_text lines;
};

bl_journals *bl_journals_new(void) { return bl_alloc(1, sizeof(bl_journals)); }

void bl_journals_free(bl_journals *journals)
{
    if (journals == NULL)
        return;
    for (int i = 0; i < journals->n; i++)
        bl_journal_reader_close(journals->list[i].reader);
    bl_free(journals->list);
    bl_text_fini(&journals->lines);
    bl_free(journals);
}

const char *bl_journals_lines(const bl_journals *journals) { return bl_text_get(&journals->lines); }

/* ---- reading --------------------------------------------------------------------------------------------------------- */

bool bl_journals_claim(bl_input *input)
{
    uint64_t magic = 0;
    return bl_input_peek(input, (char *)&magic, sizeof magic) == sizeof magic && magic == BL_JOURNAL_MAGIC;
}

static void add_escaped(bl_text *out, const char *text)
{
    bl_text_add_escaped(out, text, (int64_t)strlen(text), NAME_SHOWN);
}

static void add_path(bl_text *out, const char *path) { bl_text_add_escaped(out, path, (int64_t)strlen(path), 4096); }

/* The whole stream on the heap, at most one byte more than a journal may have; NULL without memory. */
static char *read_whole(bl_input *input, int64_t *n_bytes)
{
    char *bytes = NULL;
    int64_t capacity = 0, n = 0, n_read = 1;
    while (n_read > 0 && n <= BL_JOURNAL_MOST) {
        int64_t wanted = bl_min_i64(n == 0 ? 1 << 18 : 2 * n, BL_JOURNAL_MOST + 1);
        if (!bl_grow(&bytes, &capacity, wanted, 1)) {
            bl_free(bytes);
            return NULL;
        }
        n_read = bl_input_read(input, bytes + n, wanted - n);
        n += n_read;
    }
    *n_bytes = n;
    return bytes;
}

/* Tells why a journal is not used. */
static void pass_over(bl_journals *journals, const char *path, const char *why)
{
    add_path(&journals->lines, path);
    bl_text_format(&journals->lines, ": %s\n", why);
}

belay_code bl_journals_read(bl_journals *journals, bl_input *input, int file, bl_error *error)
{
    const char *path = bl_input_path(input);
    int64_t n_bytes = 0;
    char *bytes = read_whole(input, &n_bytes);
    if (bytes == NULL || !bl_grow(&journals->list, &journals->capacity, journals->n + 1, sizeof(journal))) {
        bl_free(bytes);
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to read %s", path);
    }
    bl_journal_reader *reader = NULL;
    bl_error refusal = {0};
    if (n_bytes > BL_JOURNAL_MOST || n_bytes > BL_JOURNALS_MOST - journals->n_bytes) {
        bl_free(bytes);
        pass_over(journals, path, "a journal that was left out: it or all of them together are too large");
        return BELAY_OK;
    }
    belay_code code = bl_journal_reader_take(path, bytes, n_bytes, &reader, &refusal);
    if (code == BELAY_MEM_EXHAUSTED) {
        *error = refusal;
        return code;
    }
    if (code != BELAY_OK) {
        refusal.facts[strcspn(refusal.facts, "\n")] = '\0';
        bl_text_format(&journals->lines, "%s", "a damaged journal, not used: ");
        pass_over(journals, path, refusal.facts);
        return BELAY_OK;
    }
    journals->list[journals->n++] = (journal){.reader = reader, .file = file};
    journals->n_bytes += n_bytes;
    return BELAY_OK;
}

/* ---- launches --------------------------------------------------------------------------------------------------------- */

static void add_fact(bl_case *c, bl_event *event, const char *name, const char *value)
{
    if (value[0] != '\0' && strcmp(value, "?") != 0)
        bl_event_fact(c->events, event, name, value, (int64_t)strnlen(value, 200));
}

static void add_number(bl_case *c, bl_event *event, const char *name, uint64_t value)
{
    bl_event_fact_of(c->events, event, name, -1, "%" PRIu64, value);
}

static void add_launch_facts(bl_case *c, bl_event *event, const bl_journal_reader *reader,
                             const bl_launch_record *launch)
{
    char site[SITE_BYTES];
    bl_journal_reader_describe_site(reader, launch->site, site, sizeof site);
    add_fact(c, event, "op", bl_journal_reader_op(reader, launch->op));
    add_fact(c, event, "layer", bl_journal_reader_text(reader, launch->layer));
    add_fact(c, event, "site", site);
    add_number(c, event, "launch", launch->serial);
    add_number(c, event, "epoch", launch->epoch);
    add_number(c, event, "batch", launch->position);
    add_number(c, event, "step", launch->step);
}

/* ---- how the process ended ------------------------------------------------------------------------------------------- */

/* Whether the process that wrote the journal has it mapped even now. */
static bool is_being_written(const char *path, uint32_t pid)
{
    struct stat status;
    char maps_path[32], line[512], inode[32];
    if (strcmp(path, "-") == 0 || stat(path, &status) != 0)
        return false;
    snprintf(maps_path, sizeof maps_path, "/proc/%u/maps", pid);
    snprintf(inode, sizeof inode, " %ju ", (uintmax_t)status.st_ino);
    FILE *maps = fopen(maps_path, "re");
    bool found = false;
    while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL)
        found = strstr(line, inode) != NULL;
    if (maps != NULL)
        fclose(maps);
    return found;
}

/* A line that fails, in any of the logs. */
static bool has_failure(const bl_case *c)
{
    for (int s = 0; s < BL_N_SIGNALS; s++)
        if ((bl_signals[s].role == BL_ROLE_FAULT || bl_signals[s].role == BL_ROLE_ECHO) &&
            bl_events_first(c->events, (bl_signal)s) != NULL)
            return true;
    return false;
}

static void add_moment(bl_text *out, int64_t seconds)
{
    struct tm parts;
    char words[40];
    time_t moment = (time_t)seconds;
    if (seconds > 0 && seconds < INT64_C(253402300800) && gmtime_r(&moment, &parts) != NULL &&
        strftime(words, sizeof words, ", begun %Y-%m-%d %H:%M:%S UTC", &parts) > 0)
        bl_text_add(out, words);
}

static bl_event *derive_at(bl_case *c, bl_signal signal, int file, const char *text)
{
    bl_event *event = bl_events_derive(c->events, signal, NULL);
    if (event == NULL)
        return NULL;
    event->file = file;
    event->rank = c->sources[file].rank;
    event->text = bl_events_text(c->events, text);
    return event;
}

/* Where the last launch was, and what was in flight: of each stream the first. */
static void add_flight_facts(bl_journals *journals, bl_case *c, bl_event *event, const bl_journal_reader *reader,
                             const bl_launch_record *launch)
{
    bl_journal_stream stream;
    uint64_t n = 0;
    for (int row = 0; row < bl_journal_reader_n_streams(reader); row++) {
        if (!bl_journal_stream_read(reader, row, &stream))
            continue;
        bl_text words = {0};
        bl_journal_stream_words(reader, &stream, &words);
        if (launch->stream == (uint32_t)row && launch->serial > stream.row.opened_after) {
            add_fact(c, event, "stream", bl_text_get(&words));
            add_fact(c, event, "launch_state", bl_journal_launch_state(&stream, launch));
        }
        if (stream.first.serial != 0) {
            bl_text_add(&words, ": ");
            bl_journal_launch_words(reader, &stream.first, &words);
            bl_text_format(&words, ", %s", bl_journal_launch_state(&stream, &stream.first));
            add_fact(c, event, "first_in_flight", bl_text_get(&words));
        }
        journals->lines.failed = journals->lines.failed || words.failed;
        bl_text_fini(&words);
        n += stream.n_launches;
    }
    add_number(c, event, "in_flight", n);
}

/* Of a process that ended without a word: its last launch, as facts and as a line. */
static void derive_end(bl_journals *journals, bl_case *c, const journal *j, bool is_alone,
                       const bl_launch_record *launch, const char *words)
{
    bl_event *event = derive_at(c, is_alone ? BL_SIGNAL_journal_killed : BL_SIGNAL_journal_last, j->file, words);
    if (event == NULL)
        return;
    add_number(c, event, "pid", bl_journal_reader_head(j->reader)->pid);
    if (launch == NULL)
        return;
    add_launch_facts(c, event, j->reader, launch);
    add_flight_facts(journals, c, event, j->reader, launch);
}

static void tell_end(bl_journals *journals, bl_case *c, const journal *j, bool is_alone)
{
    const bl_journal_head *head = bl_journal_reader_head(j->reader);
    const char *path = c->sources[j->file].path;
    bl_launch_record launch;
    bool has_launch = bl_journal_reader_launch(j->reader, 0, &launch);
    bool is_closed = head->closed == 1, runs = !is_closed && is_being_written(path, head->pid);
    bl_text words = {0};
    bl_text_format(&words, "process %u", head->pid);
    add_moment(&words, head->started);
    bl_text_add(&words, is_closed ? ", closed in order" : runs ? ", still running" : ", never closed");
    bl_text_add(&words, has_launch ? "; its last launch was " : "; it launched nothing that can be read");
    if (has_launch)
        bl_journal_launch_words(j->reader, &launch, &words);
    add_path(&journals->lines, path);
    bl_text_format(&journals->lines, ": %s\n", bl_text_get(&words));
    if (!is_closed)
        bl_journal_streams_tell(j->reader, &journals->lines);
    if (!is_closed && !runs)
        derive_end(journals, c, j, is_alone, has_launch ? &launch : NULL, bl_text_get(&words));
    journals->lines.failed = journals->lines.failed || words.failed;
    bl_text_fini(&words);
}

/* ---- addresses ------------------------------------------------------------------------------------------------------- */

typedef struct address {
    uint64_t value;
    const bl_event *event;
} address;

/* "0x7fb9_3ce0004c" and "7fb93ce0004c"; decimal for a name that says so. */
static bool read_address(const char *text, bool is_decimal, uint64_t *out)
{
    uint64_t value = 0;
    int n = 0;
    if (text[0] == '0' && text[1] == 'x')
        text += 2;
    for (; *text != '\0'; text++) {
        int digit = *text >= '0' && *text <= '9'                  ? *text - '0'
                    : *text >= 'a' && *text <= 'f' && !is_decimal ? *text - 'a' + 10
                    : *text >= 'A' && *text <= 'F' && !is_decimal ? *text - 'A' + 10
                                                                  : -1;
        if (*text == '_' && !is_decimal)
            continue;
        if (digit < 0 || n++ == 16)
            return false;
        value = value * (is_decimal ? 10 : 16) + (uint64_t)digit;
    }
    *out = value;
    return value >= LOW; /* below lies no storage: a null pointer and an offset */
}

static bool address_of(const bl_fact *fact, uint64_t *out)
{
    static const char *const names[] = {"address", "pointer", "data_ptr", "captured_pointer", "later_pointer"};
    for (int i = 0; i < BL_COUNT(names); i++)
        if (strcmp(fact->name, names[i]) == 0)
            return read_address(fact->value, i == 2, out);
    return false;
}

/* The different addresses of the case in the order of their events. */
static int list_addresses(const bl_case *c, address out[MOST_ADDRESSES])
{
    int n = 0;
    for (int64_t i = 0; i < bl_events_n(c->events); i++) {
        const bl_event *event = bl_events_at(c->events, i);
        for (int f = 0; f < event->n_facts && n < MOST_ADDRESSES; f++) {
            uint64_t value;
            bool is_new = address_of(&event->facts[f], &value);
            for (int k = 0; is_new && k < n; k++)
                is_new = out[k].value != value;
            if (is_new)
                out[n++] = (address){.value = value, .event = event};
        }
    }
    return n;
}

/* The journal may be that of the process that the line speaks of. */
static bool may_belong(const bl_case *c, const journal *j, const bl_event *event)
{
    int rank = c->sources[j->file].rank;
    return rank < 0 || event->rank < 0 || rank == event->rank;
}

static bool has_same_pid(const bl_journals *journals, const bl_event *event)
{
    for (int i = 0; i < journals->n; i++)
        if (event->pid >= 0 && bl_journal_reader_head(journals->list[i].reader)->pid == (uint64_t)event->pid)
            return true;
    return false;
}

/* "; made in step 0 at model.c:33, 12 launches before the end". */
static void add_moment_of_life(const bl_journal_reader *reader, const char *what, uint64_t step, uint32_t site,
                               uint64_t launch, bl_text *out)
{
    char words[SITE_BYTES];
    uint64_t last = bl_journal_reader_head(reader)->n_launches;
    bl_journal_reader_describe_site(reader, site, words, sizeof words);
    bl_text_format(out, "; %s in step %" PRIu64 "%s", what, step, words[0] != '\0' ? " at " : "");
    add_escaped(out, words);
    if (launch < last)
        bl_text_format(out, ", %" PRIu64 " launch%s before the end", last - launch, last - launch == 1 ? "" : "es");
    else
        bl_text_add(out, ", after the last launch");
}

/* "64 bytes behind the end of 'embedding.weight' (24 bytes at 0x..., alive; made in step 0 at model.c:33, 12 launches
 * before the end)". */
static void add_storage(const bl_journal_reader *reader, const bl_storage_hit *hit, bl_text *out)
{
    const bl_storage_life *life = hit->life;
    if (hit->place == BL_PLACE_INSIDE)
        bl_text_format(out, "is byte %" PRIu64 " of '", hit->distance);
    else if (hit->place == BL_PLACE_BEHIND)
        bl_text_format(out, "lies %" PRIu64 " bytes behind the end of '", hit->distance);
    else
        bl_text_format(out, "lies %" PRIu64 " bytes before '", hit->distance);
    add_escaped(out, life->name != 0 ? bl_journal_reader_text(reader, life->name) : "a tensor without a name");
    bl_text_format(out, "' (%" PRIu64 " bytes at 0x%" PRIx64 ", %s", life->n_bytes, life->address,
                   life->is_alive ? "alive" : "freed");
    if (life->is_born)
        add_moment_of_life(reader, "made", life->birth_step, life->birth_site, life->birth_launch, out);
    if (life->has_died)
        add_moment_of_life(reader, "freed", life->death_step, life->death_site, life->death_launch, out);
    bl_text_add(out, ")");
}

/* The operand of a launch that names the storage; NULL for none.  One that is written wins. */
static const bl_operand_record *operand_of(const bl_launch_record *launch, uint64_t storage)
{
    const bl_operand_record *found = NULL;
    for (int k = 0; k < launch->n_operands; k++)
        if (launch->operand[k].storage == storage && launch->operand[k].address != 0 &&
            (found == NULL || launch->operand[k].is_output != 0))
            found = &launch->operand[k];
    return found;
}

static void tell_launches(bl_journals *journals, bl_case *c, const bl_journal_reader *reader,
                          const bl_storage_life *life, bl_event *event)
{
    const bl_journal_head *head = bl_journal_reader_head(reader);
    uint64_t capacity = head->launches.n_bytes / sizeof(bl_launch_record), n_seen = 0;
    bl_launch_record launch;
    for (uint64_t back = 0; back < capacity && back < head->n_launches; back++) {
        if (!bl_journal_reader_launch(reader, head->n_launches - back, &launch))
            continue;
        const bl_operand_record *operand = operand_of(&launch, life->storage);
        if (operand == NULL || n_seen++ >= MOST_LAUNCHES)
            continue;
        bl_text words = {0};
        bl_journal_launch_words(reader, &launch, &words);
        add_fact(c, event, "touched_by", bl_text_get(&words));
        bl_text_format(&journals->lines, "    it is %s by launch %s\n", operand->is_output != 0 ? "written" : "read",
                       bl_text_get(&words));
        journals->lines.failed = journals->lines.failed || words.failed;
        bl_text_fini(&words);
    }
    if (n_seen > MOST_LAUNCHES)
        bl_text_format(&journals->lines, "    and by %" PRIu64 " launches before\n", n_seen - MOST_LAUNCHES);
    if (n_seen == 0)
        bl_text_add(&journals->lines, "    no launch that is still in the journal names it\n");
}

static void add_hit_facts(bl_case *c, bl_event *event, const bl_journal_reader *reader, const bl_storage_hit *hit)
{
    static const char *const places[] = {"inside", "behind", "before"};
    char site[SITE_BYTES];
    const bl_storage_life *life = hit->life;
    add_fact(c, event, "tensor", bl_journal_reader_text(reader, life->name));
    add_fact(c, event, "tensor_state", life->is_alive ? "alive" : "freed");
    add_fact(c, event, "tensor_place", places[hit->place]);
    add_number(c, event, hit->place == BL_PLACE_INSIDE ? "tensor_offset" : "tensor_distance", hit->distance);
    add_number(c, event, "tensor_bytes", life->n_bytes);
    if (life->is_born) {
        bl_journal_reader_describe_site(reader, life->birth_site, site, sizeof site);
        add_number(c, event, "tensor_made_step", life->birth_step);
        add_fact(c, event, "tensor_made_at", site);
        if (life->birth_launch <= bl_journal_reader_head(reader)->n_launches)
            add_number(c, event, "tensor_age_launches",
                       bl_journal_reader_head(reader)->n_launches - life->birth_launch);
    }
    if (life->has_died) {
        bl_journal_reader_describe_site(reader, life->death_site, site, sizeof site);
        add_number(c, event, "tensor_freed_step", life->death_step);
        add_fact(c, event, "tensor_freed_at", site);
    }
}

static void tell_hit(bl_journals *journals, bl_case *c, const journal *j, const address *a, const bl_storage_hit *hit)
{
    bl_text_format(&journals->lines, "0x%" PRIx64 " (", a->value);
    if (a->event->file >= 0) {
        add_path(&journals->lines, c->sources[a->event->file].path);
        bl_text_format(&journals->lines, ":%" PRId64 ") ", a->event->line);
    } else {
        bl_text_add(&journals->lines, "of the logs) ");
    }
    add_storage(j->reader, hit, &journals->lines);
    bl_text_add(&journals->lines, "\n");
    bl_event *event = bl_events_derive_bare(c->events, BL_SIGNAL_journal_address, a->event);
    if (event != NULL)
        add_hit_facts(c, event, j->reader, hit);
    tell_launches(journals, c, j->reader, hit->life, event);
}

static bool join(bl_journals *journals, bl_case *c, const journal *j, const address *addresses, int n)
{
    bl_storage_list storages;
    if (!bl_storage_list_init(j->reader, &storages))
        return false;
    for (int i = 0; i < n; i++) {
        bl_storage_hit hits[2];
        bool is_other = has_same_pid(journals, addresses[i].event) &&
                        bl_journal_reader_head(j->reader)->pid != (uint64_t)addresses[i].event->pid;
        int n_hits = is_other || !may_belong(c, j, addresses[i].event)
                         ? 0
                         : bl_storage_list_find(&storages, addresses[i].value, hits);
        for (int h = 0; h < n_hits; h++)
            tell_hit(journals, c, j, &addresses[i], &hits[h]);
    }
    bl_storage_list_fini(&storages);
    return true;
}

bool bl_journals_derive(bl_journals *journals, bl_case *c)
{
    address addresses[MOST_ADDRESSES];
    bool is_alone = !has_failure(c), ok = true;
    int n = journals->n > 0 ? list_addresses(c, addresses) : 0;
    for (int i = 0; i < journals->n; i++)
        tell_end(journals, c, &journals->list[i], is_alone);
    for (int i = 0; ok && n > 0 && i < journals->n; i++)
        ok = join(journals, c, &journals->list[i], addresses, n);
    return ok && !journals->lines.failed;
}
