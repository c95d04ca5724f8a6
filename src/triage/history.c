/* SPDX-License-Identifier: Apache-2.0 */
#include "triage/history.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/text.h"
#include "file/atomic.h"
#include "file/path.h"
#include "file/reader.h"
#include "triage/cursor.h"

enum { bytes_most = BL_HISTORY_MOST * 256, gpus_most = 256 };

static const char head[] = "# belay gpu history 1\ttime\tmark\tcode\tpid\tgpc\ttpc\tprogram\n";

typedef struct gpu {
    char identity[BL_HISTORY_GPU];
    bl_history_event events[BL_HISTORY_MOST];
    int n_events;
    bool is_changed;
    bool is_unread; /* there is a file that could not be read: it must not be replaced */
} gpu;

struct bl_history {
    char *folder; /* "" for none */
    bool is_off;
    gpu **gpus;
    int64_t n_gpus, capacity;
    char note[320];
};

/* ---- the place ------------------------------------------------------------------------------------------------------ */

/* A folder that is not given in full is none (XDG base directories). */
static const char *absolute(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && value[0] == '/' ? value : NULL;
}

static bool find_folder(const bl_history_options *options, bl_text *out)
{
    const char *state = absolute("XDG_STATE_HOME"), *home = absolute("HOME");
    if (options->is_off)
        return true;
    if (options->folder != NULL)
        bl_text_add(out, options->folder);
    else if (state != NULL)
        bl_text_format(out, "%s/belay/gpu", state);
    else if (home != NULL)
        bl_text_format(out, "%s/.local/state/belay/gpu", home);
    return !out->failed;
}

belay_code bl_history_open(const bl_history_options *options, bl_history **out, bl_error *error)
{
    static const bl_history_options defaults = {0};
    bl_text folder = {0};
    *out = NULL;
    if (options == NULL)
        options = &defaults;
    bl_history *history = bl_alloc(1, sizeof *history);
    if (history != NULL && find_folder(options, &folder))
        history->folder = bl_strdup(bl_text_get(&folder));
    bl_text_fini(&folder);
    if (history == NULL || history->folder == NULL) {
        bl_history_close(history);
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the history of the GPUs");
    }
    history->is_off = options->is_off || history->folder[0] == '\0';
    if (history->is_off && !options->is_off)
        snprintf(history->note, sizeof history->note,
                 "There is no place for the history of the GPUs: neither XDG_STATE_HOME nor HOME is set.");
    *out = history;
    return BELAY_OK;
}

void bl_history_close(bl_history *history)
{
    if (history == NULL)
        return;
    for (int64_t i = 0; i < history->n_gpus; i++)
        bl_free(history->gpus[i]);
    bl_free((void *)history->gpus);
    bl_free(history->folder);
    bl_free(history);
}

const char *bl_history_folder(const bl_history *history) { return history->is_off ? "" : history->folder; }

const char *bl_history_note(const bl_history *history) { return history->note; }

/* ---- identities and marks --------------------------------------------------------------------------------------- */

static void append_safe(char identity[BL_HISTORY_GPU], const char *text)
{
    size_t n = strlen(identity);
    for (; *text != '\0' && n < BL_HISTORY_GPU - 1; text++)
        if (bl_byte_is_word(*text) || *text == '-' || (*text == '.' && n > 0))
            identity[n++] = *text;
    identity[n] = '\0';
}

void bl_history_identity(const char *uuid, const char *host, const char *pci, char identity[BL_HISTORY_GPU])
{
    identity[0] = '\0';
    append_safe(identity, uuid);
    if (identity[0] != '\0')
        return;
    append_safe(identity, host);
    append_safe(identity, "-");
    append_safe(identity, pci);
}

