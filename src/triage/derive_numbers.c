/* SPDX-License-Identifier: Apache-2.0 */
/* What the numbers in a log mean together: sizes past 2^31, labels and ids beyond their bounds, values that are not
 * finite before a fault, loss scales that collapse, requests that fail one after the other. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/text.h"
#include "triage/case.h"
#include "triage/shapes.h"

#define INT32_LIMIT INT64_C(2147483648) /* 2^31: the first count that does not fit */

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static void write_shape(const bl_text_shape *shape, bl_text *out)
{
    for (int i = 0; i < shape->n_dims; i++)
        bl_text_format(out, "%s%lld", i == 0 ? "[" : ", ", (long long)shape->dims[i]);
    bl_text_add(out, "]");
}

static void derive_size(bl_case *c, bl_signal signal, const bl_event *base, const bl_text_shape *shape, int64_t bytes)
{
    bl_text words = {0};
    bl_event *event = bl_events_derive_bare(c->events, signal, base);
    write_shape(shape, &words);
    if (event == NULL || words.failed) {
        bl_text_fini(&words);
        return;
    }
    bl_event_fact_of(c->events, event, "shape", -1, "%s", bl_text_get(&words));
    bl_event_fact_of(c->events, event, "numel", -1, "%lld", (long long)shape->numel);
    if (bytes > 0)
        bl_event_fact_of(c->events, event, "bytes", -1, "%lld", (long long)bytes);
    bl_event_fact_of(c->events, event, "limit", -1, "%lld", (long long)INT32_LIMIT);
    if (shape->n_name > 0)
        bl_event_fact_of(c->events, event, "tensor", -1, "%.*s", (int)shape->n_name, shape->name);
    bl_text_fini(&words);
}

/* A line that tells of a failure itself, not one that was printed on the way. */
static bool is_error_line(const char *text)
{
    static const char *const words[] = {"Exception", "exception", "Error", "error", "FAIL", "fail"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(text, words[i]) != NULL)
            return true;
    return false;
}

/* The size of a file's elements, by the first of its lines that names one.  The last answer is kept: looking through all
 * lines for each of many shapes would take for ever. */
typedef struct known_size {
    int file, size;
} known_size;

static int default_dtype_size(const bl_case *c, const bl_event *event, known_size *known)
{
    int size = bl_text_dtype_size(event->text);
    if (size != 0)
        return size;
    if (known->size == 0 || known->file != event->file) {
        for (int64_t i = 0; size == 0 && i < bl_events_n(c->events); i++)
            if (bl_events_at(c->events, i)->file == event->file)
                size = bl_text_dtype_size(bl_events_at(c->events, i)->text);
        *known = (known_size){.file = event->file, .size = size == 0 ? 4 : size};
    }
    return known->size;
}

static void judge_shape(bl_case *c, const bl_event *event, const bl_text_shape *shape, known_size *known)
{
    int64_t bytes = INT64_MAX;
    if (shape->numel < INT32_LIMIT / 8) /* of no dtype's size */
        return;
    if (!bl_checked_mul(shape->numel, default_dtype_size(c, event, known), &bytes))
        bytes = INT64_MAX;
    if (shape->numel >= INT32_LIMIT)
        derive_size(c, BL_SIGNAL_number_past_int32, event, shape, 0);
    else if (bytes >= INT32_LIMIT && is_error_line(event->text))
        derive_size(c, BL_SIGNAL_number_bytes_past_int32, event, shape, bytes);
    else if (bytes >= INT32_LIMIT)
        derive_size(c, BL_SIGNAL_number_near_limit, event, shape, bytes);
}

static void judge_shapes(bl_case *c, bl_signal signal)
{
    known_size known = {.size = 0};
    for (const bl_event *event = bl_events_first(c->events, signal); event != NULL; event = event->next) {
        bl_text_shape shape;
        for (int64_t at = 0; bl_text_shape_next(event->text, (int64_t)strlen(event->text), &at, &shape);)
            judge_shape(c, event, &shape, &known);
    }
}

