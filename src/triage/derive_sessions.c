/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memrchr, strcasestr */
/* A log may hold several runs of one program, each with another setting.  This file cuts the logs into runs, sees which
 * failed and which passed, and finds the setting that alone parts them.  A pair that other runs contradict says nothing:
 * a difference narrows the cause, it never proves it. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "triage/case.h"

enum { MOST_ITEMS = 2048, MOST_RUNS = 192, UNKNOWN = -1 };

/* ---- settings ------------------------------------------------------------------------------------------------------- */

typedef enum family {
    BLOCKING,
    PEER,
    GRAPH,
    OVERLAP,
    COMPILED,
    SYNCED,
    STREAMED,
    VENDOR,
    VISIBLE,
    DEVICE,
    PRECISION,
    N_FAMILIES
} family;

typedef struct family_row {
    const char *name;
    int64_t otherwise; /* the value when nothing is said; UNKNOWN: none */
    bl_signal verdict; /* of failing with it on and passing with it off (or the other way round, see emit) */
} family_row;

static const family_row families[N_FAMILIES] = {
    [BLOCKING] = {"launch_blocking", 0, BL_SIGNAL_session_blocking_cures},
    [PEER] = {"peer_copies", 1, BL_SIGNAL_session_peer_copies},
    [GRAPH] = {"graph", 1, BL_SIGNAL_session_graph},
    [OVERLAP] = {"overlap", 1, BL_SIGNAL_session_overlap},
    [COMPILED] = {"compile", 1, BL_SIGNAL_session_eager_ok},
    [SYNCED] = {"extra_sync", 0, BL_SIGNAL_session_sync},
    [STREAMED] = {"side_streams", 1, BL_SIGNAL_session_streams},
    [VENDOR] = {"vendor_library", 1, BL_SIGNAL_session_vendor},
    [VISIBLE] = {"visible_gpu", UNKNOWN, BL_SIGNAL_session_other_gpu_ok},
    [DEVICE] = {"device", UNKNOWN, BL_SIGNAL_session_device},
    [PRECISION] = {"precision", UNKNOWN, BL_N_SIGNALS},
};

typedef struct mention_row {
    bl_signal signal;
    family family;
    int64_t value;      /* said by the signal itself */
    const char *number; /* or by this fact */
} mention_row;

static const mention_row mentions[] = {
    {BL_SIGNAL_launchblocking_on, BLOCKING, 1, NULL},
    {BL_SIGNAL_launchblocking_off, BLOCKING, 0, NULL},
    {BL_SIGNAL_peersetting_off, PEER, 0, NULL},
    {BL_SIGNAL_peersetting_on, PEER, 1, NULL},
    {BL_SIGNAL_graphsetting_off, GRAPH, 0, NULL},
    {BL_SIGNAL_graphsetting_on, GRAPH, 1, NULL},
    {BL_SIGNAL_overlap_off, OVERLAP, 0, NULL},
    {BL_SIGNAL_overlap_on, OVERLAP, 1, NULL},
    {BL_SIGNAL_compiled_off, COMPILED, 0, NULL},
    {BL_SIGNAL_compiled_on, COMPILED, 1, NULL},
    {BL_SIGNAL_synced_on, SYNCED, 1, NULL},
    {BL_SIGNAL_streamed_off, STREAMED, 0, NULL},
    {BL_SIGNAL_streamed_on, STREAMED, 1, NULL},
    {BL_SIGNAL_vendor_off, VENDOR, 0, NULL},
    {BL_SIGNAL_deviceindex_visible, VISIBLE, 0, "visible"},
    {BL_SIGNAL_deviceindex_chosen, DEVICE, 0, "device"},
    {BL_SIGNAL_precision_seen, PRECISION, 0, "precision"},
};

