/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of the other ranks, and what follows from it when an operation is not over in time. */
#include "dist/beat.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dist/words.h"

static double seconds(int64_t ns) { return ns > 0 ? (double)ns / 1e9 : 0; }

void bl_failure_begin(bl_failure *failure, belay_code code)
{
    failure->n_culprits = 0;
    bl_report_fault_init(&failure->fault, code);
}

bool bl_failure_has(const bl_failure *failure, int rank)
{
    for (int i = 0; i < failure->n_culprits; i++)
        if (failure->culprit[i] == rank)
            return true;
    return false;
}

void bl_failure_culprit(bl_failure *failure, int rank)
{
    if (failure->n_culprits < BL_MAX_CULPRITS && !bl_failure_has(failure, rank))
        failure->culprit[failure->n_culprits++] = rank;
}

static void describe_place(const bl_beat *b, char *out, size_t size)
{
    const char *phase = b->phase < BL_N_PHASES ? bl_phase_names[b->phase] : "a phase of another build";
    bool is_inside = b->phase != BL_PHASE_OUTSIDE;
    snprintf(out, size, "%s%s%s step %" PRIu64 ", batch %" PRIu32 ":%" PRIu32, is_inside ? "in " : "", phase,
             is_inside ? " of" : ", at", b->step, b->epoch, b->position);
}

void bl_beat_describe(const bl_beat *b, char *out, size_t size)
{
    char place[128];
    describe_place(b, place, sizeof place);
    const char *at = b->site[0] != '\0' ? " at " : "";
    if (b->waits)
        snprintf(out, size, "waits in %.*s%s%.*s since %.1f s, %s", (int)sizeof b->what, b->what, at,
                 (int)sizeof b->site, b->site, seconds(b->wait_ns), place);
    else
        snprintf(out, size, "%s, since %.1f s%s%.*s%s%.*s", place, seconds(b->phase_ns),
                 b->what[0] != '\0' ? "; its last call: " : "", (int)sizeof b->what, b->what, at, (int)sizeof b->site,
                 b->site);
}

static void describe_briefly(const bl_beat *b, char *out, size_t size)
{
    if (b->waits)
        snprintf(out, size, "waits in %.*s", (int)sizeof b->what, b->what);
    else
        describe_place(b, out, size);
}

/* ---- a line for a rank ----------------------------------------------------------------------------------------------- */

static const bl_beat *beat_of(const bl_roll *roll, int rank)
{
    return rank == roll->rank ? roll->me : &roll->peer[rank].last;
}

static int64_t silence(const bl_roll *roll, int rank)
{
    return rank == roll->rank ? 0 : roll->now - roll->peer[rank].heard;
}

static bool is_lost(const bl_roll *roll, int rank) { return silence(roll, rank) > roll->old; }

static void describe_rank(const bl_roll *roll, int rank, bool is_brief, char *out, size_t size)
{
    char state[320];
    const bl_beat *b = beat_of(roll, rank);
    out[0] = '\0';
    if (is_brief)
        describe_briefly(b, state, sizeof state);
    else
        bl_beat_describe(b, state, sizeof state);
    if (is_lost(roll, rank) && b->group == 0)
        bl_words_add(out, size, "was never heard of");
    else if (is_lost(roll, rank))
        bl_words_add(out, size, "was last heard of %.1f s ago: %s", seconds(silence(roll, rank)), state);
    else
        bl_words_add(out, size, "%s%s", b->waits ? "" : "is ", state);
}

void bl_roll_tell_rank(const bl_roll *roll, int rank, bl_report_fault *fault)
{
    char state[400];
    const bl_beat *b = beat_of(roll, rank);
    bool is_elsewhere = b->host[0] != '\0' && strncmp(b->host, roll->me->host, sizeof b->host) != 0;
    describe_rank(roll, rank, false, state, sizeof state);
    bl_report_fault_fact(fault, "rank %d%s%s%.*s %s", rank, rank == roll->rank ? ", this one," : "",
                         is_elsewhere ? " on " : "", is_elsewhere ? (int)sizeof b->host : 0, b->host, state);
}

void bl_roll_tell(const bl_roll *roll, bl_failure *failure)
{
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < roll->size; r++)
            if (bl_failure_has(failure, r) == (pass == 0))
                bl_roll_tell_rank(roll, r, &failure->fault);
}

/* ---- the deadline ---------------------------------------------------------------------------------------------------- */

static bool has_come(const bl_roll *roll, const bl_work *work, int rank)
{
    const bl_beat *b = beat_of(roll, rank);
    return (work->plane == BL_PLANE_WORDS ? b->n_calls : b->n_launched) > work->number;
}

