/* SPDX-License-Identifier: Apache-2.0 */
/* What `belay run` itself says, on stderr: what happened, as facts.  Bytes of the program are escaped in it. */
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/checked.h"
#include "cli/run.h"
#include "proc/child.h"
#include "triage/tell.h"

void bl_run_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

const char *bl_run_end_name(const bl_rank_facts *rank, char buffer[64])
{
    char name[24];
    if (rank->ended == 0)
        snprintf(buffer, 64, "still there after SIGKILL");
    else if (rank->signal != 0)
        snprintf(buffer, 64, "%s", bl_signal_name(rank->signal, name));
    else
        snprintf(buffer, 64, "exit status %d", rank->status);
    return buffer;
}

/* ---- while it runs ------------------------------------------------------------------------------------------------------ */

/* "rank 3" or "the program". */
static const char *name_rank(const bl_supervise *s, int rank, char buffer[32])
{
    if (bl_supervise_n_ranks(s) == 1)
        return "the program";
    snprintf(buffer, 32, "rank %d", rank);
    return buffer;
}

/* The last lines of a stream, at most three, each escaped and cut. */
static void say_last_lines(const bl_supervise *s, int rank, int stream)
{
    enum { LINES = 3, COLUMNS = 120 };
    int64_t n;
    const char *bytes = bl_supervise_tail(s, rank, stream, &n), *start = bytes + n;
    bl_text text = {0};
    for (int lines = 0; start > bytes; start--)
        if (start[-1] == '\n' && start < bytes + n && ++lines == LINES)
            break;
    for (const char *end = bytes + n; start < end;) {
        const char *newline = memchr(start, '\n', (size_t)(end - start));
        const char *stop = newline != NULL ? newline : end;
        bl_text_add(&text, stream == 0 ? "        stdout| " : "        stderr| ");
        bl_text_add_escaped(&text, start, stop - start, COLUMNS);
        bl_text_add(&text, "\n");
        start = newline != NULL ? newline + 1 : end;
    }
    bl_run_say("%s", bl_text_get(&text));
    bl_text_fini(&text);
}

static void say_silence(const bl_run *run, const bl_supervise *s, const char *path)
{
    bl_run_say("belay: no output for %g s\n", run->options->quiet_limit);
    for (int i = 0; i < bl_supervise_n_ranks(s); i++) {
        const bl_rank_facts *r = bl_supervise_rank(s, i);
        char name[32], end[64];
        if (r->ended != 0)
            bl_run_say("    %s: ended, %s\n", name_rank(s, i, name), bl_run_end_name(r, end));
        else if (r->cores < 0)
            bl_run_say("    %s: pid %d%s\n", name_rank(s, i, name), (int)r->pid, r->stopped ? ", stopped" : "");
        else
            bl_run_say("    %s: pid %d%s, used %.2f cores in the second half of that time\n", name_rank(s, i, name),
                       (int)r->pid, r->stopped ? ", stopped" : "", r->cores);
        say_last_lines(s, i, 0);
        say_last_lines(s, i, 1);
    }
    bl_run_say("    stacks: %s\n", path != NULL ? path : "could not be kept");
}

static void say_rest(const bl_run *run, const bl_supervise *s, const bl_supervise_event *event)
{
    const bl_supervise_facts *facts = bl_supervise_facts_get(s);
    if (facts->ended != 0)
        bl_run_say("belay: %d process%s outlived the program: SIGTERM\n", event->number,
                   event->number == 1 ? "" : "es");
    else if (facts->first_failed >= 0)
        bl_run_say("belay: %d rank%s still run%s %g s after rank %d failed: SIGTERM\n", event->number,
                   event->number == 1 ? "" : "s", event->number == 1 ? "s" : "", run->options->grace,
                   facts->first_failed);
}

