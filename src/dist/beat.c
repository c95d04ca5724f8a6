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

static void line_of_rank(const bl_roll *roll, int rank, char *out, size_t size)
{
    char state[400];
    const bl_beat *b = beat_of(roll, rank);
    bool is_elsewhere = b->host[0] != '\0' && strncmp(b->host, roll->me->host, sizeof b->host) != 0;
    describe_rank(roll, rank, false, state, sizeof state);
    snprintf(out, size, "rank %d%s%s%.*s %s", rank, rank == roll->rank ? ", this one," : "", is_elsewhere ? " on " : "",
             is_elsewhere ? (int)sizeof b->host : 0, b->host, state);
}

void bl_roll_tell_rank(const bl_roll *roll, int rank, bl_report_fault *fault)
{
    char line[512];
    line_of_rank(roll, rank, line, sizeof line);
    bl_report_fault_fact(fault, "%s", line);
}

/* ---- a line for many ranks ------------------------------------------------------------------------------------------- */

enum {
    MOST_SINGLE = 4,    /* of ranks that are alike: more share a line */
    FOR_CULPRITS = 360, /* bytes that lines of culprits may fill, and one more */
    FOR_REST = 32       /* "and 123456 other ranks" */
};

typedef struct telling {
    const bl_roll *roll;
    bl_failure *failure;
    int n_single; /* culprits, of the first, that have a line of their own */
} telling;

/* But for how long. */
static bool are_alike(const bl_roll *roll, int p, int q)
{
    const bl_beat *a = beat_of(roll, p), *b = beat_of(roll, q);
    bool was_never = a->group == 0 && is_lost(roll, p);
    if (is_lost(roll, p) != is_lost(roll, q) || was_never != (b->group == 0 && is_lost(roll, q)))
        return false;
    return was_never || (a->waits == b->waits && strncmp(a->what, b->what, sizeof a->what) == 0 &&
                         strncmp(a->site, b->site, sizeof a->site) == 0 && a->phase == b->phase && a->step == b->step &&
                         a->epoch == b->epoch && a->position == b->position);
}

static bool is_told(const telling *t, int rank)
{
    for (int i = 0; i < t->n_single; i++)
        if (t->failure->culprit[i] == rank)
            return true;
    return false;
}

static bool may_share(const telling *t, int rank) { return rank != t->roll->rank && !is_told(t, rank); }

/* Whether rank q is told together with rank p. */
static bool shares(const telling *t, int p, int q)
{
    return p == q || (may_share(t, p) && may_share(t, q) && are_alike(t->roll, p, q));
}

static int n_sharing(const telling *t, int rank)
{
    int n = 0;
    for (int q = 0; q < t->roll->size; q++)
        n += shares(t, rank, q);
    return n;
}

static bool is_first(const telling *t, int rank)
{
    int q = 0;
    while (!shares(t, rank, q))
        q++;
    return q == rank;
}

/* "3-7, 9", cut where it is too long. */
static void name_sharing(const telling *t, int rank, char *out, size_t size)
{
    const char *between = "";
    out[0] = '\0';
    for (int q = rank; q < t->roll->size; q++) {
        int end = q;
        while (end < t->roll->size && shares(t, rank, end))
            end++;
        if (end == q)
            continue;
        if (strlen(out) + 32 > size) {
            bl_words_add(out, size, ", ...");
            return;
        }
        bl_words_add(out, size, "%s%d", between, q);
        if (end > q + 1)
            bl_words_add(out, size, "%s%d", end > q + 2 ? "-" : ", ", end - 1);
        between = ", ";
        q = end;
    }
}

static int64_t least_silence(const telling *t, int rank)
{
    int64_t least = silence(t->roll, rank);
    for (int q = 0; q < t->roll->size; q++)
        if (shares(t, rank, q) && silence(t->roll, q) < least)
            least = silence(t->roll, q);
    return least;
}

static void line_of_many(const telling *t, int rank, char *out, size_t size)
{
    char ranks[160], place[128];
    const bl_beat *b = beat_of(t->roll, rank);
    bool are_lost = is_lost(t->roll, rank);
    name_sharing(t, rank, ranks, sizeof ranks);
    describe_place(b, place, sizeof place);
    snprintf(out, size, "ranks %s ", ranks);
    if (are_lost && b->group == 0) {
        bl_words_add(out, size, "were never heard of");
        return;
    }
    if (are_lost)
        bl_words_add(out, size, "were last heard of %.1f s ago or before: ", seconds(least_silence(t, rank)));
    if (b->waits)
        bl_words_add(out, size, "%s in ", are_lost ? "waiting" : "wait");
    else
        bl_words_add(out, size, "%s%s%s", are_lost ? "" : "are ", place,
                     b->what[0] != '\0' ? "; their last call: " : "");
    bl_words_add(out, size, "%.*s%s%.*s", (int)sizeof b->what, b->what, b->site[0] != '\0' ? " at " : "",
                 (int)sizeof b->site, b->site);
    if (b->waits)
        bl_words_add(out, size, ", %s", place);
}

/* False when there is no room for it and for how many were left out. */
static bool add_line(telling *t, const char *line)
{
    bl_report_fault *f = &t->failure->fault;
    if (strlen(f->facts) + strlen(line) + 2 + FOR_REST > sizeof f->facts)
        return false;
    bl_report_fault_fact(f, "%s", line);
    return true;
}

static void tell_culprits(telling *t)
{
    char line[512];
    for (int i = 0; i < t->failure->n_culprits && strlen(t->failure->fault.facts) < FOR_CULPRITS; i++) {
        line_of_rank(t->roll, t->failure->culprit[i], line, sizeof line);
        if (!add_line(t, line))
            return;
        t->n_single = i + 1;
    }
}

void bl_roll_tell(const bl_roll *roll, bl_failure *failure)
{
    char line[512];
    telling t = {.roll = roll, .failure = failure};
    tell_culprits(&t);
    int n_untold = 0;
    for (int r = 0; r < roll->size; r++) {
        int n = n_sharing(&t, r);
        bool are_many = n > MOST_SINGLE;
        if (is_told(&t, r) || (are_many && !is_first(&t, r)))
            continue;
        if (are_many)
            line_of_many(&t, r, line, sizeof line);
        else
            line_of_rank(roll, r, line, sizeof line);
        if (!add_line(&t, line))
            n_untold += are_many ? n : 1;
    }
    if (n_untold > 0)
        bl_report_fault_fact(&failure->fault, "and %d other rank%s", n_untold, n_untold == 1 ? "" : "s");
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

bool bl_roll_is_excused(const bl_roll *roll, const bl_work *work)
{
    bool is_any = false;
    for (int r = 0; r < roll->size; r++) {
        uint32_t phase = beat_of(roll, r)->phase;
        bool has_time = phase == BL_PHASE_SAVE || phase == BL_PHASE_EVALUATE;
        if (is_long_lost(roll, r) || (!has_come(roll, work, r) && (!has_time || is_lost(roll, r))))
            return false;
        is_any = is_any || !has_come(roll, work, r);
    }
    return is_any;
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