/* "ids >= r fail" beside a table [rows, width] with r the first row whose offset passes 2^31. */
static void judge_bad_rows(bl_case *c)
{
    for (const bl_event *bad = bl_events_first(c->events, BL_SIGNAL_number_first_bad_row); bad != NULL;
         bad = bad->next) {
        int64_t row, end;
        if (!bl_event_number(bad, "row", &row))
            continue;
        for (int s = 0; s < 2; s++) {
            bl_signal signal = s == 0 ? BL_SIGNAL_shape_torch : BL_SIGNAL_shape_plain;
            for (const bl_event *event = bl_events_first(c->events, signal); event != NULL; event = event->next) {
                bl_text_shape shape;
                for (int64_t at = 0; bl_text_shape_next(event->text, (int64_t)strlen(event->text), &at, &shape);)
                    if (shape.n_dims == 2 && row < shape.dims[0] && bl_checked_mul(row + 1, shape.dims[1], &end) &&
                        end > INT32_LIMIT && end - shape.dims[1] - shape.dims[1] <= INT32_LIMIT)
                        derive_size(c, BL_SIGNAL_number_row_crosses, bad, &shape, 0);
            }
        }
    }
}

/* ---- bounds ------------------------------------------------------------------------------------------------------- */

static bool last_number(const bl_case *c, bl_signal signal, const char *name, const bl_event *before, int64_t *out)
{
    bool found = false;
    for (const bl_event *event = bl_events_first(c->events, signal); event != NULL; event = event->next)
        if (event->file != before->file || event->line <= before->line)
            found = bl_event_number(event, name, out) || found;
    return found;
}

static void derive_bound(bl_case *c, bl_signal signal, const bl_event *base, int64_t index, int64_t bound)
{
    bl_event *event = bl_events_derive_bare(c->events, signal, base);
    bl_event_fact_of(c->events, event, "index", -1, "%lld", (long long)index);
    bl_event_fact_of(c->events, event, "bound", -1, "%lld", (long long)bound);
}

/* A list of labels that somebody printed, against the number of classes and the ignore value. */
static void judge_label_list(bl_case *c, const bl_event *event)
{
    int64_t classes, ignored = -100;
    if (!last_number(c, BL_SIGNAL_size_classes, "classes", event, &classes))
        return;
    (void)last_number(c, BL_SIGNAL_number_ignored, "ignore_index", event, &ignored);
    for (const char *at = bl_event_get(event, "values"); at != NULL && *at != '\0';) {
        char *end = NULL;
        errno = 0;
        long long value = strtoll(at, &end, 10);
        if (end == at || errno != 0)
            break;
        if (value != ignored && (value < 0 || value >= classes)) {
            derive_bound(c, BL_SIGNAL_number_label_beyond, event, value, classes);
            return;
        }
        at = end + strspn(end, ", ");
    }
}

static void judge_label_range(bl_case *c, const bl_event *event)
{
    int64_t classes, ignored = -100, low, high;
    if (!last_number(c, BL_SIGNAL_size_classes, "classes", event, &classes) || !bl_event_number(event, "low", &low) ||
        !bl_event_number(event, "high", &high))
        return;
    (void)last_number(c, BL_SIGNAL_number_ignored, "ignore_index", event, &ignored);
    if (high >= classes && high != ignored)
        derive_bound(c, BL_SIGNAL_number_label_beyond, event, high, classes);
    else if (low < 0 && low != ignored)
        derive_bound(c, BL_SIGNAL_number_label_beyond, event, low, classes);
}

static void judge_bounds(bl_case *c)
{
    const bl_event *event;
    int64_t index, bound;
    for (event = bl_events_first(c->events, BL_SIGNAL_number_labels); event != NULL; event = event->next)
        judge_label_list(c, event);
    for (event = bl_events_first(c->events, BL_SIGNAL_number_label_range); event != NULL; event = event->next)
        judge_label_range(c, event);
    for (event = bl_events_first(c->events, BL_SIGNAL_number_id_range); event != NULL; event = event->next)
        if (bl_event_number(event, "index", &index) && bl_event_number(event, "bound", &bound) && index >= bound)
            derive_bound(c, BL_SIGNAL_number_id_beyond, event, index, bound);
}