/* The value of a mention; words count by their letters. */
static int64_t value_of(const mention_row *row, const bl_event *event)
{
    const char *text = row->number != NULL ? bl_event_get(event, row->number) : NULL;
    int64_t value = 0;
    if (row->number == NULL)
        return row->value;
    if (text == NULL)
        return UNKNOWN;
    if (isdigit((unsigned char)*text))
        return bl_event_number(event, row->number, &value) && value >= 0 ? value : UNKNOWN;
    for (; *text != '\0'; text++)
        value = (value * 31 + tolower((unsigned char)*text)) % 1000003;
    return value;
}

/* ---- what stands in the logs, in order ---------------------------------------------------------------------------------- */

typedef enum item_kind { ITEM_BEGIN, ITEM_COMMAND, ITEM_HEAD, ITEM_MENTION } item_kind;

typedef struct item {
    item_kind kind;
    int file;
    int64_t line;
    const bl_event *event; /* NULL: the begin of a file */
    family family;
    int64_t value;
} item;

typedef struct items {
    item list[MOST_ITEMS];
    int n;
} items;

static void add_item(items *to, item added)
{
    if (to->n < MOST_ITEMS)
        to->list[to->n++] = added;
}

static void add_events(items *to, const bl_case *c, bl_signal signal, item_kind kind)
{
    for (const bl_event *e = bl_events_first(c->events, signal); e != NULL; e = e->next)
        add_item(to, (item){.kind = kind, .file = e->file, .line = e->line, .event = e});
}

static int compare_items(const void *left, const void *right)
{
    const item *a = left, *b = right;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    if (a->kind != b->kind)
        return (int)a->kind - (int)b->kind;
    return (int)a->family - (int)b->family;
}

static void collect(const bl_case *c, items *out)
{
    for (size_t i = 0; i < sizeof mentions / sizeof mentions[0]; i++)
        for (const bl_event *e = bl_events_first(c->events, mentions[i].signal); e != NULL; e = e->next)
            add_item(out, (item){.kind = ITEM_MENTION,
                                 .file = e->file,
                                 .line = e->line,
                                 .event = e,
                                 .family = mentions[i].family,
                                 .value = value_of(&mentions[i], e)});
    if (out->n == 0)
        return; /* without a setting there is nothing to compare */
    add_events(out, c, BL_SIGNAL_runcommand_prompt, ITEM_COMMAND);
    add_events(out, c, BL_SIGNAL_runcommand_traced, ITEM_COMMAND);
    add_events(out, c, BL_SIGNAL_runcommand_plain, ITEM_COMMAND);
    add_events(out, c, BL_SIGNAL_runhead_seen, ITEM_HEAD);
    for (int file = 0; file < c->n_sources; file++)
        add_item(out, (item){.kind = ITEM_BEGIN, .file = file, .line = 0});
    qsort(out->list, (size_t)out->n, sizeof(item), compare_items);
}

/* ---- commands ------------------------------------------------------------------------------------------------------------- */

static bool is_word(const char *text, size_t n, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strlen(*words) == n && strncmp(text, *words, n) == 0)
            return true;
    return false;
}

/* The first word of a command behind its assignments, without its path. */
static const char *program_of(const char *command, size_t *length)
{
    static const char *const before[] = {"sudo", "env", "time", "nohup", NULL};
    for (;;) {
        command += strspn(command, " \t");
        size_t n = strcspn(command, " \t;|&");
        const char *sign = memchr(command, '=', n);
        if (n == 0 || (sign == NULL && !is_word(command, n, before))) {
            const char *slash = memrchr(command, '/', n);
            *length = slash != NULL ? n - (size_t)(slash + 1 - command) : n;
            return slash != NULL ? slash + 1 : command;
        }
        command += n;
        if (*command == ';' || *command == '|' || *command == '&')
            command++;
    }
}