void bl_run_tell(void *state, const bl_supervise *s, const bl_supervise_event *event)
{
    const bl_run *run = state;
    char name[32], signal[24], reason[128], end[64];
    switch (event->kind) {
    case BL_EVENT_STOPPED:
        bl_run_say("belay: %s was stopped by %s\n", name_rank(s, event->rank, name),
                   bl_signal_name(event->number, signal));
        break;
    case BL_EVENT_CONTINUED:
        bl_run_say("belay: %s goes on\n", name_rank(s, event->rank, name));
        break;
    case BL_EVENT_FAILED:
        if (bl_supervise_n_ranks(s) > 1)
            bl_run_say("belay: rank %d failed: %s\n", event->rank,
                       bl_run_end_name(bl_supervise_rank(s, event->rank), end));
        break;
    case BL_EVENT_TERMINATING:
        say_rest(run, s, event);
        break;
    case BL_EVENT_KILLING:
        bl_run_say("belay: SIGKILL to what is left of the run\n");
        break;
    case BL_EVENT_CAPTURE_FAILED:
        bl_run_say("belay: the output of %s can no longer be kept in %s: %s; it goes on, in the live view alone\n",
                   name_rank(s, event->rank, name), run->attempt_path, bl_error_errno(event->number, reason));
        break;
    case BL_EVENT_VIEW_FAILED:
        bl_run_say("belay: %s can no longer be written to: %s; the output is kept in %s\n",
                   event->stream == 0 && !run->cli->json ? "stdout" : "stderr", bl_error_errno(event->number, reason),
                   run->attempt_path);
        break;
    case BL_EVENT_SILENT:
        say_silence(run, s, event->path);
        break;
    }
}

/* ---- at its end ------------------------------------------------------------------------------------------------------------- */

/* The other ranks, those that ended alike together: "ranks 0, 1, 3: SIGTERM, sent by belay". */
static void say_others(const bl_supervise *s, int first)
{
    int n = bl_supervise_n_ranks(s);
    for (int i = 0; i < n; i++) {
        const bl_rank_facts *r = bl_supervise_rank(s, i);
        char end[64], other[64];
        bl_text list = {0};
        bool earlier = i == first;
        for (int k = 0; k < i && !earlier; k++) {
            const bl_rank_facts *o = bl_supervise_rank(s, k);
            earlier =
                k != first && o->asked == r->asked && strcmp(bl_run_end_name(r, end), bl_run_end_name(o, other)) == 0;
        }
        int count = 0;
        for (int k = i; k < n && !earlier; k++) {
            const bl_rank_facts *o = bl_supervise_rank(s, k);
            if (k == first || o->asked != r->asked || strcmp(bl_run_end_name(r, end), bl_run_end_name(o, other)) != 0)
                continue;
            bl_text_format(&list, "%s%d", count++ > 0 ? ", " : "", k);
        }
        if (count > 0)
            bl_run_say("    rank%s %s: %s%s\n", count > 1 ? "s" : "", bl_text_get(&list), bl_run_end_name(r, end),
                       r->signal != 0 && r->signal == r->asked ? ", sent by belay" : "");
        bl_text_fini(&list);
    }
}

static void say_core(const bl_run *run, const bl_supervise *s, const bl_rank_facts *r)
{
    bl_core core;
    struct rlimit limit = {0};
    char name[24];
    if (r->signal == 0 || r->asked == r->signal)
        return;
    (void)getrlimit(RLIMIT_CORE, &limit);
    bl_core_find(r->pid, run->argv[0], bl_supervise_facts_get(s)->started_wall, &core);
    if (r->core_dumped)
        bl_run_say("    core file: %s (kernel.core_pattern is '%s')\n",
                   core.where[0] != '\0' ? core.where : "written, but not found", core.pattern);
    else if (r->signal == SIGSEGV || r->signal == SIGABRT || r->signal == SIGBUS || r->signal == SIGFPE ||
             r->signal == SIGILL)
        bl_run_say("    core file: none for %s; kernel.core_pattern is '%s', the core limit %s\n",
                   bl_signal_name(r->signal, name), core.pattern,
                   run->locating         ? "is as large as it may be"
                   : limit.rlim_cur == 0 ? "0 (ulimit -c unlimited)"
                                         : "not 0");
}

void bl_run_say_memory(const bl_supervise *s, const bl_rank_facts *r)
{
    const bl_oom *kills = &bl_supervise_facts_get(s)->kills;
    if (r->out_of_memory)
        bl_run_say("    out of memory: the kernel's log says that it killed process %d for want of memory\n",
                   (int)r->pid);
    else if (kills->in_group > 0)
        bl_run_say("    out of memory: kills for want of memory in this control group since the start: %lld\n",
                   (long long)kills->in_group);
    else if (kills->in_machine > 0)
        bl_run_say("    out of memory: kills for want of memory on this machine since the start: %lld\n",
                   (long long)kills->in_machine);
    else if (r->signal == SIGKILL && r->asked != SIGKILL)
        bl_run_say("    SIGKILL did not come from belay, and the kernel %s\n",
                   kills->in_group < 0 && kills->in_machine < 0 ? "does not tell whether it kills for want of memory"
                                                                : "counted no kill for want of memory");
}