/* "[3, 512] does not index into [4, 512, 64]": which of the numbers lies beyond its dimension. */
static void compare_vectors(bl_case *c, bl_event *event, const char *indices, const char *shape)
{
    for (int dimension = 0;; dimension++) {
        char *end = NULL, *shape_end = NULL;
        indices += strcspn(indices, "-0123456789");
        shape += strcspn(shape, "0123456789");
        errno = 0;
        long long index = strtoll(indices, &end, 10), bound = strtoll(shape, &shape_end, 10);
        if (end == indices || shape_end == shape || errno != 0)
            return;
        if (index < 0 || index >= bound) {
            bl_event_fact_of(c->events, event, "index", -1, "%lld", index);
            bl_event_fact_of(c->events, event, "bound", -1, "%lld", bound);
            bl_event_fact_of(c->events, event, "dimension", -1, "%d", dimension);
            return;
        }
        indices = end;
        shape = shape_end;
    }
}

static void judge_vectors(bl_case *c)
{
    for (bl_event *event = bl_events_first(c->events, BL_SIGNAL_host_index); event != NULL; event = event->next)
        if (bl_event_get(event, "indices") != NULL && bl_event_get(event, "shape") != NULL)
            compare_vectors(c, event, bl_event_get(event, "indices"), bl_event_get(event, "shape"));
}

static void judge_tokenizer(bl_case *c)
{
    const bl_event *table = bl_events_first(c->events, BL_SIGNAL_size_table);
    const bl_event *tokenizer = bl_events_first(c->events, BL_SIGNAL_size_tokenizer);
    int64_t rows, tokens;
    if (table == NULL || tokenizer == NULL || !bl_event_number(table, "table_rows", &rows) ||
        !bl_event_number(tokenizer, "tokenizer_size", &tokens) || tokens <= rows)
        return;
    bl_event *event = bl_events_derive(c->events, BL_SIGNAL_number_tokenizer_beyond, tokenizer);
    bl_event_fact_of(c->events, event, "table_rows", -1, "%lld", (long long)rows);
}

/* ---- values that are not finite ------------------------------------------------------------------------------------- */

static const bl_event *first_fault(const bl_case *c)
{
    static const bl_signal faults[] = {BL_SIGNAL_error_700, BL_SIGNAL_error_710, BL_SIGNAL_error_719,
                                       BL_SIGNAL_assert_probability};
    const bl_event *first = NULL;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        const bl_event *event = bl_events_first(c->events, faults[i]);
        if (event != NULL && (first == NULL || bl_event_before(event, first)))
            first = event;
    }
    return first;
}

static void judge_nan(bl_case *c)
{
    const bl_event *fault = first_fault(c), *nan = bl_events_first(c->events, BL_SIGNAL_nan_input);
    if (fault != NULL && nan != NULL && bl_event_before(nan, fault))
        (void)bl_events_derive(c->events, BL_SIGNAL_number_nan_before, nan);
}

static bool scale_of(const bl_event *event, double *out)
{
    const char *text = bl_event_get(event, "scale");
    char *end = NULL;
    if (text == NULL)
        return false;
    *out = strtod(text, &end);
    return end != text;
}