static const char *const setters[] = {"export", "set", "setenv", "unset", NULL};
static const char *const lookers[] = {
    "nvidia-smi", "dmesg", "grep", "cat",      "tail",  "head",  "less",   "echo",      "ls",         "cd",
    "pip",        "conda", "git",  "df",       "free",  "lspci", "lsmod",  "ompi_info", "ps",         "kill",
    "vim",        "uname", "nvcc", "cp",       "mv",    "mkdir", "rm",     "top",       "journalctl", "ulimit",
    "module",     "sed",   "awk",  "ucx_info", "which", "wc",    "lsof",   "hostname",  "date",       "source",
    "nano",       "ssh",   "scp",  "zcat",     "ldd",   "nm",    "strace", "gdb",       "cuda-gdb",   "printenv",
    "make",       "cmake", "apt",  "sysctl",   NULL};

static bool is_setter(const char *command)
{
    size_t n = 0;
    const char *program = program_of(command, &n);
    return is_word(program, n, setters);
}

static bool runs_program(const char *command)
{
    size_t n = 0;
    const char *program = program_of(command, &n);
    return n > 0 && !is_word(program, n, setters) && !is_word(program, n, lookers);
}

/* ---- runs ------------------------------------------------------------------------------------------------------------------- */

typedef enum outcome { OUTCOME_UNKNOWN, OUTCOME_GOOD, OUTCOME_BAD } outcome;

typedef struct run {
    int file;
    int64_t begin, end;    /* lines; end is not part of it */
    const bl_event *start; /* its command or heading */
    const bl_event *mention[N_FAMILIES];
    int64_t value[N_FAMILIES];
    bool is_line; /* one line tells setting and outcome */
    outcome outcome;
    const bl_event *bad, *good;
    bool hangs;
} run;

typedef struct session {
    run list[MOST_RUNS];
    int n;
    run *open, *whole; /* the run that lines belong to; the last one that was no single line */
    int64_t lasting[N_FAMILIES];
    const bl_event *lasting_mention[N_FAMILIES];
} session;

static run *open_run(session *s, int file, int64_t begin, const bl_event *start)
{
    if (s->n == MOST_RUNS)
        return NULL;
    run *r = &s->list[s->n++];
    *r = (run){.file = file, .begin = begin, .end = INT64_MAX, .start = start};
    for (int f = 0; f < N_FAMILIES; f++) {
        r->value[f] = s->lasting[f];
        r->mention[f] = s->lasting_mention[f];
    }
    s->open = s->whole = r;
    return r;
}

static void close_run(session *s, int64_t line)
{
    if (s->open != NULL)
        s->open->end = line;
    s->open = NULL;
}

static bool stands_in(const bl_event *e, const run *r)
{
    return e->file == r->file && e->line >= r->begin && e->line < r->end;
}

static bool is_bad(const bl_event *e)
{
    return bl_signals[e->signal].role == BL_ROLE_FAULT || e->signal == BL_SIGNAL_runbad_nan ||
           e->signal == BL_SIGNAL_runbad_hang || e->signal == BL_SIGNAL_runbad_wrong ||
           e->signal == BL_SIGNAL_runbad_error;
}

static bool is_good(const bl_event *e)
{
    return e->signal == BL_SIGNAL_finished_exit || e->signal == BL_SIGNAL_healthy_ok;
}

static const bl_event *first_of(const bl_case *c, const run *r, bool (*is)(const bl_event *))
{
    const bl_event *first = NULL;
    for (int64_t i = 0, n = bl_events_n(c->events); i < n; i++) {
        const bl_event *e = bl_events_at(c->events, i);
        if (stands_in(e, r) && is(e) && (first == NULL || e->line < first->line))
            first = e;
    }
    return first;
}

/* Words of a line that tells how it went. */
static bool says(const char *text, const char *const *words)
{
    for (; *words != NULL; words++) {
        size_t n = strlen(*words);
        for (const char *at = strcasestr(text, *words); at != NULL; at = strcasestr(at + 1, *words)) {
            bool begins = at == text || !isalnum((unsigned char)at[-1]);
            bool is_denied = at - text >= 3 && strncasecmp(at - 3, "no ", 3) == 0;
            if (begins && !is_denied && (n < 4 ? !isalnum((unsigned char)at[n]) : true))
                return true;
        }
    }
    return false;
}

