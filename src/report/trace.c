/* SPDX-License-Identifier: Apache-2.0 */
#include "report/trace.h"

#include <inttypes.h>
#include <pthread.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "file/atomic.h"
#include "file/path.h"
#include "report/fault_words.h"
#include "report/json.h"

struct bl_trace {
    pthread_mutex_t lock;
    bl_file_append *file;
    int64_t base, limit;
    uint64_t n_left_out;
    bl_text line;     /* kept, so that an event needs no memory of its own */
    bl_error failure; /* the first */
};

static void note_failure(bl_trace *t, belay_code code, const bl_error *error)
{
    if (code != BELAY_OK && t->failure.code == BELAY_OK)
        t->failure = *error;
}

/* A line that could not be written stays buffered and counts: closing tries it again. */
static bool is_empty(const bl_trace *t) { return bl_file_append_size(t->file) == 0; }

/* Events begin with the comma that parts them from the one before, so that a list needs nothing but its "]". */
static void begin(bl_trace *t, const char *kind, int device, int stream)
{
    pthread_mutex_lock(&t->lock);
    bl_text_clear(&t->line);
    bl_text_format(&t->line, "%s{\"ph\":\"%s\",\"pid\":%d", is_empty(t) ? "[" : ",", kind, device);
    if (stream >= 0)
        bl_text_format(&t->line, ",\"tid\":%d", stream);
}

static void put(bl_trace *t)
{
    bl_error error = {0};
    belay_code code = t->line.failed
                          ? bl_error_set(&error, BELAY_MEM_EXHAUSTED, "no memory to write an event of the trace")
                          : bl_file_append_line(t->file, bl_text_get(&t->line), t->line.n_bytes, &error);
    note_failure(t, code, &error);
    t->line.failed = false;
}

/* Faults may pass the limit by an eighth. */
static void end(bl_trace *t, bool is_fault)
{
    int64_t limit = is_fault ? t->limit + t->limit / 8 : t->limit;
    bl_text_add(&t->line, "}");
    if (t->failure.code == BELAY_OK && bl_file_append_size(t->file) + t->line.n_bytes < limit)
        put(t);
    else
        t->n_left_out++;
    pthread_mutex_unlock(&t->lock);
}

static void add_text(bl_trace *t, const char *key, const char *value)
{
    bl_text_add(&t->line, ",");
    bl_report_json_string(key, value, &t->line);
}

static void add_time(bl_trace *t, const char *key, int64_t nanoseconds)
{
    int64_t n = bl_max_i64(nanoseconds, 0);
    bl_text_format(&t->line, ",\"%s\":%" PRId64 ".%03d", key, n / 1000, (int)(n % 1000));
}

static bool is_told(const char *text) { return text != NULL && text[0] != '\0'; }

/* Members of "args", which stand last. */
static void add_arguments(bl_trace *t, const bl_trace_span *span)
{
    const char *comma = "";
    bl_text_add(&t->line, ",\"args\":{");
    if (is_told(span->site)) {
        bl_report_json_string("site", span->site, &t->line);
        comma = ",";
    }
    if (is_told(span->layer)) {
        bl_text_add(&t->line, comma);
        bl_report_json_string("layer", span->layer, &t->line);
        comma = ",";
    }
    if (span->launch != 0) {
        bl_text_format(&t->line, "%s\"launch\":%" PRIu64, comma, span->launch);
        comma = ",";
    }
    bl_text_format(&t->line, "%s\"step\":%" PRIu64 "}", comma, span->step);
}

void bl_trace_name(bl_trace *t, int device, int stream, const char *name)
{
    if (t == NULL)
        return;
    begin(t, "M", device, stream);
    add_text(t, "name", stream < 0 ? "process_name" : "thread_name");
    bl_text_add(&t->line, ",\"args\":{");
    bl_report_json_string("name", name, &t->line);
    bl_text_add(&t->line, "}");
    end(t, false);
}

