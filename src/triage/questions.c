/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "triage/collectives.h"
#include "triage/questions.h"

const char *bl_question_describe(bl_question question)
{
    static const char *const words[BL_N_QUESTIONS] = {
        [BL_QUESTION_NAMES] = "Does the failure name DDP or NCCL?",
        [BL_QUESTION_ALONE] = "Does one process alone run clean?",
        [BL_QUESTION_DIFFER] = "Do the ranks differ in structure or batch?",
        [BL_QUESTION_BLOCKING] = "Does blocking mode point at a reduction or a gradient buffer?",
        [BL_QUESTION_CURES] = "Do equal seeds and batches, or the search for unused parameters, cure it?",
        [BL_QUESTION_STREAM] = "Communication stream or kernel?",
    };
    return words[question];
}

const char *bl_answer_describe(bl_question question, bl_answer answer)
{
    if (answer == BL_ANSWER_NOT_TOLD)
        return "not in these logs";
    if (question == BL_QUESTION_STREAM)
        return answer == BL_ANSWER_YES ? "communication" : "kernel";
    return answer == BL_ANSWER_YES ? "yes" : "no";
}

static void answer(bl_questions *out, bl_question question, bl_answer how, const bl_event *event, const char *because)
{
    if (event == NULL || out->list[question].answer != BL_ANSWER_NOT_TOLD)
        return;
    out->list[question].answer = how;
    out->list[question].event = event;
    out->list[question].because = because;
}

static const bl_event *first(const bl_case *c, bl_signal signal) { return bl_events_first(c->events, signal); }

/* The first event of the role whose signal belongs to one of the groups, "peer_ ddp_"; NULL for groups: of any. */
static const bl_event *first_of_groups(const bl_case *c, bl_role role, const char *const *groups, int n_groups)
{
    for (int64_t i = 0; i < bl_events_n(c->events); i++) {
        const bl_event *event = bl_events_at(c->events, i);
        const bl_signal_row *row = &bl_signals[event->signal];
        bool belongs = n_groups == 0 && row->role == role;
        for (int g = 0; g < n_groups; g++)
            belongs = belongs || strncmp(row->name, groups[g], strlen(groups[g])) == 0;
        if (belongs && row->role != BL_ROLE_DERIVED)
            return event;
    }
    return NULL;
}

static const bl_event *names_ddp(const bl_case *c)
{
    static const char *const groups[] = {"collective_",  "watchdog_",  "peer_",     "ddp_",
                                         "fingerprint_", "structure_", "wiresize_", "duplicate_",
                                         "barrier_",     "named_",     "desync_",   "error_by_wa"};
    return first_of_groups(c, BL_ROLE_FAULT, groups, BL_COUNT(groups));
}

static void answer_names(const bl_case *c, bl_questions *out)
{
    answer(out, BL_QUESTION_NAMES, BL_ANSWER_YES, names_ddp(c),
           "A line of NCCL, of the process group or of the reducer is among the failures; it may still be an echo.");
    answer(out, BL_QUESTION_NAMES, BL_ANSWER_NO, first_of_groups(c, BL_ROLE_FAULT, NULL, 0),
           "The failures that are here name neither.");
}

static void answer_alone(const bl_case *c, bl_questions *out)
{
    const bl_event *comm = first(c, BL_SIGNAL_ncclrank_comm);
    int64_t world = 0;
    answer(out, BL_QUESTION_ALONE, BL_ANSWER_YES, first(c, BL_SIGNAL_single_runs), "The log says so.");
    answer(out, BL_QUESTION_ALONE, BL_ANSWER_NO, first(c, BL_SIGNAL_single_fails),
           "The log says that it fails alone too.");
    if (comm != NULL && bl_event_number(comm, "world", &world) && world == 1)
        answer(out, BL_QUESTION_ALONE, BL_ANSWER_NO, first_of_groups(c, BL_ROLE_FAULT, NULL, 0),
               "It failed in a run of one rank.");
}