static const char *const bad_words[] = {"fail",     "crash",    "hang",      "hung",     "nan",     "illegal", "error",
                                        "mismatch", "wrong",    "assert",    "deadlock", "diverge", "corrupt", "700",
                                        "stuck",    "segfault", "timed out", "oom",      "broken",  NULL};
static const char *const good_words[] = {"ok",        "okay",     "clean",    "fine",      "pass",      "works",
                                         "correct",   "no error", "no nan",   "no hang",   "no crash",  "no fault",
                                         "no assert", "success",  "finishes", "completes", "identical", NULL};

static outcome outcome_of_text(const char *text)
{
    if (says(text, bad_words))
        return OUTCOME_BAD;
    return says(text, good_words) ? OUTCOME_GOOD : OUTCOME_UNKNOWN;
}

static void set_value(run *r, const item *i)
{
    r->value[i->family] = i->value;
    r->mention[i->family] = i->event;
}

/* "rerun gpu=0: 400 iterations ok": as the last whole run, but for what the line says. */
static void take_line(session *s, const item *i, outcome told)
{
    run *before = s->n > 0 ? &s->list[s->n - 1] : NULL;
    if (before == NULL || !before->is_line || before->file != i->file || before->begin != i->line) {
        const run *like = s->whole;
        close_run(s, i->line);
        if (s->n == MOST_RUNS)
            return;
        before = &s->list[s->n++];
        *before = (run){.file = i->file, .begin = i->line, .end = i->line + 1, .is_line = true, .start = i->event};
        for (int f = 0; f < N_FAMILIES; f++)
            before->value[f] = like != NULL ? like->value[f] : UNKNOWN;
        before->outcome = told;
        before->bad = told == OUTCOME_BAD ? i->event : NULL;
        before->good = told == OUTCOME_GOOD ? i->event : NULL;
    }
    set_value(before, i);
}

/* A setting that a program prints: of the run that is open, unless that one has another value or is already over. */
static void take_print(const bl_case *c, session *s, const item *i)
{
    run *r = s->open;
    if (r == NULL) {
        r = open_run(s, i->file, i->line, NULL);
    } else if (r->value[i->family] != i->value || r->mention[i->family] == NULL) {
        run so_far = *r;
        so_far.end = i->line;
        bool is_over = first_of(c, &so_far, is_bad) != NULL || first_of(c, &so_far, is_good) != NULL;
        if (is_over || r->mention[i->family] != NULL) {
            close_run(s, i->line);
            r = open_run(s, i->file, i->line, NULL);
        }
    }
    if (r != NULL)
        set_value(r, i);
}

static bool is_on_command(const items *all, int at)
{
    for (int i = at - 1; i >= 0 && all->list[i].file == all->list[at].file && all->list[i].line == all->list[at].line;
         i--)
        if (all->list[i].kind == ITEM_COMMAND)
            return true;
    return false;
}

static void take_mention(const bl_case *c, session *s, const items *all, int at)
{
    const item *i = &all->list[at];
    outcome told = outcome_of_text(i->event->text);
    if (i->value == UNKNOWN)
        return;
    if (is_on_command(all, at)) {
        if (s->open != NULL) {
            set_value(s->open, i);
        } else {
            s->lasting[i->family] = i->value;
            s->lasting_mention[i->family] = i->event;
        }
    } else if (told != OUTCOME_UNKNOWN) {
        take_line(s, i, told);
    } else {
        take_print(c, s, i);
    }
}

static void forget(session *s)
{
    s->open = s->whole = NULL;
    for (int f = 0; f < N_FAMILIES; f++) {
        s->lasting[f] = UNKNOWN;
        s->lasting_mention[f] = NULL;
    }
}