/* Ordinary warm-up skips a few steps and stays above 1; a collapse goes on until the scale is nothing. */
static void judge_scale(bl_case *c)
{
    enum { WARM_UP = 20 };
    const bl_event *first = bl_events_first(c->events, BL_SIGNAL_amp_overflow), *last = first, *run = first;
    const char *before = "", *start = "";
    double scale = 0;
    for (const bl_event *event = first; event != NULL; event = event->next) {
        if (event->file == last->file && event->line - last->line > 4) { /* a quiet stretch: the row begins anew */
            run = event;
            start = before;
        }
        last = event;
        if (scale_of(event, &scale))
            before = bl_event_get(event, "scale");
    }
    bool collapsed = last != NULL && scale_of(last, &scale) && scale < 1.0;
    if (!collapsed || bl_events_count(c->events, BL_SIGNAL_amp_overflow) < WARM_UP)
        return;
    bl_event *event = bl_events_derive_bare(c->events, BL_SIGNAL_amp_collapse, run);
    bl_event_fact_of(c->events, event, "final_scale", -1, "%s", bl_event_get(last, "scale"));
    bl_event_fact_of(c->events, event, "start_scale", -1, "%s", start);
    bl_event_fact_of(c->events, event, "skipped_steps", -1, "%lld",
                     (long long)bl_events_count(c->events, BL_SIGNAL_amp_overflow));
}

/* Megatron's lines count the skipped iterations: those that skip all the way to the end, of several lines, with a scale
 * that is used up, are no warm-up. */
static void judge_skipped(bl_case *c)
{
    enum { FEW = 4 };
    const bl_event *first = NULL, *last = NULL;
    int n = 0;
    for (const bl_event *event = bl_events_first(c->events, BL_SIGNAL_ampcount_skipped); event != NULL;
         event = event->next) {
        int64_t skipped = 0;
        bool skips = bl_event_number(event, "skipped", &skipped) && skipped > 0;
        first = !skips ? NULL : first == NULL ? event : first;
        n = skips ? n + 1 : 0;
        last = event;
    }
    double scale = 0;
    if (first == NULL || n < FEW || !scale_of(last, &scale) || scale > 1.0)
        return;
    bl_event *event = bl_events_derive(c->events, BL_SIGNAL_amp_collapse, first);
    bl_event_fact_of(c->events, event, "final_scale", -1, "%s", bl_event_get(last, "scale"));
}

static bool is_finite_loss(const bl_event *step)
{
    return strstr(step->text, "loss") != NULL && strstr(step->text, "nan") == NULL &&
           strstr(step->text, "NaN") == NULL && strstr(step->text, "inf") == NULL;
}

/* Many steps whose loss or gradient is not finite, and none behind them that is. */
static void judge_nan_run(bl_case *c)
{
    enum { FEW = 5 };
    const bl_event *first = bl_events_first(c->events, BL_SIGNAL_nan_loss), *last = first;
    if (first == NULL || bl_events_count(c->events, BL_SIGNAL_nan_loss) < FEW)
        return;
    for (const bl_event *event = first; event != NULL; event = event->next)
        last = event;
    for (const bl_event *step = bl_events_first(c->events, BL_SIGNAL_progress_seen); step != NULL; step = step->next)
        if (step->file == last->file && step->line > last->line && is_finite_loss(step))
            return;
    (void)bl_events_derive(c->events, BL_SIGNAL_nanrun_seen, first);
}

/* ---- allocations that were tried again ---------------------------------------------------------------------------------- */

static bool is_retried(const bl_case *c, const bl_event *failed)
{
    enum { NEAR = 3 };
    for (const bl_event *event = bl_events_first(c->events, BL_SIGNAL_retry_smaller); event != NULL;
         event = event->next)
        if (event->file == failed->file && llabs(event->line - failed->line) <= NEAR)
            return true;
    return false;
}

/* A search for the largest batch runs out of memory by design: then steps or the end of the run follow. */
static void judge_recovery(bl_case *c)
{
    enum { STEPS = 2 };
    const bl_event *last = bl_events_first(c->events, BL_SIGNAL_error_2);
    int n_after = 0;
    if (last == NULL || bl_events_first(c->events, BL_SIGNAL_host_memory) != NULL)
        return;
    for (const bl_event *event = last; event != NULL; last = event, event = event->next)
        if (!is_retried(c, event))
            return;
    static const bl_signal goes_on[] = {BL_SIGNAL_progress_seen, BL_SIGNAL_finished_exit};
    for (size_t i = 0; i < BL_COUNT(goes_on); i++)
        for (const bl_event *event = bl_events_first(c->events, goes_on[i]); event != NULL; event = event->next)
            n_after += event->file == last->file && event->line > last->line;
    if (n_after >= STEPS)
        (void)bl_events_derive(c->events, BL_SIGNAL_memory_recovered, last);
}

