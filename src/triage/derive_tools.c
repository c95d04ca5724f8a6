/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* strcasestr */
/* Reports of tools take many lines: this file puts the lines of one report together (same file, same rank, near each
 * other) and says which kind of fault it shows.  It must never combine lines of two reports or of two ranks. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "triage/case.h"

enum {
    MOST_REPORTS = 256, /* of a kind; more of them say nothing new */
    REPORT_LINES = 64,  /* a report's lines stand this near, other output between them included */
    RACE_LINES = 160,   /* both stacks of a data race */
    DUMP_LINES = 400,   /* a debugger's session after its exception */
    NAME_BYTES = 160
};

/* ---- reading values ----------------------------------------------------------------------------------------------- */

/* "8,589,902,669" */
static bool count_of(const char *text, int64_t *out)
{
    char digits[32];
    size_t n = 0;
    for (; text != NULL && *text != '\0'; text++) {
        if (*text == ',')
            continue;
        if (!isdigit((unsigned char)*text) || n == 18)
            return false;
        digits[n++] = *text;
    }
    if (n == 0)
        return false;
    digits[n] = '\0';
    *out = strtoll(digits, NULL, 10);
    return true;
}

static bool address_of(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    int n = 0;
    if (text == NULL || strncmp(text, "0x", 2) != 0)
        return false;
    for (text += 2; isxdigit((unsigned char)*text) || *text == '_'; text++)
        if (*text != '_') {
            int digit = isdigit((unsigned char)*text) ? *text - '0' : tolower((unsigned char)*text) - 'a' + 10;
            value = value * 16 + (uint64_t)digit;
            n++;
        }
    *out = value;
    return n > 0 && n <= 16;
}

static void copy_name(char out[NAME_BYTES], const char *bytes, size_t n)
{
    n = n < NAME_BYTES ? n : NAME_BYTES - 1;
    memcpy(out, bytes, n);
    out[n] = '\0';
}

/* The last part of a mangled name: _Z4keysPf, _ZN2at4keysEPf. */
static bool unmangle(const char *text, char out[NAME_BYTES])
{
    text += 2;
    bool is_nested = *text == 'N', any = false;
    text += is_nested;
    while (isdigit((unsigned char)*text)) {
        char *end = NULL;
        long length = strtol(text, &end, 10);
        if (length <= 0 || (size_t)length > strlen(end))
            break;
        copy_name(out, end, (size_t)length);
        any = true;
        text = end + length;
        if (!is_nested)
            break;
    }
    return any;
}

