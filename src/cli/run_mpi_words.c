/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks under a launcher ended: which was the first that failed, in one paragraph; the others, who only felt it, in a
 * line each. */
#include <signal.h>
#include <string.h>

#include "base/checked.h"
#include "cli/run.h"
#include "proc/child.h"
#include "triage/journal_launch.h"

/* ---- while they run ------------------------------------------------------------------------------------------------------ */

/* What happens to the launcher itself, or once all ranks have ended, is no news of the run. */
void bl_run_mpi_tell(void *state, const bl_supervise *s, const bl_supervise_event *event)
{
    const bl_run *run = state;
    bool matters = event->kind != BL_EVENT_KILLING || !bl_run_mpi_is_over(run);
    if (matters && (event->kind == BL_EVENT_KILLING || event->kind == BL_EVENT_CAPTURE_FAILED ||
                    event->kind == BL_EVENT_VIEW_FAILED || event->kind == BL_EVENT_SILENT))
        bl_run_tell(state, s, event);
}

/* ---- one rank -------------------------------------------------------------------------------------------------------------- */

static void add_end(bl_text *text, const bl_rank_end *r)
{
    char name[24];
    if (!r->is_up)
        bl_text_add(text, "never began");
    else if (r->held != 0)
        bl_text_format(text, "was stopped by %s and did not go on", bl_signal_name(r->held, name));
    else if (!r->has_ended)
        bl_text_add(text, "is gone, and nothing tells how it ended");
    else if (r->signal != 0)
        bl_text_format(text, "%s%s", bl_signal_name(r->signal, name), r->signal == r->asked ? ", sent by belay" : "");
    else
        bl_text_format(text, "exit status %d", r->status);
}

static void add_escaped(bl_text *text, const char *words)
{
    bl_text_add_escaped(text, words, (int64_t)strlen(words), BL_ENDS_WORDS);
}

/* "comm.deadline: rank 1 did not come to barrier within 1 s". */
static void add_why(bl_text *text, const bl_rank_end *r)
{
    if (r->state != BL_RANK_FAILED || r->why[0] == '\0')
        return;
    bl_text_add(text, "; ");
    add_escaped(text, r->why);
    if (r->code[0] != '\0') {
        bl_text_add(text, " (");
        add_escaped(text, r->code);
        bl_text_add(text, ")");
    }
}