static void say_left(const bl_supervise *s)
{
    const bl_supervise_facts *f = bl_supervise_facts_get(s);
    for (int64_t i = 0; i < f->n_left && i < BL_SUPERVISE_LEFT; i++) {
        bl_text text = {0};
        bl_text_add_escaped(&text, f->left[i], (int64_t)strlen(f->left[i]), 40);
        bl_run_say("    outlived the program and was ended: %s\n", bl_text_get(&text));
        bl_text_fini(&text);
    }
    if (f->n_stuck > 0)
        bl_run_say("    still there half a minute after SIGKILL: %lld\n", (long long)f->n_stuck);
}

static void say_kernel_log(const bl_run *run, const bl_supervise *s)
{
    const bl_kernel_log *log = bl_supervise_facts_get(s)->kernel_log;
    if (log->why[0] != '\0')
        bl_run_say("    %s\n", log->why);
    else if (log->n_lines > 0)
        bl_run_say("    kernel log: lines since the start: %lld, in %s/kernel.log\n", (long long)log->n_lines,
                   run->attempt_path);
    else
        bl_run_say("    kernel log: nothing since the start\n");
}

static void say_headline(const bl_run *run, const bl_supervise *s)
{
    const bl_supervise_facts *f = bl_supervise_facts_get(s);
    char end[64], name[24];
    if (f->first_failed < 0) {
        bl_run_say("belay: the run was stopped by %s\n", bl_signal_name(f->stop_signal, name));
        return;
    }
    const bl_rank_facts *r = bl_supervise_rank(s, f->first_failed);
    double seconds = (double)((r->ended != 0 ? r->ended : f->ended) - r->started) / 1e9;
    if (f->stop_signal != 0)
        bl_run_say("belay: the run was stopped by %s, ", bl_signal_name(f->stop_signal, name));
    else
        bl_run_say("belay: ");
    if (bl_supervise_n_ranks(s) > 1)
        bl_run_say("rank %d of %d failed first: %s after %.1f s", f->first_failed, bl_supervise_n_ranks(s),
                   bl_run_end_name(r, end), seconds);
    else
        bl_run_say("the program ended: %s after %.1f s", bl_run_end_name(r, end), seconds);
    if (run->options->sanitize && r->status == BL_RUN_FOUND)
        bl_run_say(" (compute-sanitizer found something)");
    bl_run_say("\n");
}

void bl_run_say_end(bl_run *run, const bl_supervise *s)
{
    const bl_supervise_facts *f = bl_supervise_facts_get(s);
    if (f->first_failed < 0 && f->stop_signal == 0) {
        if (f->n_left > 0 || f->n_stuck > 0) {
            bl_run_say("belay: the program ended: exit status 0\n");
            say_left(s);
        }
        return;
    }
    say_headline(run, s);
    if (f->first_failed >= 0) {
        const bl_rank_facts *r = bl_supervise_rank(s, f->first_failed);
        if (bl_supervise_n_ranks(s) > 1)
            say_others(s, f->first_failed);
        say_core(run, s, r);
        bl_run_say_memory(s, r);
    }
    say_left(s);
    say_kernel_log(run, s);
}

void bl_run_explain(bl_run *run)
{
    const char *folder = run->folder;
    bl_explain *explain = NULL;
    bl_error error = {0};
    bl_text words = {0};
    bl_run_say("    evidence: %s\n", folder);
    if (run->was_stopped || run->refused)
        return;
    if (bl_explain_run(&(bl_explain_options){.paths = &folder, .n_paths = 1, .keeps_history = true}, &explain,
                       &error) != BELAY_OK) {
        bl_cli_tell(run->cli, &error);
        return;
    }
    bl_tell_text(explain, &words);
    bl_run_say("\n%s", bl_text_get(&words));
    json_t *verdicts = run->cli->json ? json_object() : NULL;
    if (words.failed || (verdicts != NULL && !bl_tell_json(explain, verdicts)))
        run->cli->lacks_memory = true;
    if (verdicts != NULL)
        bl_cli_put(run->cli, run->cli->document, "explained", verdicts);
    bl_text_fini(&words);
    bl_explain_free(explain);
}