/* "45.00 MiB" in bytes; -1 for what is no such number. */
static double bytes_of(const char *text)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    double value = text == NULL ? -1 : strtod(text, &end);
    if (text == NULL || end == text)
        return -1;
    end += strspn(end, " ");
    const char *unit = *end == '\0' ? NULL : strchr(units, toupper((unsigned char)*end));
    for (ptrdiff_t i = 0; unit != NULL && i <= unit - units; i++)
        value *= 1024;
    return value;
}

static bool is_low(const bl_event *event)
{
    const char *digits = bl_event_get(event, "free_bytes");
    double free_bytes = bytes_of(digits != NULL ? digits : bl_event_get(event, "free"));
    double total = bytes_of(bl_event_get(event, "total_bytes"));
    const double enough = 1073741824.0; /* a handle with its workspace takes some hundred MiB */
    return free_bytes < enough && (total <= 0 || free_bytes < total / 8);
}

/* A card with next to nothing free, or that nvidia-smi shows as full, leaves no room for a handle. */
static void judge_full_cards(bl_case *c)
{
    for (const bl_event *event = bl_events_first(c->events, BL_SIGNAL_machine_memory_free); event != NULL;
         event = event->next)
        if (is_low(event))
            (void)bl_events_derive(c->events, BL_SIGNAL_machine_memory_low, event);
    for (const bl_event *event = bl_events_first(c->events, BL_SIGNAL_smimemory_used); event != NULL;
         event = event->next) {
        int64_t used = 0, total = 0;
        if (bl_event_number(event, "used", &used) && bl_event_number(event, "total", &total) && total > 0 &&
            total - used < 512)
            (void)bl_events_derive(c->events, BL_SIGNAL_machine_memory_low, event);
    }
}

/* ---- one failure after the other ------------------------------------------------------------------------------------- */

/* The number behind "req=", "Trial 12", "request 5", -1 for none. */
static int64_t unit_of(const char *text)
{
    static const char *const words[] = {"req=",      "req ",  "request ", "request=", "Trial ",  "trial ",
                                        "job ",      "task ", "query ",   "prompt ",  "sample ", "run ",
                                        "request #", "cell ", "frame ",   "image ",   "file ",   "batch "};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *at = strstr(text, words[i]);
        if (at != NULL && isdigit((unsigned char)at[strlen(words[i])]))
            return strtoll(at + strlen(words[i]), NULL, 10);
    }
    return -1;
}

static void judge_poison(bl_case *c, bl_signal signal)
{
    enum { FEW = 6 };
    const bl_event *first = bl_events_first(c->events, signal), *last = first;
    int64_t first_unit = -1, last_unit = -1, n_units = 0;
    for (const bl_event *event = first; event != NULL; last = event, event = event->next) {
        int64_t unit = unit_of(event->text);
        if (unit < 0 || unit == last_unit)
            continue;
        first_unit = n_units++ == 0 ? unit : first_unit;
        last_unit = unit;
    }
    if (n_units < FEW)
        return;
    bl_event *event = bl_events_derive(c->events, BL_SIGNAL_poisoned_units, first);
    bl_event_fact_of(c->events, event, "first_failed", -1, "%lld", (long long)first_unit);
    bl_event_fact_of(c->events, event, "last_failed", -1, "%lld", (long long)last_unit);
    bl_event_fact_of(c->events, event, "failures", -1, "%lld", (long long)bl_events_count(c->events, signal));
    if (first->time != BL_NO_TIME && last->time != BL_NO_TIME)
        bl_event_fact_of(c->events, event, "hours", -1, "%.1f", (double)(last->time - first->time) / 3.6e9);
}