/* "void at::native::<unnamed>::keys<float, (int)8>(T1 *, long)" -> "keys" */
static bool kernel_of(const char *signature, char out[NAME_BYTES])
{
    char flat[NAME_BYTES];
    size_t n = 0;
    int depth = 0;
    if (signature == NULL)
        return false;
    if (strncmp(signature, "_Z", 2) == 0)
        return unmangle(signature, out);
    for (const char *c = signature; *c != '\0' && n + 1 < sizeof flat; c++) {
        if (strncmp(c, "(anonymous namespace)", 21) == 0) {
            c += 20;
            continue;
        }
        if (*c == '(' && depth == 0)
            break;
        depth += *c == '<';
        if (depth == 0)
            flat[n++] = *c;
        depth -= *c == '>' && depth > 0;
    }
    while (n > 0 && isspace((unsigned char)flat[n - 1]))
        n--;
    size_t start = n;
    while (start > 0 && (isalnum((unsigned char)flat[start - 1]) || flat[start - 1] == '_'))
        start--;
    copy_name(out, flat + start, n - start);
    return n > start;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static bool has_word(const char *text, const char *const *words)
{
    if (text == NULL)
        return false;
    for (; *words != NULL; words++)
        if (strcasestr(text, *words) != NULL)
            return true;
    return false;
}

/* ---- finding ------------------------------------------------------------------------------------------------------ */

static bool is_same_stream(const bl_event *a, const bl_event *b) { return a->file == b->file && a->rank == b->rank; }

/* The first event of the signal behind `from` in its file and of its rank, before line `end`. */
static bl_event *after(const bl_case *c, bl_signal signal, const bl_event *from, int64_t end)
{
    bl_event *best = NULL;
    for (bl_event *e = bl_events_first(c->events, signal); e != NULL; e = e->next)
        if (is_same_stream(e, from) && e->line > from->line && e->line < end && (best == NULL || e->line < best->line))
            best = e;
    return best;
}

static int64_t end_of(const bl_case *c, bl_signal signal, const bl_event *from, int64_t most)
{
    const bl_event *next = after(c, signal, from, from->line + most);
    return next != NULL ? next->line : from->line + most;
}

static void add_text(const bl_case *c, bl_event *to, const char *name, const char *value)
{
    if (value != NULL)
        bl_event_fact(c->events, to, name, value, (int64_t)strlen(value));
}

/* ---- which kind of kernel ------------------------------------------------------------------------------------------ */

typedef enum kind { KIND_NONE, KIND_TARGET, KIND_EMBEDDING, KIND_GATHER } kind;

static const char *const target_words[] = {"nll_loss",   "nllloss",     "cross_entropy", "crossentropy", "ctc_loss",
                                           "ctcloss",    "ctc_",        "margin_loss",   "xent",         "criterion",
                                           "focal_loss", "classifier_", "label_smooth",  "bce_loss",     NULL};
static const char *const embedding_words[] = {
    "embedding",       "embed_",        "lookup",   "indexselect", "index_select",
    "encoder_forward", "encoder_backw", "get_rows", "wte_",        NULL};
static const char *const gather_words[] = {
    "gather",      "scatter",   "index_put",  "indexput",   "index_kernel", "indexkernel", "index_elementwise",
    "indexfunc",   "index_add", "index_copy", "index_fill", "take_along",   "voxel",       "reshape_and_cache",
    "block_table", "paged_",    "slot_map",   "one_hot",    "csr",          "spmm",        "segment_reduce",
    "hash_",       "kv_cache",  "indirect",   "tile_id",    "unpool",       "indexed",     NULL};

static kind kind_of(const char *text)
{
    if (has_word(text, target_words))
        return KIND_TARGET;
    if (has_word(text, embedding_words))
        return KIND_EMBEDDING;
    return has_word(text, gather_words) ? KIND_GATHER : KIND_NONE;
}

/* ---- compute-sanitizer: one report ----------------------------------------------------------------------------------- */

typedef struct report {
    const bl_event *invalid, *at, *address, *near, *thread;
    char kernel[NAME_BYTES];
    bool has_kernel, has_address, has_near;
    uint64_t where, block;
    int64_t distance, n_access, n_block;
    kind kind;
} report;

static void read_numbers(report *r)
{
    r->has_kernel = r->at != NULL && kernel_of(bl_event_get(r->at, "signature"), r->kernel);
    r->has_address = r->address != NULL && address_of(bl_event_get(r->address, "address"), &r->where);
    if (!count_of(bl_event_get(r->invalid, "access_bytes"), &r->n_access))
        r->n_access = 1;
    if (r->near == NULL)
        return;
    r->has_near = address_of(bl_event_get(r->near, "allocation"), &r->block) &&
                  count_of(bl_event_get(r->near, "allocation_bytes"), &r->n_block);
    (void)count_of(bl_event_get(r->near, "distance"), &r->distance);
}

static report read_report(const bl_case *c, const bl_event *invalid)
{
    int64_t end = end_of(c, BL_SIGNAL_sanitizer_invalid, invalid, REPORT_LINES);
    report r = {.invalid = invalid};
    r.at = after(c, BL_SIGNAL_sanitizer_at_name, invalid, end);
    if (r.at == NULL)
        r.at = after(c, BL_SIGNAL_sanitizer_at, invalid, end);
    r.address = after(c, BL_SIGNAL_sanitizer_address, invalid, end);
    r.near = after(c, BL_SIGNAL_sanitizer_near, invalid, end);
    r.thread = after(c, BL_SIGNAL_sanitizer_thread, invalid, end);
    read_numbers(&r);
    const bl_event *frame = after(c, BL_SIGNAL_sanitizer_frame, invalid, end);
    r.kind = r.has_kernel ? kind_of(r.kernel) : KIND_NONE;
    if (r.kind == KIND_NONE && frame != NULL)
        r.kind = kind_of(bl_event_get(frame, "host_frame"));
    return r;
}

static bl_event *tell(const bl_case *c, bl_signal signal, const report *r)
{
    bl_event *event = bl_events_derive_bare(c->events, signal, r->invalid);
    if (r->has_kernel)
        add_text(c, event, "kernel", r->kernel);
    if (r->at != NULL && bl_event_get(r->at, "source") != NULL)
        add_text(c, event, "source_line", base_name(bl_event_get(r->at, "source")));
    add_text(c, event, "space", bl_event_get(r->invalid, "space"));
    add_text(c, event, "access", bl_event_get(r->invalid, "access"));
    bl_event_fact_of(c->events, event, "access_bytes", -1, "%lld", (long long)r->n_access);
    if (r->address != NULL)
        add_text(c, event, "address", bl_event_get(r->address, "address"));
    if (r->has_near) {
        add_text(c, event, "allocation", bl_event_get(r->near, "allocation"));
        bl_event_fact_of(c->events, event, "allocation_bytes", -1, "%lld", (long long)r->n_block);
        bl_event_fact_of(c->events, event, "distance_bytes", -1, "%lld", (long long)r->distance);
        add_text(c, event, "side", bl_event_get(r->near, "side"));
    }
    return event;
}

/* ---- compute-sanitizer: what a report shows ---------------------------------------------------------------------------- */

static bool side_is(const report *r, const char *side)
{
    return r->has_near && strcmp(bl_event_get(r->near, "side"), side) == 0;
}

static bool is_misaligned(const report *r)
{
    return r->address != NULL && strcmp(bl_event_get(r->address, "why"), "misaligned") == 0;
}

static bool space_is(const report *r, const char *space)
{
    const char *said = bl_event_get(r->invalid, "space");
    return said != NULL && strcmp(said, space) == 0;
}

/* Begins in the block and ends behind it. */
static bool is_straddling(const report *r) { return side_is(r, "inside") && !is_misaligned(r); }

/* Within a few KiB of the block, or within its own length. */
static bool is_near(const report *r)
{
    const int64_t few = 4096, most = INT64_C(16) << 20;
    int64_t reach = r->n_block > few ? r->n_block : few;
    return r->has_near && !side_is(r, "inside") && r->distance <= (reach < most ? reach : most);
}

/* An offset that passed 2^31 counts backwards from the block's begin. */
static bool is_wrapped(const report *r)
{
    int64_t most = INT64_C(1) << 31;
    if (!side_is(r, "before") || r->n_block < most)
        return false;
    return r->distance / (r->n_access > 0 ? r->n_access : 1) <= most;
}

/* Programs and their heaps lie at 0x55.. and 0x56.., stacks at 0x7ff..; no block of the device is anywhere near. */
static bool is_of_host(const report *r)
{
    const int64_t far = INT64_C(1) << 40;
    uint64_t top = r->where >> 40;
    bool looks_so = top == 0x55 || top == 0x56 || (r->where >> 36) == 0x7ff;
    return r->has_address && r->has_near && looks_so && r->distance > far;
}

/* The last mention of expandable segments above the line: 1 on, -1 off, 0 none. */
static int expandable_at(const bl_case *c, const bl_event *at)
{
    const bl_event *last = NULL;
    int state = 0;
    for (int off = 0; off < 2; off++)
        for (const bl_event *e = bl_events_first(c->events, off ? BL_SIGNAL_expandable_off : BL_SIGNAL_expandable_on);
             e != NULL; e = e->next)
            if (e->file == at->file && e->line < at->line && (last == NULL || e->line > last->line)) {
                last = e;
                state = off ? -1 : 1;
            }
    if (state == 0 && bl_events_first(c->events, BL_SIGNAL_expandable_on) != NULL)
        state = bl_events_first(c->events, BL_SIGNAL_expandable_off) == NULL ? 1 : 0;
    return state;
}

static bool is_reported_without(const bl_case *c)
{
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_sanitizer_invalid); e != NULL; e = e->next)
        if (expandable_at(c, e) < 0)
            return true;
    return false;
}