static void take_command(session *s, const item *i)
{
    const char *command = bl_event_get(i->event, "command");
    close_run(s, i->line);
    if (command != NULL && runs_program(command))
        (void)open_run(s, i->file, i->line, i->event);
    else if (command != NULL && !is_setter(command))
        s->whole = NULL;
}

static void cut(const bl_case *c, const items *all, session *s)
{
    for (int i = 0; i < all->n; i++) {
        const item *now = &all->list[i];
        if (now->kind == ITEM_BEGIN) {
            forget(s);
            (void)open_run(s, now->file, 1, NULL);
        } else if (now->kind == ITEM_COMMAND) {
            take_command(s, now);
        } else if (now->kind == ITEM_HEAD) {
            close_run(s, now->line);
            (void)open_run(s, now->file, now->line, now->event);
        } else {
            take_mention(c, s, all, i);
        }
    }
}

/* Of one signal, file and rank only the first and the last events are kept: between them much may be missing. */
static bool may_miss_faults(const bl_case *c, const run *r)
{
    for (int64_t i = 0, n = bl_events_n(c->events); i < n; i++) {
        const bl_event *e = bl_events_at(c->events, i);
        if (e->file == r->file && e->n_like >= BL_EVENTS_KEPT && is_bad(e) && e->line >= r->end)
            return true;
    }
    return false;
}

/* An import that fails is not cured by a setting of the device. */
static bool is_of_device(const bl_event *e)
{
    static const char *const groups[] = {"error_",       "sanitizer_", "cudagdb_",    "assert_",
                                         "graphlaunch_", "xid_",       "collective_", "peer_",
                                         "library_",     "mpisignal_", NULL};
    if (e->signal == BL_SIGNAL_runbad_nan || e->signal == BL_SIGNAL_runbad_hang || e->signal == BL_SIGNAL_runbad_wrong)
        return true;
    for (const char *const *group = groups; *group != NULL; group++)
        if (strncmp(bl_signals[e->signal].name, *group, strlen(*group)) == 0)
            return true;
    return strcasestr(e->text, "cuda") != NULL || strcasestr(e->text, "segmentation") != NULL;
}

static bool is_bad_of_device(const bl_event *e) { return is_bad(e) && is_of_device(e); }

static void judge_run(const bl_case *c, run *r)
{
    const int steps = 3;
    int n_steps = 0;
    if (r->is_line)
        return;
    r->bad = first_of(c, r, is_bad);
    r->good = first_of(c, r, is_good);
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_progress_seen); e != NULL; e = e->next)
        if (stands_in(e, r)) {
            n_steps++;
            r->good = r->good == NULL && n_steps == steps ? e : r->good;
        }
    if (r->bad != NULL) {
        const bl_event *of_device = first_of(c, r, is_bad_of_device);
        r->outcome = of_device != NULL ? OUTCOME_BAD : OUTCOME_UNKNOWN;
        r->bad = of_device != NULL ? of_device : r->bad;
        for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_runbad_hang); e != NULL; e = e->next)
            r->hangs = r->hangs || (stands_in(e, r) && e->line <= r->bad->line);
    } else if (r->good != NULL && !may_miss_faults(c, r)) {
        r->outcome = OUTCOME_GOOD;
    }
}

/* ---- comparing ------------------------------------------------------------------------------------------------------------ */

static int64_t effective(const run *r, int f) { return r->value[f] != UNKNOWN ? r->value[f] : families[f].otherwise; }

static bool differs(const run *a, const run *b, int f)
{
    int64_t left = effective(a, f), right = effective(b, f);
    bool is_told = a->file == b->file ? a->mention[f] != NULL || b->mention[f] != NULL
                                      : a->mention[f] != NULL && b->mention[f] != NULL;
    return is_told && left != UNKNOWN && right != UNKNOWN && left != right;
}