void bl_trace_span_add(bl_trace *t, const bl_trace_span *span)
{
    if (t == NULL)
        return;
    begin(t, "X", span->device, span->stream);
    add_text(t, "name", span->name);
    add_time(t, "ts", span->start - t->base);
    add_time(t, "dur", span->end - span->start);
    if (span->launch != 0)
        bl_text_format(&t->line, ",\"bind_id\":\"0x%" PRIx64 "\",\"%s\":true", span->launch,
                       span->device == BL_TRACE_HOST ? "flow_out" : "flow_in");
    add_arguments(t, span);
    end(t, false);
}

void bl_trace_fault(bl_trace *t, int device, int stream, int64_t at, const bl_report_fault *fault)
{
    if (t == NULL)
        return;
    bl_text words = {0};
    bl_report_fault_describe(fault, &words);
    begin(t, "i", device, stream);
    bl_text_add(&t->line, ",\"s\":\"p\"");
    add_text(t, "name", belay_code_name(fault->code));
    add_text(t, "cat", "fault");
    add_time(t, "ts", at - t->base);
    bl_text_add(&t->line, ",\"args\":{");
    bl_report_json_string("text", bl_text_get(&words), &t->line);
    if (fault->site[0] != '\0')
        add_text(t, "site", fault->site);
    if (fault->launch != 0)
        bl_text_format(&t->line, ",\"launch\":%" PRIu64, fault->launch);
    bl_text_add(&t->line, "}");
    end(t, true);
    bl_text_fini(&words);
    bl_trace_flush(t);
}

void bl_trace_counter(bl_trace *t, int device, const char *name, int64_t at, int64_t value)
{
    if (t == NULL)
        return;
    begin(t, "C", device, -1);
    add_text(t, "name", name);
    add_time(t, "ts", at - t->base);
    bl_text_format(&t->line, ",\"args\":{\"value\":%" PRId64 "}", value);
    end(t, false);
}

void bl_trace_flush(bl_trace *t)
{
    if (t == NULL)
        return;
    bl_error error = {0};
    pthread_mutex_lock(&t->lock);
    if (t->failure.code == BELAY_OK)
        note_failure(t, bl_file_append_flush(t->file, &error), &error);
    pthread_mutex_unlock(&t->lock);
}

static void discard(bl_trace *t)
{
    pthread_mutex_destroy(&t->lock);
    bl_text_fini(&t->line);
    bl_free(t);
}

belay_code bl_trace_open(const char *path, int64_t limit, bl_trace **out, bl_error *error)
{
    *out = NULL;
    bl_trace *t = bl_alloc(1, sizeof *t);
    if (t == NULL)
        return bl_file_no_memory(error, "write", path);
    pthread_mutex_init(&t->lock, NULL);
    t->base = bl_clock_now();
    t->limit = limit > 0 ? limit : BL_TRACE_LIMIT;
    belay_code code = bl_file_append_open(path, BL_FILE_KEEP_NONE, &t->file, error);
    if (code != BELAY_OK) {
        discard(t);
        return code;
    }
    bl_trace_name(t, BL_TRACE_HOST, -1, "host");
    *out = t;
    return BELAY_OK;
}

/* The end of the list; what did not fit stands before it as an event of its own. */
static void end_list(bl_trace *t)
{
    if (t->n_left_out > 0) {
        begin(t, "i", BL_TRACE_HOST, 0);
        bl_text_add(&t->line, ",\"s\":\"g\",\"name\":\"events left out\"");
        add_time(t, "ts", bl_clock_now() - t->base);
        bl_text_format(&t->line, ",\"args\":{\"count\":%" PRIu64 "}}", t->n_left_out);
        put(t);
        pthread_mutex_unlock(&t->lock);
    }
    bl_text_clear(&t->line);
    bl_text_add(&t->line, is_empty(t) ? "[]" : "]");
    put(t);
}

belay_code bl_trace_close(bl_trace *t, bl_error *error)
{
    if (t == NULL)
        return BELAY_OK;
    bl_error late = {0};
    end_list(t);
    note_failure(t, bl_file_append_close(t->file, &late), &late);
    belay_code code = t->failure.code;
    if (code != BELAY_OK && error != NULL)
        *error = t->failure;
    discard(t);
    return code;
}