/* Expandable segments are mapped in pieces of 2 or 20 MiB: an access at the border of two is reported though both are
 * one block. */
static bool is_at_border(const bl_case *c, const report *r)
{
    const int64_t piece = INT64_C(2) << 20;
    bool whole_pieces = r->has_near && r->n_block > 0 && r->n_block % piece == 0;
    return whole_pieces && (is_straddling(r) || is_near(r)) && expandable_at(c, r->invalid) > 0 &&
           !is_reported_without(c);
}

static bl_signal signal_by_kernel(const report *r)
{
    switch (r->kind) {
    case KIND_TARGET:
        return BL_SIGNAL_memcheck_target;
    case KIND_EMBEDDING:
        return BL_SIGNAL_memcheck_embedding;
    case KIND_GATHER:
        return BL_SIGNAL_memcheck_gather;
    default:
        return is_near(r) ? BL_SIGNAL_memcheck_near : BL_SIGNAL_memcheck_wild;
    }
}

static void tell_border(const bl_case *c, const report *r)
{
    bl_event *event = tell(c, BL_SIGNAL_memcheck_border, r);
    add_text(c, event, "env", "expandable_segments:True");
    if (bl_events_first(c->events, BL_SIGNAL_expandable_off) != NULL)
        add_text(c, event, "clean_without", "true");
}

static void judge_report(const bl_case *c, const report *r)
{
    const uint64_t low = 65536;
    if (is_misaligned(r))
        (void)tell(c, BL_SIGNAL_sanitizer_misaligned, r);
    else if (space_is(r, "shared"))
        (void)tell(c, BL_SIGNAL_memcheck_shared, r);
    else if (space_is(r, "local"))
        (void)tell(c, BL_SIGNAL_memcheck_local, r);
    else if (is_at_border(c, r))
        tell_border(c, r);
    else if (is_straddling(r))
        (void)tell(c, BL_SIGNAL_memcheck_straddle, r);
    else if (r->has_address && r->where < low)
        (void)tell(c, BL_SIGNAL_memcheck_null, r);
    else if (is_of_host(r))
        (void)tell(c, BL_SIGNAL_memcheck_host, r);
    else if (is_wrapped(r))
        (void)tell(c, BL_SIGNAL_memcheck_wrapped, r);
    else
        (void)tell(c, signal_by_kernel(r), r);
}

/* ---- compute-sanitizer: a clean bill that says nothing ------------------------------------------------------------------ */

static bool is_device_failure(const bl_event *e)
{
    static const char *const words[] = {"illegal memory access", "misaligned address", "unspecified launch failure",
                                        "illegal address", NULL};
    return strncmp(bl_signals[e->signal].name, "sanitizer_", 10) != 0 && bl_signals[e->signal].role == BL_ROLE_FAULT &&
           has_word(e->text, words);
}