static bool is_long_lost(const bl_roll *roll, int rank)
{
    return is_lost(roll, rank) && silence(roll, rank) > roll->timeout / 2;
}

/* Silent ones that have not come, or that are silent for long; else whoever is somewhere else; else whoever is silent.  A
 * machine under load may keep a rank that waits with all others silent for a moment. */
static void find_culprits(const bl_roll *roll, const bl_work *work, bl_failure *failure)
{
    for (int r = 0; r < roll->size; r++)
        if (is_long_lost(roll, r) || (is_lost(roll, r) && !has_come(roll, work, r)))
            bl_failure_culprit(failure, r);
    if (failure->n_culprits == 0 && !work->is_started && work->ready != NULL)
        bl_failure_culprit(failure, roll->rank);
    bool is_any = failure->n_culprits > 0;
    for (int r = 0; r < roll->size && !is_any; r++)
        if (!has_come(roll, work, r))
            bl_failure_culprit(failure, r);
    is_any = failure->n_culprits > 0;
    for (int r = 0; r < roll->size && !is_any; r++)
        if (is_lost(roll, r))
            bl_failure_culprit(failure, r);
}

static void take_culprits(const bl_roll *roll, const bl_beat *told, bl_failure *failure)
{
    for (int i = 0; i < told->n_culprits && i < BL_MAX_CULPRITS; i++)
        if (told->culprit[i] >= 0 && told->culprit[i] < roll->size)
            bl_failure_culprit(failure, told->culprit[i]);
}

static void list(const bl_failure *failure, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < failure->n_culprits && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%d", i > 0 ? ", " : "", failure->culprit[i]);
}

void bl_roll_deadline(const bl_roll *roll, const bl_work *work, const char *what, int64_t waited, const bl_beat *told,
                      bl_failure *failure)
{
    char ranks[64], state[240];
    bl_failure_begin(failure, BELAY_COMM_DEADLINE);
    if (told != NULL)
        take_culprits(roll, told, failure);
    else
        find_culprits(roll, work, failure);
    char *out = failure->fault.what;
    size_t size = sizeof failure->fault.what;
    if (failure->n_culprits == 0) {
        bl_words_add(out, size, "%s is not over after %.1f s, although all %d ranks are in it and heard of", what,
                     seconds(waited), roll->size);
        snprintf(failure->fault.advice, sizeof failure->fault.advice,
                 "Look at the network between the hosts, or give the group a longer timeout.");
    } else if (failure->n_culprits == 1) {
        describe_rank(roll, failure->culprit[0], true, state, sizeof state);
        bl_words_add(out, size, "rank %d %s; %s has waited %.1f s for it", failure->culprit[0], state, what,
                     seconds(waited));
    } else {
        list(failure, ranks, sizeof ranks);
        bl_words_add(out, size, "ranks %s %s; %s has waited %.1f s for them", ranks,
                     is_lost(roll, failure->culprit[0]) ? "are not heard of any more" : "are somewhere else", what,
                     seconds(waited));
    }
    bl_roll_tell(roll, failure);
}

/* ---- what a peer says ------------------------------------------------------------------------------------------------ */

bool bl_beat_is_found_by_all(belay_code code) { return code == BELAY_COMM_MISMATCH || code == BELAY_PLACE_SHARED; }

/* A rank that met something of its own is the culprit; one that only tells of others is not. */
void bl_roll_adopt(const bl_roll *roll, int peer, bl_failure *failure)
{
    const bl_beat *b = &roll->peer[peer].last;
    belay_code code = (belay_code)b->code;
    bool is_about_others = code == BELAY_COMM_DEADLINE || code == BELAY_COMM_PEER || bl_beat_is_found_by_all(code);
    bl_failure_begin(failure, is_about_others ? code : BELAY_COMM_PEER);
    if (is_about_others)
        take_culprits(roll, b, failure);
    else
        bl_failure_culprit(failure, peer);
    if (is_about_others)
        snprintf(failure->fault.what, sizeof failure->fault.what, "%.*s", (int)sizeof b->why, b->why);
    else
        snprintf(failure->fault.what, sizeof failure->fault.what, "rank %d failed first: %.*s (%s)", peer,
                 (int)sizeof b->why, b->why, belay_code_name(code));
    if (bl_failure_has(failure, roll->rank))
        bl_report_fault_fact(&failure->fault, "this is rank %d: the others have given it up", roll->rank);
    if (code == BELAY_COMM_DEADLINE)
        bl_roll_tell(roll, failure);
    else
        for (int i = 0; i < failure->n_culprits; i++)
            bl_roll_tell_rank(roll, failure->culprit[i], &failure->fault);
}