/* How many settings differ; *which is the first that a verdict follows from. */
static int count_differences(const run *a, const run *b, int *which)
{
    int n = 0;
    *which = N_FAMILIES;
    for (int f = 0; f < N_FAMILIES; f++)
        if (differs(a, b, f)) {
            n++;
            if (*which == N_FAMILIES && families[f].verdict != BL_N_SIGNALS)
                *which = f;
        }
    return n;
}

static bool is_contradicted(const session *s, const run *failing, const run *passing)
{
    int which = 0;
    for (int i = 0; i < s->n; i++) {
        const run *r = &s->list[i];
        bool as_failing = r->file == failing->file && count_differences(r, failing, &which) == 0;
        bool as_passing = r->file == passing->file && count_differences(r, passing, &which) == 0;
        if ((as_failing && r->outcome == OUTCOME_GOOD) || (as_passing && r->outcome == OUTCOME_BAD))
            return true;
    }
    return false;
}

/* ---- telling --------------------------------------------------------------------------------------------------------------- */

static bool shows(const bl_case *c, bl_signal signal, const run *r)
{
    for (const bl_event *e = bl_events_first(c->events, signal); e != NULL; e = e->next)
        if (stands_in(e, r))
            return true;
    return false;
}

static void copy_fact(const bl_case *c, bl_event *to, const bl_event *from, const char *name)
{
    const char *value = from != NULL ? bl_event_get(from, name) : NULL;
    if (value != NULL)
        bl_event_fact(c->events, to, name, value, (int64_t)strlen(value));
}

/* What the failing run was waiting in, by rank. */
static void add_waiting(const bl_case *c, bl_event *to, const run *failing)
{
    enum { MOST_RANKS = 8 };
    int last = -1, n = 0;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_runbad_hang); e != NULL && n < MOST_RANKS;
         e = e->next) {
        const char *numel = bl_event_get(e, "numel");
        if (!stands_in(e, failing) || numel == NULL || e->rank == last)
            continue;
        if (n++ == 0)
            copy_fact(c, to, e, "seqnum");
        bl_event_fact_of(c->events, to, "numel", e->rank, "%s", numel);
        last = e->rank;
    }
}

/* The number of the replay that failed: one behind the last that was told. */
static void add_replay(const bl_case *c, bl_event *to, const run *failing)
{
    int64_t last = -1, number = 0;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_graphreplay_number); e != NULL; e = e->next)
        if (stands_in(e, failing) && e->line < failing->bad->line && bl_event_number(e, "replay", &number) &&
            number > last)
            last = number;
    if (last >= 0 && last < INT32_MAX)
        bl_event_fact_of(c->events, to, "replay", -1, "%lld", (long long)last + 1);
}

static void add_setting(const bl_case *c, const run *failing, const run *passing, int f, const bl_event *base)
{
    const bl_event *told = passing->mention[f] != NULL ? passing->mention[f] : failing->mention[f];
    bl_event *event = bl_events_derive_for(c->events, BL_SIGNAL_session_setting, base, -1);
    bl_event_fact_of(c->events, event, "setting", -1, "%s", families[f].name);
    if (f != PRECISION) {
        bl_event_fact_of(c->events, event, "fails_with", -1, "%lld", (long long)effective(failing, f));
        bl_event_fact_of(c->events, event, "passes_with", -1, "%lld", (long long)effective(passing, f));
    }
    copy_fact(c, event, told, "env");
    copy_fact(c, event, failing->mention[f], "env");
    copy_fact(c, event, told, "zero_stage");
    copy_fact(c, event, failing->bad, "first_nan_step");
    if (f == GRAPH || f == COMPILED)
        add_replay(c, event, failing);
    if (f == OVERLAP && bl_events_first(c->events, BL_SIGNAL_precisionflag_bf16) != NULL)
        bl_event_fact_of(c->events, event, "dtype", -1, "bf16");
}