/* No error told at the end of a run that itself says that the device failed. */
static void judge_summary(const bl_case *c, const bl_event *summary)
{
    int64_t errors = 1;
    const bl_event *header = NULL;
    if (!count_of(bl_event_get(summary, "errors_reported"), &errors) || errors != 0)
        return;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_sanitizer_header); e != NULL; e = e->next)
        if (is_same_stream(e, summary) && e->line < summary->line && (header == NULL || e->line > header->line))
            header = e;
    for (int64_t i = 0, n = bl_events_n(c->events); header != NULL && i < n; i++) {
        const bl_event *e = bl_events_at(c->events, i);
        if (e->file == summary->file && e->line > header->line && e->line < summary->line && is_device_failure(e)) {
            bl_event *event = bl_events_derive_bare(c->events, BL_SIGNAL_memcheck_blind, summary);
            add_text(c, event, "errors_reported", "0");
            add_text(c, event, "tool", "compute-sanitizer");
            return;
        }
    }
}

static void judge_unattached(const bl_case *c)
{
    const bl_event *first = bl_events_first(c->events, BL_SIGNAL_sanitizer_unattached);
    const bl_event *header = bl_events_first(c->events, BL_SIGNAL_sanitizer_header);
    if (first == NULL)
        return;
    bool is_old = header != NULL && strcmp(bl_event_get(header, "tool"), "CUDA-MEMCHECK") == 0;
    bl_event *event = bl_events_derive_bare(c->events, BL_SIGNAL_sanitizer_unseen, first);
    add_text(c, event, "tool", is_old ? "cuda-memcheck" : "compute-sanitizer");
    add_text(c, event, "attached", "false");
}

static void derive_sanitizer(const bl_case *c)
{
    int n = 0;
    judge_unattached(c);
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_sanitizer_invalid); e != NULL && n < MOST_REPORTS;
         e = e->next, n++) {
        report r = read_report(c, e);
        judge_report(c, &r);
        if (r.has_kernel)
            (void)bl_events_derive_bare(c->events, BL_SIGNAL_sanitizer_named, e);
    }
    n = 0;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_sanitizer_summary); e != NULL && n < MOST_REPORTS;
         e = e->next, n++)
        judge_summary(c, e);
}

/* ---- cuda-gdb and core dumps --------------------------------------------------------------------------------------------- */

typedef struct dump {
    const bl_event *exception, *frame, *pc, *instruction;
    char kernel[NAME_BYTES];
    bool has_kernel;
} dump;

/* What follows the exception in its file; else, where a dump was opened in another file, what stands there. */
static const bl_event *of_dump(const bl_case *c, bl_signal signal, const bl_event *exception)
{
    const bl_event *found = after(c, signal, exception, exception->line + DUMP_LINES);
    const bl_event *first = bl_events_first(c->events, signal);
    if (found != NULL || first == NULL)
        return found;
    for (const bl_event *e = first; e != NULL; e = e->next)
        if (e->file == exception->file || e->file != first->file)
            return NULL; /* of another exception, or one of several dumps */
    return first;
}

/* Of a listing without the debugger's mark, the instruction at the address at which the exception was raised. */
static const bl_event *listed_at(const bl_case *c, const bl_event *exception, const bl_event *pc)
{
    const char *word = pc != NULL ? strstr(pc->text, "PC 0x") : NULL;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_cudagdb_listed); word != NULL && e != NULL;
         e = e->next) {
        const char *at = bl_event_get(e, "at");
        size_t n = strlen(at);
        if (e->file == exception->file && e->line > exception->line && strncmp(word + 3, at, n) == 0 &&
            !isxdigit((unsigned char)word[3 + n]))
            return e;
    }
    return NULL;
}

/* What somebody asked the debugger to print. */
static void tell_printed(const bl_case *c, bl_event *event, const bl_event *exception)
{
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_cudagdb_variable); e != NULL; e = e->next) {
        bool is_near =
            e->file == exception->file && e->line > exception->line && e->line <= exception->line + DUMP_LINES;
        const bl_event *answer = is_near ? after(c, BL_SIGNAL_cudagdb_value, e, e->line + 1) : NULL;
        if (answer == NULL)
            continue;
        add_text(c, event, "variable", bl_event_get(e, "variable"));
        add_text(c, event, "value", bl_event_get(answer, "value"));
    }
}

static dump read_dump(const bl_case *c, const bl_event *exception)
{
    dump d = {.exception = exception};
    d.frame = of_dump(c, BL_SIGNAL_cudagdb_frame, exception);
    d.pc = of_dump(c, BL_SIGNAL_cudagdb_pc, exception);
    d.instruction = of_dump(c, BL_SIGNAL_cudagdb_instruction, exception);
    if (d.instruction == NULL)
        d.instruction = listed_at(c, exception, d.pc);
    d.has_kernel = d.frame != NULL && kernel_of(bl_event_get(d.frame, "signature"), d.kernel);
    if (!d.has_kernel && d.pc != NULL)
        d.has_kernel = kernel_of(bl_event_get(d.pc, "signature"), d.kernel);
    const bl_event *at = after(c, BL_SIGNAL_sanitizer_at_name, exception, exception->line + 8);
    if (at == NULL)
        at = after(c, BL_SIGNAL_sanitizer_at, exception, exception->line + 8);
    if (!d.has_kernel && at != NULL)
        d.has_kernel = kernel_of(bl_event_get(at, "signature"), d.kernel);
    return d;
}