static void answer_differ(const bl_case *c, bl_questions *out)
{
    static const bl_signal differ[] = {BL_SIGNAL_structure_count,   BL_SIGNAL_structure_sizes,
                                       BL_SIGNAL_ranks_print_sizes, BL_SIGNAL_ranks_print_places,
                                       BL_SIGNAL_ranks_sizes_near,  BL_SIGNAL_ranks_apart,
                                       BL_SIGNAL_ranks_wire_sizes,  BL_SIGNAL_named_horovod,
                                       BL_SIGNAL_named_deepspeed,   BL_SIGNAL_ranks_scale_differs};
    for (int i = 0; i < BL_COUNT(differ); i++)
        answer(out, BL_QUESTION_DIFFER, BL_ANSWER_YES, first(c, differ[i]),
               "Two ranks show different sizes, operations or settings at the same place.");
    answer(out, BL_QUESTION_DIFFER, BL_ANSWER_NO, first(c, BL_SIGNAL_ranks_all_wait),
           "The ranks whose logs are here wait in the same collective with the same sizes.");
}

/* The first failure in a file in which blocking mode is on, from there. */
static const bl_event *failure_behind(const bl_case *c, const bl_event *blocking)
{
    for (int64_t i = 0; i < bl_events_n(c->events); i++) {
        const bl_event *event = bl_events_at(c->events, i);
        if (bl_signals[event->signal].role == BL_ROLE_FAULT && event->file == blocking->file &&
            event->line > blocking->line)
            return event;
    }
    return NULL;
}

/* A frame or kernel of a reduction within the lines of a traceback before the failure, or just behind it. */
static const bl_event *reduction_near(const bl_case *c, const bl_event *failure)
{
    enum { TRACEBACK = 40 };
    for (const bl_event *event = first(c, BL_SIGNAL_reduction_frame); event != NULL; event = event->next)
        if (event->file == failure->file && event->line >= failure->line - TRACEBACK &&
            event->line <= failure->line + TRACEBACK)
            return event;
    return NULL;
}

static void answer_blocking(const bl_case *c, bl_questions *out)
{
    const bl_event *blocking = first(c, BL_SIGNAL_blocking_on);
    const bl_event *failure = blocking == NULL ? NULL : failure_behind(c, blocking);
    const bl_event *reduction = failure == NULL ? NULL : reduction_near(c, failure);
    answer(out, BL_QUESTION_BLOCKING, BL_ANSWER_YES, reduction,
           "With blocking mode on, the failure stands at a reduction.");
    answer(out, BL_QUESTION_BLOCKING, BL_ANSWER_NO, failure,
           "With blocking mode on, the failure stands at another call than a reduction.");
    answer(out, BL_QUESTION_STREAM, BL_ANSWER_YES, reduction,
           "With blocking mode on, the failing call is a collective.");
    answer(out, BL_QUESTION_STREAM, BL_ANSWER_NO, failure,
           "With blocking mode on, the failing call is not a collective.");
}

/* Tools that name the kernel answer it too. */
static void answer_stream(const bl_case *c, bl_questions *out)
{
    for (int64_t i = 0; i < bl_events_n(c->events); i++) {
        const bl_event *event = bl_events_at(c->events, i);
        const char *kernel = bl_event_get(event, "kernel");
        bool is_failure =
            bl_signals[event->signal].role == BL_ROLE_FAULT || bl_signals[event->signal].role == BL_ROLE_DERIVED;
        if (!is_failure || kernel == NULL || *kernel == '\0')
            continue;
        answer(out, BL_QUESTION_STREAM, strncmp(kernel, "nccl", 4) == 0 ? BL_ANSWER_YES : BL_ANSWER_NO, event,
               "The kernel that failed is named.");
    }
}

void bl_questions_answer(const bl_case *c, bl_questions *out)
{
    *out = (bl_questions){0};
    for (int q = 0; q < BL_N_QUESTIONS; q++)
        out->list[q].because = "";
    answer_names(c, out);
    answer_alone(c, out);
    answer_differ(c, out);
    answer_blocking(c, out);
    answer_stream(c, out);
    answer(out, BL_QUESTION_CURES, BL_ANSWER_YES, first(c, BL_SIGNAL_aligned_cures), "The log says so.");
    answer(out, BL_QUESTION_CURES, BL_ANSWER_NO, first(c, BL_SIGNAL_aligned_fails),
           "The log says that it fails with them too.");
}

bool bl_questions_matter(const bl_case *c)
{
    int seen = -1;
    if (names_ddp(c) != NULL || first(c, BL_SIGNAL_ncclrank_comm) != NULL)
        return true;
    for (int64_t i = 0; i < bl_events_n(c->events); i++) {
        int rank = bl_events_at(c->events, i)->rank;
        if (rank >= 0 && seen >= 0 && rank != seen)
            return true;
        seen = rank >= 0 ? rank : seen;
    }
    return false;
}