static void tell(const bl_case *c, bl_signal verdict, const run *failing, const run *passing, int f)
{
    const bl_event *start = failing->mention[f] != NULL ? failing->mention[f] : failing->start;
    bl_event *failed =
        bl_events_derive_for(c->events, BL_SIGNAL_session_failed, start != NULL ? start : failing->bad, -1);
    add_waiting(c, failed, failing);
    add_setting(c, failing, passing, f, failing->bad);
    (void)bl_events_derive_for(c->events, BL_SIGNAL_session_passed,
                               passing->good != NULL ? passing->good : passing->start, -1);
    (void)bl_events_derive_for(c->events, verdict,
                               verdict == BL_SIGNAL_session_other_gpu_ok || verdict == BL_SIGNAL_session_eager_ok
                                   ? (passing->good != NULL ? passing->good : passing->start)
                                   : failing->bad,
                               -1);
}

/* "Eager is fine" is said of graphs and of compilers alike. */
static bool is_of_graph(const bl_case *c, const run *failing)
{
    bool replays = shows(c, BL_SIGNAL_graphreplay_frame, failing) || shows(c, BL_SIGNAL_graphlaunch_failed, failing);
    return replays && failing->mention[COMPILED] == NULL;
}

/* The verdict that failing and passing with these values speaks for; BL_N_SIGNALS for none. */
static bl_signal verdict_of(const bl_case *c, const run *failing, const run *passing, int f)
{
    int64_t with = effective(failing, f), without = effective(passing, f);
    if (f == BLOCKING && with == 1)
        return failing->hangs ? BL_SIGNAL_session_blocking_hangs : BL_N_SIGNALS;
    if (f == BLOCKING)
        return failing->hangs ? BL_N_SIGNALS : BL_SIGNAL_session_blocking_cures;
    if (f == SYNCED)
        return without == 1 ? BL_SIGNAL_session_sync : BL_N_SIGNALS;
    if (f == DEVICE)
        return without == 0 ? BL_SIGNAL_session_device : BL_SIGNAL_session_other_gpu_ok;
    if (f == VISIBLE)
        return BL_SIGNAL_session_other_gpu_ok;
    if (f == COMPILED && without == 0 && is_of_graph(c, failing))
        return BL_SIGNAL_session_graph;
    return without == 0 ? families[f].verdict : BL_N_SIGNALS;
}

static void compare_runs(const bl_case *c, const session *s, int most_differences, bool told[N_FAMILIES])
{
    int f = 0;
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < s->n; j++) {
            const run *failing = &s->list[i], *passing = &s->list[j];
            if (failing->outcome != OUTCOME_BAD || passing->outcome != OUTCOME_GOOD)
                continue;
            int n = count_differences(failing, passing, &f);
            if (n == 0 || n > most_differences || f == N_FAMILIES || told[f] || is_contradicted(s, failing, passing))
                continue;
            bl_signal verdict = verdict_of(c, failing, passing, f);
            if (verdict == BL_N_SIGNALS)
                continue;
            told[f] = true;
            tell(c, verdict, failing, passing, f);
        }
}

static void derive_settings(const bl_case *c, items *all, session *s)
{
    bool told[N_FAMILIES] = {false}, any = false;
    collect(c, all);
    if (all->n == 0)
        return;
    forget(s);
    cut(c, all, s);
    for (int i = 0; i < s->n; i++)
        judge_run(c, &s->list[i]);
    compare_runs(c, s, 1, told);
    for (int f = 0; f < N_FAMILIES; f++)
        any = any || told[f];
    if (!any)
        compare_runs(c, s, 2, told);
}

/* ---- replays of graphs -------------------------------------------------------------------------------------------------------- */

/* Nothing failed in its file and rank before the replay, and the device failed there. */
static bool is_first_failure(const bl_case *c, const bl_event *frame)
{
    const int64_t reach = 30;
    bool fails_there = false;
    for (int64_t i = 0, n = bl_events_n(c->events); i < n; i++) {
        const bl_event *e = bl_events_at(c->events, i);
        if (e->file != frame->file || e->rank != frame->rank || bl_signals[e->signal].role != BL_ROLE_FAULT)
            continue;
        if (e->line < frame->line)
            return false;
        bool is_device =
            strncmp(bl_signals[e->signal].name, "error_", 6) == 0 || e->signal == BL_SIGNAL_graphlaunch_failed;
        fails_there = fails_there || (is_device && e->line <= frame->line + reach);
    }
    return fails_there;
}