static bool value_of(const char *text, uint64_t *out)
{
    int64_t plain = 0;
    if (address_of(text, out))
        return true;
    if (!count_of(text, &plain))
        return false;
    *out = (uint64_t)plain;
    return true;
}

/* The value of the instruction's register, when the session shows it. */
static bool find_register(const bl_case *c, const bl_event *instruction, uint64_t *out)
{
    const char *name = bl_event_get(instruction, "register");
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_cudagdb_register); e != NULL; e = e->next)
        if (is_same_stream(e, instruction) && strcmp(bl_event_get(e, "register"), name) == 0)
            return value_of(bl_event_get(e, "value"), out);
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_cudagdb_ask); e != NULL; e = e->next) {
        const bl_event *answer = after(c, BL_SIGNAL_cudagdb_value, e, e->line + 4);
        if (is_same_stream(e, instruction) && strcmp(bl_event_get(e, "register"), name) == 0 && answer != NULL)
            return value_of(bl_event_get(answer, "value"), out);
    }
    return false;
}

static bool starts(const char *text, const char *const *heads)
{
    for (; text != NULL && *heads != NULL; heads++)
        if (strcmp(text, *heads) == 0)
            return true;
    return false;
}

static const char *const shared_codes[] = {"STS", "LDS", "ATOMS", "LDSM", "STSM", NULL};
static const char *const local_codes[] = {"STL", "LDL", NULL};

static bl_signal signal_of_global(const dump *d)
{
    switch (d->has_kernel ? kind_of(d->kernel) : KIND_NONE) {
    case KIND_TARGET:
        return BL_SIGNAL_exception_target;
    case KIND_EMBEDDING:
        return BL_SIGNAL_exception_embedding;
    case KIND_GATHER:
        return BL_SIGNAL_exception_gather;
    default:
        return BL_SIGNAL_exception_global;
    }
}

/* The exception's words; its number where it has none that are known. */
static bl_signal signal_of_words(const char *words, int64_t number, const dump *d)
{
    static const char *const range[] = {"OUT_OF_RANGE", "out of range", "out-of-range", NULL};
    static const char *const aligned[] = {"misaligned", NULL}, *const stack[] = {"stack", NULL};
    static const char *const global[] = {"ILLEGAL_ADDRESS", "illegal address", "MMU_FAULT", "MMU fault", NULL};
    if (has_word(words, aligned) || number == 6 || number == 11)
        return BL_SIGNAL_exception_misaligned;
    if (has_word(words, stack) || number == 2 || number == 3 || number == 9 || number == 19 || number == 35)
        return BL_SIGNAL_exception_stack;
    if (has_word(words, range) || number == 5 || number == 32)
        return BL_SIGNAL_exception_window;
    if (has_word(words, global) || number == 1 || number == 10 || number == 14 || number == 30)
        return signal_of_global(d);
    return BL_SIGNAL_exception_other;
}

static bl_signal signal_of(const dump *d)
{
    int64_t number = -1;
    const char *code = d->instruction != NULL ? bl_event_get(d->instruction, "instruction") : NULL;
    (void)bl_event_number(d->exception, "exception_number", &number);
    bl_signal signal = signal_of_words(bl_event_get(d->exception, "exception"), number, d);
    bool is_address = signal != BL_SIGNAL_exception_misaligned && signal != BL_SIGNAL_exception_stack &&
                      signal != BL_SIGNAL_exception_other;
    if (is_address && starts(code, shared_codes))
        return BL_SIGNAL_exception_shared;
    return is_address && starts(code, local_codes) ? BL_SIGNAL_exception_local : signal;
}

static bool is_assert(const bl_event *exception)
{
    static const char *const words[] = {"assert", "breakpoint", "syscall", NULL};
    int64_t number = -1;
    (void)bl_event_number(exception, "exception_number", &number);
    return has_word(bl_event_get(exception, "exception"), words) || number == 12;
}

static void judge_exception(const bl_case *c, const bl_event *exception)
{
    dump d = read_dump(c, exception);
    uint64_t base = 0, displacement = 0;
    if (is_assert(exception))
        return;
    bl_signal signal = signal_of(&d);
    (void)bl_events_derive_bare(c->events, BL_SIGNAL_coredump_named, exception);
    if (signal == BL_SIGNAL_exception_misaligned)
        (void)bl_events_derive_bare(c->events, BL_SIGNAL_sanitizer_misaligned, exception);
    bl_event *event = bl_events_derive_bare(c->events, signal, exception);
    add_text(c, event, "exception", bl_event_get(exception, "exception"));
    add_text(c, event, "exception_number", bl_event_get(exception, "exception_number"));
    if (d.has_kernel)
        add_text(c, event, "kernel", d.kernel);
    if (d.frame != NULL && bl_event_get(d.frame, "source") != NULL)
        add_text(c, event, "source_line", base_name(bl_event_get(d.frame, "source")));
    tell_printed(c, event, exception);
    if (d.instruction == NULL)
        return;
    add_text(c, event, "instruction", bl_event_get(d.instruction, "instruction"));
    (void)address_of(bl_event_get(d.instruction, "displacement"), &displacement);
    if (signal == BL_SIGNAL_exception_shared && find_register(c, d.instruction, &base))
        bl_event_fact_of(c->events, event, "shared_offset", -1, "%" PRIu64, base + displacement);
}