uint64_t bl_history_mark(const char *text, int64_t n_bytes, int64_t time)
{
    uint64_t mark = UINT64_C(0xcbf29ce484222325);
    for (int64_t i = 0; i < n_bytes; i++)
        mark = (mark ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    for (int i = 0; i < 64; i += 8)
        mark = (mark ^ (((uint64_t)time >> i) & 0xFF)) * UINT64_C(0x100000001b3);
    return mark;
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

/* A signed number, then a tab. */
static bool read_number(bl_cursor *c, int64_t most, int64_t *out)
{
    bool is_negative = bl_cursor_take(c, "-");
    if (!bl_cursor_count(c, most, out) || !bl_cursor_take(c, "\t"))
        return false;
    if (is_negative)
        *out = -*out;
    return true;
}

static bool read_small(bl_cursor *c, int *out)
{
    int64_t value;
    if (!read_number(c, 255, &value))
        return false;
    *out = (int)value;
    return value >= -1;
}

static bool read_event(const char *line, int64_t n_bytes, bl_history_event *event)
{
    bl_cursor c = {line, line + n_bytes};
    *event = (bl_history_event){0};
    if (!read_number(&c, INT64_MAX / 2, &event->time) || !bl_cursor_hex(&c, 16, 16, &event->mark) ||
        !bl_cursor_take(&c, "\t") || !read_number(&c, 99999, &event->code) || event->code < 0 ||
        !read_number(&c, INT32_MAX, &event->pid) || event->pid < -1 || !read_small(&c, &event->gpc) ||
        !read_small(&c, &event->tpc))
        return false;
    int64_t n = bl_cursor_left(&c);
    if (n >= BL_HISTORY_PROGRAM || memchr(c.at, '\0', (size_t)n) != NULL || memchr(c.at, '\t', (size_t)n) != NULL)
        return false;
    memcpy(event->program, c.at, (size_t)n);
    return true;
}

static bool has_mark(const gpu *g, uint64_t mark)
{
    for (int i = 0; i < g->n_events; i++)
        if (g->events[i].mark == mark)
            return true;
    return false;
}

/* Keeps the order of time; the oldest goes when there is no room. */
static bool put_event(gpu *g, const bl_history_event *event)
{
    if (has_mark(g, event->mark))
        return false;
    int at = g->n_events;
    while (at > 0 && g->events[at - 1].time > event->time)
        at--;
    if (g->n_events == BL_HISTORY_MOST) {
        if (at == 0)
            return false;
        memmove(g->events, g->events + 1, (size_t)(at - 1) * sizeof *g->events);
        at--;
    } else {
        memmove(g->events + at + 1, g->events + at, (size_t)(g->n_events - at) * sizeof *g->events);
        g->n_events++;
    }
    g->events[at] = *event;
    return true;
}

static void read_lines(bl_history *history, gpu *g, const char *bytes, int64_t n_bytes)
{
    int64_t n_bad = 0;
    for (int64_t at = 0; at < n_bytes;) {
        const char *end = memchr(bytes + at, '\n', (size_t)(n_bytes - at));
        int64_t n_line = end == NULL ? n_bytes - at : end - (bytes + at);
        bl_history_event event;
        if (bytes[at] != '#' && n_line > 0) {
            if (end != NULL && read_event(bytes + at, n_line, &event))
                put_event(g, &event);
            else
                n_bad++;
        }
        at += n_line + 1;
    }
    if (n_bad > 0)
        snprintf(history->note, sizeof history->note,
                 "%" PRId64 " lines of the history of %s could not be read and are left out.", n_bad, g->identity);
}

static char *path_of(const bl_history *history, const char *identity)
{
    char name[BL_HISTORY_GPU + 8];
    snprintf(name, sizeof name, "%s.tsv", identity);
    return bl_file_join(history->folder, name);
}

/* A file that cannot be read is as none, and is told.  One that is too large is none of ours, and begins anew. */
static void read_file(bl_history *history, gpu *g)
{
    bl_error error = {0};
    char *path = path_of(history, g->identity), *bytes = NULL;
    int64_t n_bytes;
    belay_code code = BELAY_OK;
    if (path == NULL)
        code = bl_file_no_memory(&error, "read the history of", g->identity);
    else if (bl_file_kind_get(path) != BL_FILE_ABSENT)
        code = bl_file_read_whole(path, bytes_most, &bytes, &n_bytes, &error);
    if (bytes != NULL)
        read_lines(history, g, bytes, n_bytes);
    g->is_unread = code != BELAY_OK && code != BELAY_FILE_LIMIT;
    if (code != BELAY_OK)
        snprintf(history->note, sizeof history->note, "The history of %s is left out: %.160s.", g->identity,
                 error.what);
    bl_free(bytes);
    bl_free(path);
}

static gpu *find_known(const bl_history *history, const char *identity)
{
    for (int64_t i = 0; i < history->n_gpus; i++)
        if (strcmp(history->gpus[i]->identity, identity) == 0)
            return history->gpus[i];
    return NULL;
}

/* Whether a GPU of that name can have a file, and there is room for one more. */
static bool can_hold(const bl_history *history, const char *identity)
{
    size_t n = strlen(identity);
    return !history->is_off && history->n_gpus < gpus_most && n > 0 && n < BL_HISTORY_GPU && identity[0] != '.' &&
           strchr(identity, '/') == NULL;
}

/* NULL: no memory, or it cannot be held. */
static gpu *find(bl_history *history, const char *identity)
{
    gpu *known = find_known(history, identity);
    if (known != NULL || !can_hold(history, identity) ||
        !bl_grow((void *)&history->gpus, &history->capacity, history->n_gpus + 1, sizeof(gpu *)))
        return known;
    gpu *g = bl_alloc(1, sizeof *g);
    if (g == NULL)
        return NULL;
    memcpy(g->identity, identity, strlen(identity) + 1);
    history->gpus[history->n_gpus++] = g;
    read_file(history, g);
    return g;
}

/* ---- use --------------------------------------------------------------------------------------------------------------- */

const bl_history_event *bl_history_get(bl_history *history, const char *identity, int *n_events)
{
    const gpu *g = find(history, identity);
    *n_events = g == NULL ? 0 : g->n_events;
    return *n_events == 0 ? NULL : g->events;
}

/* A program's name comes from a log: one line, no tabs. */
static void clean(char program[BL_HISTORY_PROGRAM])
{
    program[BL_HISTORY_PROGRAM - 1] = '\0';
    for (char *at = program; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7F)
            *at = '?';
}

static int in_range(int value) { return value >= 0 && value <= 255 ? value : -1; }

belay_code bl_history_add(bl_history *history, const char *identity, const bl_history_event *event, bl_error *error)
{
    if (find_known(history, identity) == NULL && !can_hold(history, identity))
        return BELAY_OK;
    gpu *g = find(history, identity);
    if (g == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the history of the GPU '%.80s'", identity);
    bl_history_event copy = *event;
    clean(copy.program);
    copy.gpc = in_range(copy.gpc);
    copy.tpc = in_range(copy.tpc);
    copy.pid = copy.pid < 0 || copy.pid > INT32_MAX ? -1 : copy.pid;
    if (copy.code < 0 || copy.code > 99999 || copy.time < 0 || copy.time > INT64_MAX / 2)
        return BELAY_OK;
    if (put_event(g, &copy))
        g->is_changed = true;
    return BELAY_OK;
}

static void count_event(bl_history_count *count, const bl_history_event *events, int at, int first, int64_t code)
{
    bool is_new_pid = events[at].pid >= 0, is_new_program = events[at].program[0] != '\0';
    for (int i = first; i < at; i++) {
        if (code != 0 && events[i].code != code)
            continue;
        is_new_pid = is_new_pid && events[i].pid != events[at].pid;
        is_new_program = is_new_program && strcmp(events[i].program, events[at].program) != 0;
    }
    count->first = count->n_events == 0 ? events[at].time : count->first;
    count->last = events[at].time;
    count->n_events++;
    count->n_pids += is_new_pid;
    count->n_programs += is_new_program;
}

bl_history_count bl_history_count_get(bl_history *history, const char *identity, int64_t code, int64_t since)
{
    bl_history_count count = {0};
    int n, first = 0;
    const bl_history_event *events = bl_history_get(history, identity, &n);
    for (int i = 0; i < n; i++)
        if (events[i].code == 0 || events[i].time < since)
            first = i + 1;
    for (int i = first; i < n; i++)
        if (code == 0 || events[i].code == code)
            count_event(&count, events, i, first, code);
    return count;
}

/* ---- writing ----------------------------------------------------------------------------------------------------------- */

static belay_code save_gpu(bl_history *history, gpu *g, bl_error *error)
{
    bl_text text = {0};
    bl_text_add(&text, head);
    for (int i = 0; i < g->n_events; i++) {
        const bl_history_event *e = &g->events[i];
        bl_text_format(&text, "%" PRId64 "\t%016" PRIx64 "\t%" PRId64 "\t%" PRId64 "\t%d\t%d\t%s\n", e->time, e->mark,
                       e->code, e->pid, e->gpc, e->tpc, e->program);
    }
    char *path = path_of(history, g->identity);
    belay_code code =
        text.failed || path == NULL
            ? bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the history of the GPU '%s'", g->identity)
            : bl_file_replace(path, text.bytes, text.n_bytes, error);
    g->is_changed = g->is_changed && code != BELAY_OK;
    bl_text_fini(&text);
    bl_free(path);
    return code;
}

belay_code bl_history_save(bl_history *history, bl_error *error)
{
    bool has_folder = false;
    for (int64_t i = 0; !history->is_off && i < history->n_gpus; i++) {
        if (!history->gpus[i]->is_changed || history->gpus[i]->is_unread)
            continue;
        if (!has_folder)
            TRY(bl_file_mkdir(history->folder, error));
        has_folder = true;
        TRY(save_gpu(history, history->gpus[i], error));
    }
    return BELAY_OK;
}