/* What a rank says when it joins its group is not where it died. */
static void add_where(bl_text *text, const bl_rank_end *r)
{
    if (r->state == BL_RANK_RUNNING)
        return;
    if (r->step >= 0)
        bl_text_format(text, ", step %lld", (long long)r->step);
    if (r->phase[0] != '\0') {
        bl_text_add(text, ", ");
        add_escaped(text, r->phase);
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------------------- */

static void add_headline(bl_text *text, const bl_run *run)
{
    const bl_ends *ends = &run->ends;
    const bl_rank_end *r = &ends->rank[ends->first];
    int n = ends->n;
    if (r->part == BL_PART_SECONDARY)
        bl_text_format(text, "no rank of %d failed by itself; rank %d was the first to give up: ", n, ends->first);
    else if (!r->is_up || r->held != 0 || !r->has_ended)
        bl_text_format(text, "rank %d of %d ", ends->first, n);
    else if (r->part == BL_PART_SUSPECT)
        bl_text_format(text, "rank %d of %d did not come to the others and was ended: ", ends->first, n);
    else if (r->signal == 0 && r->status == 0 && r->state == BL_RANK_RUNNING)
        bl_text_format(text, "rank %d of %d left its group first: ", ends->first, n);
    else
        bl_text_format(text, "rank %d of %d failed first: ", ends->first, n);
    add_end(text, r);
    add_where(text, r);
    add_why(text, r);
}

static void add_other(bl_text *text, const bl_rank_end *r)
{
    bl_text_add(text, r->part == BL_PART_FINE ? "" : r->part == BL_PART_SECONDARY ? "secondary: " : "also: ");
    add_end(text, r);
    add_why(text, r);
}

/* Whether one line will do for both: the words of their reasons may differ, in seconds and the like. */
static bool are_alike(const bl_rank_end *a, const bl_rank_end *b)
{
    return a->part == b->part && a->is_up == b->is_up && a->has_ended == b->has_ended && a->status == b->status &&
           a->signal == b->signal && a->asked == b->asked && a->held == b->held && a->state == b->state &&
           strcmp(a->code, b->code) == 0 &&
           (a->n_culprits > 0 ? a->culprit[0] : -1) == (b->n_culprits > 0 ? b->culprit[0] : -1);
}

static void say_others(const bl_ends *ends)
{
    for (int i = 0; i < ends->n; i++) {
        const bl_rank_end *r = &ends->rank[i];
        bl_text list = {0}, line = {0};
        bool earlier = i == ends->first;
        int count = 0;
        for (int k = 0; k < i && !earlier; k++)
            earlier = k != ends->first && are_alike(&ends->rank[k], r);
        for (int k = i; k < ends->n && !earlier; k++)
            if (k != ends->first && are_alike(&ends->rank[k], r))
                bl_text_format(&list, "%s%d", count++ > 0 ? ", " : "", k);
        if (count > 0) {
            add_other(&line, r);
            bl_run_say("    rank%s %s: %s\n", count > 1 ? "s" : "", bl_text_get(&list), bl_text_get(&line));
        }
        bl_text_fini(&list);
        bl_text_fini(&line);
    }
}

/* What it was launching when it ended, of which it could tell nobody.  A journal of another process is that of an earlier
 * start, or of the same number on another host. */
static void say_journal(const bl_run *run)
{
    const bl_rank_end *r = &run->ends.rank[run->ends.first];
    bl_journal_reader *reader = NULL;
    bl_error unused = {0};
    bl_launch_record last;
    bl_journal_stream stream;
    bl_text words = {0};
    if (r->journal[0] == '\0' || (r->signal == 0 && r->held == 0))
        return;
    if (bl_journal_reader_open(r->journal, &reader, &unused) == BELAY_OK &&
        bl_journal_reader_head(reader)->pid == (uint32_t)r->pid && bl_journal_reader_launch(reader, 0, &last)) {
        bl_journal_launch_words(reader, &last, &words);
        if (bl_journal_stream_read(reader, (int)last.stream, &stream))
            bl_text_format(&words, ": %s", bl_journal_launch_state(&stream, &last));
        bl_run_say("    its journal ends at %s\n", bl_text_get(&words));
    }
    bl_journal_reader_close(reader);
    bl_text_fini(&words);
}

/* What the launcher itself said last, where it may be why ranks never began. */
static void say_launcher(const bl_run *run, const bl_supervise *s)
{
    enum { LINES = 12, COLUMNS = 160 };
    int64_t n;
    const char *bytes = bl_supervise_tail(s, 0, 1, &n), *start = bytes + n;
    bl_text text = {0};
    if (run->ends.n_up == run->ends.n || n == 0)
        return;
    for (int lines = 0; start > bytes; start--)
        if (start[-1] == '\n' && start < bytes + n && ++lines == LINES)
            break;
    for (const char *end = bytes + n; start < end;) {
        const char *newline = memchr(start, '\n', (size_t)(end - start));
        const char *stop = newline != NULL ? newline : end;
        bl_text_add(&text, "        mpirun| ");
        bl_text_add_escaped(&text, start, stop - start, COLUMNS);
        bl_text_add(&text, "\n");
        start = newline != NULL ? newline + 1 : end;
    }
    bl_run_say("%s", bl_text_get(&text));
    bl_text_fini(&text);
}

/* ---- the launcher itself ----------------------------------------------------------------------------------------------------- */

/* Whether the launcher was ended by a signal that nobody here had sent, before any rank had failed by itself: then the ranks
 * only went with it.  Ranks end within milliseconds of it, so that moments tell only of those that failed. */
static bool is_launcher_first(const bl_ends *ends, const bl_supervise *s)
{
    const bl_rank_facts *launcher = bl_supervise_rank(s, 0);
    if (launcher->signal == 0 || launcher->asked != 0 || bl_supervise_facts_get(s)->stop_signal != 0 || ends->first < 0)
        return false;
    double moment = bl_run_wall(launcher->ended);
    for (int i = 0; i < ends->n; i++)
        if (ends->rank[i].part == BL_PART_PRIMARY && ends->rank[i].wall <= moment)
            return false;
    return true;
}

static void blame_launcher(bl_run *run, int signal)
{
    run->launcher_signal = signal;
    run->ends.first = -1;
    run->ends.status = 128 + signal;
    for (int i = 0; i < run->ends.n; i++)
        if (run->ends.rank[i].part != BL_PART_FINE)
            run->ends.rank[i].part = BL_PART_SECONDARY;
}

static void say_launcher_first(const bl_run *run, const bl_supervise *s)
{
    const bl_rank_facts *launcher = bl_supervise_rank(s, 0);
    char name[24];
    bl_run_say("belay: the launcher %s (pid %d) was ended by %s after %.1f s; the ranks were ended thereafter\n",
               bl_run_mpi_launcher(run), (int)launcher->pid, bl_signal_name(launcher->signal, name),
               (double)(launcher->ended - launcher->started) / 1e9);
    say_others(&run->ends);
    bl_run_say_memory(s, launcher);
    bl_run_say(
        "    try: Look for a kill for want of memory in the kernel's log (dmesg -T), for a limit of the batch system "
        "on memory or time, and for who may have sent the signal.\n");
}

/* All refused the same, such as a file that is not there: nobody was first, and each has said why. */
static bool are_all_alike(const bl_ends *ends)
{
    for (int i = 0; i < ends->n; i++) {
        const bl_rank_end *r = &ends->rank[i];
        if (r->part != BL_PART_PRIMARY || r->signal != 0 || r->held != 0 || r->status <= 0 ||
            r->status != ends->rank[0].status)
            return false;
    }
    return ends->n > 1;
}

/* What ranks that are asked to end by SIGTERM end with, by themselves or by the signal. */
static bool is_asked_end(const bl_ends *ends)
{
    const bl_rank_end *r = ends->first >= 0 ? &ends->rank[ends->first] : NULL;
    return r != NULL && r->has_ended && r->held == 0 && (r->signal == SIGTERM || r->status == 128 + SIGTERM);
}

belay_code bl_run_mpi_end(bl_run *run, const bl_supervise *s, bl_error *error)
{
    const bl_supervise_facts *f = bl_supervise_facts_get(s);
    char name[24];
    bl_text text = {0};
    bl_ends_fini(&run->ends);
    TRY(bl_ends_read(run->attempt_path, (int)run->options->n, &run->ends, error));
    if (f->stop_signal != 0 && run->ends.first >= 0 && !run->ends.rank[run->ends.first].has_ended)
        run->ends.status = 128 + SIGKILL; /* asked twice: none was left the time to tell */
    bool ended_as_asked = f->stop_signal != 0 && is_asked_end(&run->ends);
    if (ended_as_asked)
        run->ends.status = 128 + f->stop_signal;
    run->launcher_signal = 0;
    if (is_launcher_first(&run->ends, s))
        blame_launcher(run, bl_supervise_rank(s, 0)->signal);
    if (!run->locating)
        run->status = run->ends.status;
    if (run->launcher_signal != 0) {
        say_launcher_first(run, s);
        return BELAY_OK;
    }
    bool tells = run->ends.first >= 0 && !ended_as_asked &&
                 (f->stop_signal == 0 || run->ends.rank[run->ends.first].part == BL_PART_PRIMARY);
    if (f->stop_signal != 0)
        bl_run_say("belay: the run was stopped by %s%s", bl_signal_name(f->stop_signal, name), tells ? ", " : "\n");
    else if (tells)
        bl_run_say("belay: ");
    run->refused = tells && are_all_alike(&run->ends);
    if (run->refused) {
        bl_text_format(&text, "all %d ranks ended alike: exit status %d", run->ends.n, run->ends.status);
        if (run->ends.rank[run->ends.first].said_status ==
            run->ends.status) /* of the group, not of what it gave up for */
            add_why(&text, &run->ends.rank[run->ends.first]);
        bl_run_say("%s\n", bl_text_get(&text));
    } else if (tells) {
        add_headline(&text, run);
        bl_run_say("%s\n", bl_text_get(&text));
        say_journal(run);
        say_others(&run->ends);
        say_launcher(run, s);
    }
    bl_text_fini(&text);
    return BELAY_OK;
}

/* ---- run.json ------------------------------------------------------------------------------------------------------------------ */

static void put_signal(bl_run *run, json_t *object, const char *key, int number)
{
    char name[24];
    bl_cli_put_text(run->cli, object, key, number != 0 ? bl_signal_name(number, name) : NULL);
}

/* As ranks without a launcher stand there, and the part that each had. */
static json_t *describe(bl_run *run, int number)
{
    static const char *const parts[] = {"primary", "suspect", "secondary", "fine"};
    const bl_rank_end *r = &run->ends.rank[number];
    bl_cli *cli = run->cli;
    json_t *object = json_object();
    bl_cli_put_int(cli, object, "rank", number);
    bl_cli_put_text(cli, object, "host", r->host);
    bl_cli_put_int(cli, object, "pid", r->pid);
    bl_cli_put_text(cli, object, "part", parts[r->part]);
    bl_cli_put(cli, object, "exit_status", r->has_ended && r->signal == 0 ? json_integer(r->status) : json_null());
    put_signal(run, object, "signal", r->signal);
    put_signal(run, object, "signal_sent_before", r->asked);
    put_signal(run, object, "stopped_by", r->held);
    bl_cli_put_text(cli, object, "code", r->code[0] != '\0' ? r->code : NULL);
    bl_cli_put_text(cli, object, "why", r->why[0] != '\0' ? r->why : NULL);
    return object;
}

void bl_run_mpi_describe(bl_run *run, const bl_supervise *s, json_t *attempt, json_t *ranks)
{
    bl_cli_put_text(run->cli, attempt, "launcher", bl_run_mpi_launcher(run));
    bl_cli_put_int(run->cli, attempt, "launcher_pid", bl_supervise_rank(s, 0)->pid);
    put_signal(run, attempt, "launcher_signal", run->launcher_signal);
    for (int i = 0; i < run->ends.n; i++)
        if (json_array_append_new(ranks, describe(run, i)) != 0)
            run->cli->lacks_memory = true;
}