static void derive_exceptions(const bl_case *c)
{
    static const bl_signal signals[] = {BL_SIGNAL_cudagdb_number, BL_SIGNAL_cudagdb_exception,
                                        BL_SIGNAL_sanitizer_exception};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        int n = 0;
        for (const bl_event *e = bl_events_first(c->events, signals[i]); e != NULL && n < MOST_REPORTS;
             e = e->next, n++)
            judge_exception(c, e);
    }
}

/* ---- stacks of a hung process ---------------------------------------------------------------------------------------------- */

/* The thread that a frame belongs to: the last head above it. */
static const bl_event *head_of(const bl_case *c, const bl_event *frame)
{
    const bl_event *head = NULL;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_stackthread_head); e != NULL; e = e->next)
        if (is_same_stream(e, frame) && e->line <= frame->line && (head == NULL || e->line > head->line))
            head = e;
    return head != NULL && frame->line - head->line < REPORT_LINES ? head : NULL;
}

static bool shows_nccl(const bl_case *c, int file)
{
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_stacknccl_frame); e != NULL; e = e->next)
        if (e->file == file)
            return true;
    return false;
}

/* The threads that stand in a call that waits for all work of the device, each by its head and its innermost frame. */
typedef struct blocked_threads {
    const bl_event *head[MOST_REPORTS], *frame[MOST_REPORTS];
    int n;
} blocked_threads;

static bool is_blocked(const blocked_threads *blocked, const bl_event *head)
{
    for (int i = 0; i < blocked->n; i++)
        if (blocked->head[i] == head)
            return true;
    return false;
}

static void find_blocked(const bl_case *c, blocked_threads *out)
{
    int looked = 0;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_stackblock_call); e != NULL && looked < MOST_REPORTS;
         e = e->next, looked++) {
        const bl_event *head = head_of(c, e);
        if (head == NULL || is_blocked(out, head))
            continue;
        out->head[out->n] = head;
        out->frame[out->n++] = e;
    }
}

/* Threads that wait for the device; *first is the first such frame. */
static int count_waiting(const bl_case *c, const blocked_threads *blocked, const bl_event **first, bool *sees_nccl)
{
    const bl_event *counted = NULL;
    int n = 0, looked = 0;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_stackwait_call); e != NULL && looked < MOST_REPORTS;
         e = e->next, looked++) {
        const bl_event *head = head_of(c, e);
        if (head == NULL || head == counted || is_blocked(blocked, head))
            continue;
        counted = head;
        *first = *first == NULL ? e : *first;
        *sees_nccl = *sees_nccl || shows_nccl(c, e->file);
        n++;
    }
    return n;
}

static void derive_stacks(const bl_case *c)
{
    blocked_threads blocked = {.n = 0};
    const bl_event *waiting = NULL;
    bool sees_nccl = false;
    find_blocked(c, &blocked);
    int n_waiting = blocked.n > 0 ? count_waiting(c, &blocked, &waiting, &sees_nccl) : 0;
    if (n_waiting == 0 || !(sees_nccl || shows_nccl(c, blocked.frame[0]->file)))
        return;
    const bl_event *frame = blocked.frame[0];
    bl_event *event = bl_events_derive_bare(c->events, BL_SIGNAL_stack_blocked, frame);
    add_text(c, event, "blocked_call", bl_event_get(frame, "blocked_call"));
    add_text(c, event, "thread", bl_event_get(blocked.head[0], "thread"));
    const bl_event *device =
        after(c, BL_SIGNAL_stackdevice_frame, frame, end_of(c, BL_SIGNAL_stackthread_head, frame, REPORT_LINES));
    if (device != NULL)
        add_text(c, event, "device", bl_event_get(device, "device"));
    event = bl_events_derive_bare(c->events, BL_SIGNAL_stack_waits, waiting);
    add_text(c, event, "waiting_call", bl_event_get(waiting, "waiting_call"));
    bl_event_fact_of(c->events, event, "waiting_threads", -1, "%d", n_waiting);
}

/* The dump of a process that a line belongs to, by the line that begins it; 0 where dumps have no such lines. */
static int64_t process_of(const bl_case *c, const bl_event *frame)
{
    int64_t begin = 0;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_stackprocess_head); e != NULL; e = e->next)
        if (is_same_stream(e, frame) && e->line <= frame->line && e->line > begin)
            begin = e->line;
    return begin;
}