static void derive_graphs(const bl_case *c)
{
    static const bl_signal signals[] = {BL_SIGNAL_graphlaunch_failed, BL_SIGNAL_graphreplay_frame};
    enum { MOST = 64 };
    for (size_t s = 0; s < sizeof signals / sizeof signals[0]; s++) {
        int n = 0;
        for (const bl_event *e = bl_events_first(c->events, signals[s]); e != NULL && n < MOST; e = e->next, n++)
            if (is_first_failure(c, e)) {
                (void)bl_events_derive(c->events, BL_SIGNAL_graphfault_first, e);
                return;
            }
    }
}

/* ---- copies between peers ------------------------------------------------------------------------------------------------------ */

/* A larger number than any machine has is none of a peer. */
static int64_t highest_peer(const bl_event *pair, int64_t highest)
{
    enum { MOST = 1024 };
    for (int i = 0; i < pair->n_facts; i++) {
        int64_t peer = strcmp(pair->facts[i].name, "peer") == 0 ? strtoll(pair->facts[i].value, NULL, 10) : -1;
        highest = peer > highest && peer < MOST ? peer : highest;
    }
    return highest;
}

static void derive_peers(const bl_case *c)
{
    const bl_event *wrong = NULL;
    int64_t mismatches = 0, via_host = 0, highest = 0;
    bool host_is_right = false;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_peercheck_pair); e != NULL; e = e->next) {
        highest = highest_peer(e, highest);
        if (!bl_event_number(e, "mismatches", &mismatches) || mismatches == 0)
            continue;
        wrong = wrong == NULL ? e : wrong;
        host_is_right = host_is_right || (bl_event_number(e, "via_host_mismatches", &via_host) && via_host == 0);
    }
    if (wrong == NULL)
        wrong = bl_events_first(c->events, BL_SIGNAL_peercheck_sample);
    if (wrong == NULL)
        return;
    int64_t n_faults = bl_events_count(c->events, BL_SIGNAL_iommu_fault);
    bl_event *event = bl_events_derive_for(
        c->events, host_is_right || n_faults > 0 ? BL_SIGNAL_peercopy_wrong : BL_SIGNAL_peercopy_suspect, wrong, -1);
    if (highest > 0)
        bl_event_fact_of(c->events, event, "gpus", -1, "%lld", (long long)highest + 1);
    copy_fact(c, event, wrong, "mismatches");
    copy_fact(c, event, wrong, "elements");
    copy_fact(c, event, wrong, "via_host_mismatches");
    if (n_faults > 0)
        bl_event_fact_of(c->events, event, "iommu_faults", -1, "%lld", (long long)n_faults);
}

/* The program works on a device that is not 0, by its own index. */
static void derive_device(const bl_case *c)
{
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_deviceindex_chosen); e != NULL; e = e->next) {
        int64_t device = 0;
        if (!bl_event_number(e, "device", &device) || device == 0)
            continue;
        bl_event *event = bl_events_derive_for(c->events, BL_SIGNAL_otherdevice_chosen, e, -1);
        copy_fact(c, event, e, "device");
        return;
    }
}

void bl_derive_sessions(bl_case *c)
{
    items *all = bl_alloc(1, sizeof *all);
    session *s = bl_alloc(1, sizeof *s);
    if (all != NULL && s != NULL)
        derive_settings(c, all, s);
    else
        bl_events_note_no_memory(c->events);
    bl_free(all);
    bl_free(s);
    derive_graphs(c);
    derive_peers(c);
    bl_derive_tallies(c);
    derive_device(c);
}