/* The prompt of an interactive session under which a line stands; NULL. */
static const bl_event *call_of(const bl_case *c, const bl_event *error)
{
    const bl_event *call = NULL;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_callprompt_seen); e != NULL; e = e->next)
        if (e->file == error->file && e->line < error->line && (call == NULL || e->line > call->line))
            call = e;
    return call;
}

/* Calls of one interactive session that fail one after the other, whatever they do. */
static void judge_calls(bl_case *c)
{
    enum { FEW = 3, MOST = 64 };
    static const bl_signal sticky[] = {BL_SIGNAL_error_700, BL_SIGNAL_error_710, BL_SIGNAL_error_715,
                                       BL_SIGNAL_error_716, BL_SIGNAL_error_719};
    for (size_t i = 0; i < BL_COUNT(sticky); i++) {
        const bl_event *first = bl_events_first(c->events, sticky[i]), *calls[MOST];
        int n = 0;
        for (const bl_event *e = first; e != NULL && n < MOST; e = e->next) {
            const bl_event *call = e->file == first->file ? call_of(c, e) : NULL;
            if (call != NULL && (n == 0 || calls[n - 1] != call))
                calls[n++] = call;
        }
        if (n < FEW)
            continue;
        bl_event *event = bl_events_derive(c->events, BL_SIGNAL_poisoned_units, first);
        bl_event_fact_of(c->events, event, "failed_calls", -1, "%d", n);
        return;
    }
}

/* The line behind a traceback, of the same rank, is its exception, whatever it is called. */
static void name_exceptions(bl_case *c)
{
    enum { NEAR = 8 };
    static const bl_signal frames[] = {BL_SIGNAL_trace_user, BL_SIGNAL_trace_library};
    for (const bl_event *event = bl_events_first(c->events, BL_SIGNAL_raised_named); event != NULL;
         event = event->next) {
        bool is_behind = false;
        for (size_t i = 0; i < BL_COUNT(frames); i++)
            for (const bl_event *frame = bl_events_first(c->events, frames[i]); frame != NULL; frame = frame->next)
                is_behind = is_behind || (frame->file == event->file && frame->rank == event->rank &&
                                          frame->line < event->line && event->line - frame->line <= NEAR);
        if (is_behind)
            (void)bl_events_derive(c->events, BL_SIGNAL_host_exception, event);
    }
}

/* ---- places ------------------------------------------------------------------------------------------------------------ */

/* Another frame of the same traceback follows. */
static bool is_followed(const bl_event *frame)
{
    enum { LINES_BETWEEN = 24 };
    for (const bl_event *next = frame->next; next != NULL; next = next->next)
        if (next->file == frame->file && next->rank == frame->rank)
            return next->line > frame->line && next->line - frame->line <= LINES_BETWEEN;
    return false;
}

static void place_of_traces(bl_case *c)
{
    for (const bl_event *frame = bl_events_first(c->events, BL_SIGNAL_trace_user); frame != NULL; frame = frame->next) {
        const char *file = bl_event_get(frame, "file"), *line = bl_event_get(frame, "line");
        if (file == NULL || line == NULL || is_followed(frame))
            continue;
        bl_event *event = bl_events_derive_bare(c->events, BL_SIGNAL_progress_place, frame);
        bl_event_fact_of(c->events, event, "place", -1, "%s:%s", file, line);
    }
}

void bl_derive_numbers(bl_case *c)
{
    judge_shapes(c, BL_SIGNAL_shape_torch);
    judge_shapes(c, BL_SIGNAL_shape_plain);
    judge_bad_rows(c);
    bl_derive_wrapped(c);
    judge_vectors(c);
    judge_bounds(c);
    judge_tokenizer(c);
    judge_nan(c);
    judge_scale(c);
    judge_skipped(c);
    judge_nan_run(c);
    judge_recovery(c);
    judge_full_cards(c);
    judge_poison(c, BL_SIGNAL_error_700);
    judge_poison(c, BL_SIGNAL_error_710);
    judge_poison(c, BL_SIGNAL_error_719);
    judge_calls(c);
    name_exceptions(c);
    place_of_traces(c);
}