/* Two threads of one process, each in a collective of another name. */
static void derive_two_collectives(const bl_case *c)
{
    int looked = 0;
    for (const bl_event *a = bl_events_first(c->events, BL_SIGNAL_stackcollective_frame);
         a != NULL && looked < MOST_REPORTS; a = a->next, looked++) {
        const bl_event *b = a->next, *head = head_of(c, a), *other = b != NULL ? head_of(c, b) : NULL;
        if (head == NULL || other == NULL || head == other || !is_same_stream(a, b) ||
            process_of(c, a) != process_of(c, b) ||
            strcmp(bl_event_get(a, "collective"), bl_event_get(b, "collective")) == 0)
            continue;
        bl_event *event = bl_events_derive_bare(c->events, BL_SIGNAL_stack_collectives, a);
        add_text(c, event, "collective", bl_event_get(a, "collective"));
        add_text(c, event, "collective", bl_event_get(b, "collective"));
        return;
    }
}

/* ---- PyTorch's stream sanitizer ---------------------------------------------------------------------------------------------- */

static void add_access(const bl_case *c, bl_event *to, const bl_event *access, int64_t end)
{
    const bl_event *mode = after(c, BL_SIGNAL_csan_mode, access, end);
    const bl_event *operation = after(c, BL_SIGNAL_csan_operation, access, end);
    bool writes = mode != NULL && strcmp(bl_event_get(mode, "mode"), "writing to") == 0;
    add_text(c, to, writes ? "stream_write" : "stream_read", bl_event_get(access, "stream"));
    if (operation != NULL)
        add_text(c, to, writes ? "op_write" : "op_read", bl_event_get(operation, "operation"));
}

/* The innermost line of the program: the last frame of the stack. */
static void add_place(const bl_case *c, bl_event *to, const bl_event *access, int64_t end)
{
    const bl_event *last = NULL;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_csan_frame); e != NULL; e = e->next)
        if (is_same_stream(e, access) && e->line > access->line && e->line < end &&
            strstr(e->text, "/site-packages/") == NULL && (last == NULL || e->line > last->line))
            last = e;
    if (last != NULL)
        bl_event_fact_of(c->events, to, "place", -1, "%s:%s", bl_event_get(last, "frame_file"),
                         bl_event_get(last, "frame_line"));
}

static void judge_race(const bl_case *c, const bl_event *race)
{
    int64_t end = end_of(c, BL_SIGNAL_csan_race, race, RACE_LINES);
    bl_event *event = bl_events_derive_bare(c->events, BL_SIGNAL_csanrace_pair, race);
    add_text(c, event, "data_ptr", bl_event_get(race, "data_ptr"));
    const bl_event *access = after(c, BL_SIGNAL_csan_access, race, end);
    if (access == NULL)
        return;
    const bl_event *previous = after(c, BL_SIGNAL_csan_access, access, end);
    int64_t end_of_first = previous != NULL ? previous->line : end;
    add_access(c, event, access, end_of_first);
    add_place(c, event, access, end_of_first);
    if (previous == NULL)
        return;
    const bl_event *made = after(c, BL_SIGNAL_csan_allocation, previous, end);
    add_access(c, event, previous, made != NULL ? made->line : end);
    add_place(c, event, previous, made != NULL ? made->line : end);
}

static void derive_races(const bl_case *c)
{
    int n = 0;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_csan_race); e != NULL && n < MOST_REPORTS;
         e = e->next, n++)
        judge_race(c, e);
}

/* ---- a signal inside of MPI ------------------------------------------------------------------------------------------------- */

static bool is_null(const char *text)
{
    uint64_t address = 0;
    const uint64_t low = 65536;
    return text != NULL && (strcmp(text, "(nil)") == 0 || (address_of(text, &address) && address < low));
}

/* The list names transports, and none that can read the device. */
static bool leaves_cuda_out(const char *list)
{
    return list != NULL && strstr(list, "cuda") == NULL && strstr(list, "all") == NULL && strchr(list, '^') == NULL;
}

/* The address lies in an array of the device that the program printed. */
static bool is_on_device(const bl_case *c, const char *address)
{
    const uint64_t near = 1048576; /* where a size is not told */
    uint64_t at, base;
    int64_t count = 0;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_mpidevice_array); e != NULL; e = e->next)
        if (address != NULL && address_of(address, &at) && address_of(bl_event_get(e, "base"), &base) && at >= base &&
            at - base < (bl_event_number(e, "count", &count) && count > 0 ? (uint64_t)count : near))
            return true;
    return false;
}

static void judge_signal(const bl_case *c, const bl_event *signal)
{
    const int64_t end = signal->line + REPORT_LINES;
    const bl_event *failing = after(c, BL_SIGNAL_mpiaddress_failing, signal, end);
    const bl_event *call = after(c, BL_SIGNAL_mpiframe_call, signal, end);
    const bl_event *copy = call != NULL ? after(c, BL_SIGNAL_mpiframe_copy, signal, call->line) : NULL;
    const bl_event *move = call != NULL ? after(c, BL_SIGNAL_mpiframe_move, signal, call->line) : NULL;
    const char *address = bl_event_get(signal, "address");
    if (address == NULL && failing != NULL)
        address = bl_event_get(failing, "address");
    if ((copy == NULL && move == NULL) || is_null(address))
        return;
    const bl_event *no = bl_events_first(c->events, BL_SIGNAL_mpiaware_no);
    const bl_event *device = bl_events_first(c->events, BL_SIGNAL_mpidevice_buffer);
    bool is_sure = no != NULL || device != NULL || is_on_device(c, address);
    bl_event *event =
        bl_events_derive_bare(c->events, is_sure ? BL_SIGNAL_mpicopy_unaware : BL_SIGNAL_mpicopy_seen, signal);
    const char *number = bl_event_get(signal, "signal");
    add_text(c, event, "signal", number != NULL ? number : "11");
    add_text(c, event, "function", bl_event_get(call, "function"));
    add_text(c, event, "frame", copy != NULL ? bl_event_get(copy, "frame") : bl_event_get(move, "move"));
    add_text(c, event, "address", address);
    const bl_event *place = after(c, BL_SIGNAL_mpiplace_frame, call, end);
    if (place != NULL)
        add_text(c, event, "place", bl_event_get(place, "place"));
    const bl_event *transports = bl_events_first(c->events, BL_SIGNAL_mpitls_list);
    if (transports != NULL && leaves_cuda_out(bl_event_get(transports, "ucx_tls")))
        add_text(c, event, "ucx_tls", bl_event_get(transports, "ucx_tls"));
}

/* One process reads the memory of its neighbour: an address of the device is none of the CPU's. */
static void judge_neighbour_copy(const bl_case *c)
{
    const bl_event *copy = bl_events_first(c->events, BL_SIGNAL_mpisignal_cma);
    bool is_sure = bl_events_first(c->events, BL_SIGNAL_mpiaware_no) != NULL ||
                   bl_events_first(c->events, BL_SIGNAL_mpidevice_buffer) != NULL;
    if (copy == NULL)
        return;
    bl_event *event =
        bl_events_derive_bare(c->events, is_sure ? BL_SIGNAL_mpicopy_unaware : BL_SIGNAL_mpicopy_seen, copy);
    add_text(c, event, "length", bl_event_get(copy, "length"));
}

static void derive_mpi(const bl_case *c)
{
    judge_neighbour_copy(c);
    static const bl_signal signals[] = {BL_SIGNAL_mpisignal_openmpi, BL_SIGNAL_mpisignal_ucx,
                                        BL_SIGNAL_mpisignal_mvapich, BL_SIGNAL_mpisignal_gdb};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        int n = 0;
        for (const bl_event *e = bl_events_first(c->events, signals[i]); e != NULL && n < MOST_REPORTS;
             e = e->next, n++)
            judge_signal(c, e);
    }
}

/* ---- facts that the derived events carry better ------------------------------------------------------------------------------ */

typedef struct raw_fact {
    bl_signal signal;
    const char *name;
} raw_fact;

static const raw_fact raw_facts[] = {
    {BL_SIGNAL_sanitizer_at, "signature"},
    {BL_SIGNAL_sanitizer_at, "source"},
    {BL_SIGNAL_sanitizer_at_name, "signature"},
    {BL_SIGNAL_sanitizer_at_name, "source"},
    {BL_SIGNAL_sanitizer_near, "distance"},
    {BL_SIGNAL_sanitizer_near, "allocation_bytes"},
    {BL_SIGNAL_sanitizer_address, "why"},
    {BL_SIGNAL_sanitizer_header, "tool"},
    {BL_SIGNAL_cudagdb_pc, "signature"},
    {BL_SIGNAL_cudagdb_frame, "signature"},
    {BL_SIGNAL_cudagdb_frame, "source"},
    {BL_SIGNAL_cudagdb_instruction, "displacement"},
    {BL_SIGNAL_cudagdb_instruction, "register"},
    {BL_SIGNAL_cudagdb_listed, "register"},
    {BL_SIGNAL_cudagdb_listed, "at"},
    {BL_SIGNAL_cudagdb_listed, "displacement"},
    {BL_SIGNAL_cudagdb_listed, "modifiers"},
    {BL_SIGNAL_cudagdb_instruction, "modifiers"},
    {BL_SIGNAL_csan_frame, "frame_file"},
    {BL_SIGNAL_csan_frame, "frame_line"},
};

static void drop_fact(bl_event *event, const char *name)
{
    int kept = 0;
    for (int i = 0; i < event->n_facts; i++)
        if (strcmp(event->facts[i].name, name) != 0)
            event->facts[kept++] = event->facts[i];
    event->n_facts = kept;
}

static void drop_raw_facts(const bl_case *c)
{
    for (size_t i = 0; i < sizeof raw_facts / sizeof raw_facts[0]; i++)
        for (bl_event *e = bl_events_first(c->events, raw_facts[i].signal); e != NULL; e = e->next)
            drop_fact(e, raw_facts[i].name);
}

void bl_derive_tools(bl_case *c)
{
    derive_sanitizer(c);
    derive_exceptions(c);
    derive_stacks(c);
    derive_two_collectives(c);
    derive_races(c);
    derive_mpi(c);
    drop_raw_facts(c);
}
