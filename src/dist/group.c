/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: opening and closing, and how each call of a group begins. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/nearest.h"
#include "dist/calls.h"
#include "dist/launched.h"
#include "dist/parts.h"
#include "dist/rounds.h"
#include "dist/words.h"
#include "dist/worker.h"

enum { N_SITES = 32 };

/* Words of sites that were looked up: the next call from there need not. */
typedef struct bl_group_sites {
    struct {
        uintptr_t site;
        char words[BL_WORD_SITE];
    } row[N_SITES];
} bl_group_sites;

static const char *words_of_site(belay_group *group, uintptr_t site)
{
    char whole[256];
    uint64_t hash = (uint64_t)site * UINT64_C(0x9E3779B97F4A7C15);
    int i = (int)(hash >> 59);
    if (group->sites->row[i].site != site && site != 0) {
        bl_context_site(group->context, site, whole, sizeof whole);
        snprintf(group->sites->row[i].words, BL_WORD_SITE, "%.*s", BL_WORD_SITE - 1, whole);
        group->sites->row[i].site = site;
    }
    return site != 0 ? group->sites->row[i].words : "";
}

/* ---- what a call begins with ----------------------------------------------------------------------------------------- */

bool belay_group_is_nil(const belay_group *group)
{
    return group == NULL || group->context == NULL || group->is_closed;
}

/* Silent for nil; told for one that was closed. */
bool bl_group_ask(const belay_group *group)
{
    if (group == NULL || group->context == NULL || bl_context_is_elsewhere(group->context))
        return false;
    if (group->is_closed) {
        bl_error error;
        bl_error_set(&error, BELAY_LIFE_STALE, "a group was used after it had been closed");
        bl_error_advise(&error, "Close a group last, after all that goes over it.");
        bl_context_raise_error(group->context, &error);
    }
    return !group->is_closed;
}

bool bl_group_use(belay_group *group)
{
    if (!bl_group_ask(group))
        return false;
    bl_group_look(group);
    if (group->broken != BELAY_OK)
        return false;
    if (!group->is_bound) {
        bl_error error;
        bl_error_set(&error, BELAY_CONF_ORDER, "an operation of a group came before the group was bound to a device");
        bl_error_advise(&error, "Call belay_group_bind first, on all ranks.");
        bl_context_raise_error(group->context, &error);
    }
    return group->is_bound;
}

belay_code bl_group_code(const belay_group *group)
{
    if (group == NULL || group->context == NULL)
        return BELAY_CONF_MISSING;
    if (bl_context_is_elsewhere(group->context))
        return bl_caller_code(BELAY_PLACE_FORK);
    return group->is_closed ? BELAY_LIFE_STALE : group->broken != BELAY_OK ? group->broken : BELAY_CONF_ORDER;
}

/* Where it stands, at the call from `site`; that of a process alone for no group. */
static bl_transport_place place_of(const belay_group *group, uintptr_t site)
{
    static const bl_transport_place alone = {.size = 1, .local_size = 1};
    __attribute__((cleanup(bl_enter_end), unused)) bl_enter call =
        bl_enter_call(group != NULL ? group->context : NULL, site);
    return bl_group_ask(group) ? group->place : alone;
}
#define PLACE(group) place_of((group), (uintptr_t)__builtin_return_address(0))

int belay_group_rank(const belay_group *group) { return PLACE(group).rank; }
int belay_group_size(const belay_group *group) { return PLACE(group).size; }
int belay_group_local_rank(const belay_group *group) { return PLACE(group).local_rank; }
int belay_group_local_size(const belay_group *group) { return PLACE(group).local_size; }

/* ---- failures -------------------------------------------------------------------------------------------------------- */

/* Once for the group, at the call at work; a rank that gave up by itself has told. */
void bl_group_look(belay_group *group)
{
    bl_failure failure;
    if (group->broken != BELAY_OK || !bl_worker_has_failed(group->worker, &failure))
        return;
    group->broken = failure.fault.code;
    if (!group->gave_up)
        bl_context_fault(group->context, &failure.fault);
}

void bl_group_break(belay_group *group, const bl_report_fault *fault, const int *culprits, int n_culprits)
{
    bl_failure failure;
    bl_failure_begin(&failure, fault->code);
    failure.fault = *fault;
    for (int i = 0; i < n_culprits; i++)
        bl_failure_culprit(&failure, culprits[i]);
    bl_worker_fail(group->worker, &failure);
}

static void break_by_mismatch(belay_group *group, const bl_word *all, const bl_report_fault *fault)
{
    int culprit[BL_MAX_CULPRITS], n = 0;
    for (int r = 0; r < group->place.size && n < BL_MAX_CULPRITS; r++)
        if (bl_word_odd(all, group->place.size, r))
            culprit[n++] = r;
    bl_group_break(group, fault, culprit, n);
}

belay_code bl_group_failure(const belay_group *group)
{
    bl_failure failure;
    return bl_worker_has_failed(group->worker, &failure) ? failure.fault.code : BELAY_COMM_PEER;
}

void bl_group_keep(belay_group *group, void *memory) { bl_worker_keep(group->worker, memory); }

int bl_group_lowest_survivor(const belay_group *group) { return bl_worker_lowest_survivor(group->worker); }

bl_phase bl_group_phase(belay_group *group, bl_phase phase)
{
    return belay_group_is_nil(group) ? BL_PHASE_OUTSIDE : bl_worker_phase(group->worker, phase, group->context);
}

/* ---- words ----------------------------------------------------------------------------------------------------------- */

bl_word bl_group_word(belay_group *group, bl_call_kind kind)
{
    return bl_group_word_at(group, kind, group->context->site);
}

bl_word bl_group_word_at(belay_group *group, bl_call_kind kind, uintptr_t site)
{
    const belay_context *context = group->context;
    bl_word word = {.kind = kind,
                    .number = group->n_calls,
                    .hash = group->hash,
                    .flags = context->window_faulted ? BL_FLAG_FAULT : 0,
                    .step = context->step,
                    .epoch = context->epoch,
                    .position = context->position};
    snprintf(word.site, sizeof word.site, "%s", words_of_site(group, site));
    return word;
}

void bl_group_exchange_work(bl_word *mine, bl_word *all, bl_work *work)
{
    work->kind = BL_WORK_ALL_GATHER;
    work->plane = BL_PLANE_WORDS;
    work->mine = mine;
    work->data = all;
    work->n = BL_WORD_BYTES;
}

bool bl_group_settle_words(belay_group *group, bl_word *all)
{
    bl_report_fault fault;
    bl_words_follow(all, group->place.size);
    bool fit = bl_words_compare(all, group->place.size, &fault) == BELAY_OK;
    if (!fit)
        break_by_mismatch(group, all, &fault);
    return fit;
}

belay_code bl_group_exchange(belay_group *group, const bl_word *mine)
{
    if (group->later != NULL)
        (void)bl_later_settle(group->later); /* whether the group is broken is seen here */
    do {
        bl_work work = {.site = group->context->site};
        *group->mine = *mine;
        group->mine->number = group->n_calls;
        group->mine->hash = group->hash;
        bl_group_exchange_work(group->mine, group->all, &work);
        bl_group_post(group, &work);
        if (!bl_group_wait(group, &work))
            return group->broken;
        if (!bl_group_settle_words(group, group->all))
            bl_group_look(group);
    } while (bl_rounds_follow(group, group->all));
    return group->broken;
}

/* ---- works ----------------------------------------------------------------------------------------------------------- */

static void fold(belay_group *group, uint64_t value)
{
    uint64_t h = (group->hash ^ value) * UINT64_C(0x9FB21C651E98DF25);
    group->hash = h ^ h >> 28;
}

void bl_group_post(belay_group *group, bl_work *work)
{
    if (work->plane == BL_PLANE_WORDS) {
        group->n_calls++;
    } else {
        uint32_t factor;
        memcpy(&factor, &work->factor, sizeof factor);
        fold(group, (uint64_t)work->kind << 32 | (uint64_t)work->dtype << 16 | (uint64_t)work->op);
        fold(group, (uint64_t)work->n);
        fold(group, (uint64_t)factor << 32 | (uint32_t)work->root);
    }
    bl_worker_post(group->worker, work);
}

void bl_group_await(belay_group *group, bl_work *work)
{
    char what[64];
    if (bl_work_is_over(work))
        return;
    if (work->plane == BL_PLANE_WORDS && work->kind == BL_WORK_ALL_GATHER)
        bl_word_call(work->mine, what, sizeof what);
    else
        snprintf(what, sizeof what, "%.*s", (int)sizeof what - 1, work->what != NULL ? work->what : "an operation");
    bl_worker_at(group->worker, group->context);
    bl_worker_wait(group->worker, work, what, words_of_site(group, work->site));
}

bool bl_group_wait(belay_group *group, bl_work *work)
{
    bl_group_await(group, work);
    bool has_ended = __atomic_load_n(&work->state, __ATOMIC_ACQUIRE) == BL_WORK_ENDED;
    if (!has_ended)
        bl_group_look(group);
    return has_ended;
}

/* ---- opening --------------------------------------------------------------------------------------------------------- */

static belay_code check_options(const belay_group_options *options, bl_error *error)
{
    static const char *const makers[] = {"self", "mpi"};
    double t = options->timeout;
    if (!(t >= 0) || t > 1e6) /* NaN too */
        return bl_error_set(error, BELAY_CONF_VALUE, "timeout is %g s, outside of [0, 1e6]", bl_text_real(t));
    if (options->maker == NULL)
        return BELAY_OK;
    bl_nearest best = {0};
    for (int i = 0; i < BL_COUNT(makers); i++) {
        if (strcmp(options->maker, makers[i]) == 0)
            return BELAY_OK;
        bl_nearest_offer(&best, options->maker, makers[i]);
    }
    bl_error_set(error, BELAY_CONF_UNKNOWN, "there is no maker of groups called %.64s", options->maker);
    if (best.name != NULL)
        bl_error_fact(error, "did you mean %s?", best.name);
    bl_error_advise(error, "Use self or mpi, or leave it out.");
    return BELAY_CONF_UNKNOWN;
}

static belay_code choose(const belay_group_options *options, bl_launcher launcher, const bl_transport_api **api,
                         bl_error *error)
{
    TRY(check_options(options, error));
    bool is_mpi = options->maker != NULL && strcmp(options->maker, "mpi") == 0;
    bool is_self = options->maker != NULL && !is_mpi;
    *api = &bl_transport_self;
    if (launcher == BL_LAUNCHER_NONE && !is_self)
        return bl_launched_check(is_mpi, error);
    return is_self ? BELAY_OK : bl_transport_load("mpi", api, error);
}

/* srun may start processes that MPI then takes for as many worlds of one. */
static belay_code check_world(const belay_group *group, int size, bl_error *error)
{
    if (group->place.size == size)
        return BELAY_OK;
    bl_error_set(error, BELAY_COMM_LAUNCH, "the launcher started %d ranks, and MPI knows of %d", size,
                 group->place.size);
    bl_error_fact(error, "MPI: %s", group->place.words);
    bl_error_advise(error, "Start ranks by the launcher of this MPI; with Slurm: srun --mpi=pmix, where it has that.");
    return BELAY_COMM_LAUNCH;
}

static void shell_free(void *group) { bl_free(group); }

/* What the transport may still write to stays with the worker. */
static void group_fini(belay_group *group, bool is_whole)
{
    if (group->worker == NULL || bl_worker_close(group->worker, is_whole)) {
        bl_free(group->mine);
        bl_free(group->all);
    } else {
        bl_worker_keep(group->worker, group->mine);
        bl_worker_keep(group->worker, group->all);
    }
    bl_free(group->sites);
}

/* Where a launcher on this host finds what this rank was at when it can tell nobody any more; NULL: nowhere. */
static char *find_journal(const belay_context *context)
{
    const char *path = bl_journal_path(context->journal);
    char *whole = path != NULL ? realpath(path, NULL) : NULL;
    if (whole == NULL || strlen(whole) < BL_STATUS_PATH)
        return whole;
    free(whole);
    return NULL;
}

static belay_code open_group(belay_group *group, const belay_group_options *options, bl_error *error)
{
    const bl_transport_api *api;
    int size;
    bl_launcher launcher = bl_launched_by(&size);
    TRY(choose(options, launcher, &api, error));
    double timeout = options->timeout > 0 ? options->timeout : 60;
    group->timeout = (int64_t)(timeout * 1e9);
    group->sites = bl_alloc(1, sizeof *group->sites);
    if (group->sites == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for a group");
    char *journal = find_journal(group->context);
    group->worker = bl_worker_open(api, group->timeout, getenv("BELAY_STATUS"), journal, error);
    free(journal);
    if (group->worker == NULL)
        return error->code;
    group->place = group->worker->place;
    if (api != &bl_transport_self)
        TRY(check_world(group, size, error));
    group->mine = bl_alloc(1, sizeof *group->mine);
    group->all = bl_alloc(group->place.size, sizeof *group->all);
    if (group->mine == NULL || group->all == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for a group of %d ranks", group->place.size);
    return BELAY_OK;
}

static void warn_of_recovery(const belay_group *group)
{
    int size;
    if (group->place.size > 1 && bl_launched_by(&size) == BL_LAUNCHER_MPIRUN && !bl_launched_recovers())
        bl_context_raise(group->context, BELAY_COMM_RECOVERY,
                         "mpirun was started without recovery: when one rank dies, it ends the others");
}

static void let_go(belay_context *context)
{
    for (const bl_member *m = context->members; m != NULL; m = m->next) {
        const belay_group *group = m->object;
        if (m->free == bl_group_destroy)
            for (const bl_round *round = group->rounds; round != NULL; round = round->next)
                round->await(round->state);
    }
}

belay_group *belay_group_open(belay_context *context, const belay_group_options *options)
{
    static const belay_group_options defaults = {0};
    BL_ENTER(context);
    if (!belay_is_open(context))
        return NULL;
    bl_error error = {0};
    belay_group *group = bl_alloc(1, sizeof *group);
    if (group == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for a group");
        return NULL;
    }
    group->context = context;
    if (open_group(group, options != NULL ? options : &defaults, &error) != BELAY_OK ||
        !bl_context_adopt(context, group, bl_group_destroy)) {
        if (error.code == BELAY_OK)
            bl_error_set(&error, BELAY_MEM_EXHAUSTED, "no memory for a group");
        group_fini(group, true);
        bl_free(group);
        bl_context_raise_error(context, &error);
        return NULL;
    }
    context->close_groups = bl_groups_end;
    context->let_go = let_go;
    context->rank = group->place.rank;
    warn_of_recovery(group);
    bl_worker_report(group->worker, "running", context);
    return group;
}

/* ---- closing --------------------------------------------------------------------------------------------------------- */

bool bl_group_give_up_by_fault(belay_group *group)
{
    belay_fault first;
    char why[200];
    bl_group_look(group);
    if (group->broken != BELAY_OK)
        return true;
    if (!belay_fault_first(group->context, &first))
        return false;
    const char *text = strncmp(first.text, "belay: ", 7) == 0 ? first.text + 7 : first.text;
    snprintf(why, sizeof why, "%.*s", (int)strcspn(text, "\n"), text);
    bl_group_give_up(group, why);
    return true;
}

/* The last call of all ranks.  A rank that cannot go on says so instead. */
static void end(belay_group *group)
{
    if (group->has_ended)
        return;
    group->has_ended = true;
    bl_group_look(group);
    belay_context *context = group->context;
    if (group->broken != BELAY_OK)
        return;
    bool is_over = context->first_code != BELAY_OK && belay_code_severity(context->first_code) >= BELAY_SEVERITY_FATAL;
    if (is_over && bl_group_give_up_by_fault(group))
        return;
    bl_word word = bl_group_word(group, BL_CALL_CLOSE);
    if (bl_group_exchange(group, &word) == BELAY_OK)
        bl_worker_report(group->worker, "closed", context);
}

/* As a member of its context. */
void bl_group_destroy(void *object)
{
    belay_group *group = object;
    end(group);
    group_fini(group, group->broken == BELAY_OK);
    *group = (belay_group){.context = group->context, .is_closed = true};
    bl_context_bury(group->context, &group->grave, shell_free);
}

void bl_groups_end(belay_context *context)
{
    for (const bl_member *m = context->members; m != NULL; m = m->next)
        if (m->free == bl_group_destroy)
            end(m->object);
}

void belay_group_close(belay_group *group)
{
    if (group == NULL || group->context == NULL)
        return;
    BL_ENTER(group->context);
    if (!bl_group_ask(group))
        return;
    if (group->n_reducers > 0) {
        bl_error error;
        bl_error_set(&error, BELAY_CONF_ORDER, "a group was closed under %d reducer%s", group->n_reducers,
                     group->n_reducers == 1 ? "" : "s");
        bl_error_advise(&error, "Free the reducers first, by belay_reducer_free.");
        bl_context_raise_error(group->context, &error);
        return;
    }
    bl_context_forget(group->context, group);
    bl_group_destroy(group);
}

void bl_group_give_up(belay_group *group, const char *why)
{
    bl_failure failure;
    bl_failure_begin(&failure, BELAY_COMM_PEER);
    snprintf(failure.fault.what, sizeof failure.fault.what, "rank %d gave up: %.300s", group->place.rank, why);
    bl_failure_culprit(&failure, group->place.rank);
    bl_worker_at(group->worker, group->context);
    group->gave_up = true;
    group->context->gave_up = true;
    bl_worker_fail(group->worker, &failure);
    bl_group_look(group);
}

void belay_group_abort(belay_group *group, const char *why)
{
    if (group == NULL || group->context == NULL)
        return;
    BL_ENTER(group->context);
    if (!bl_group_ask(group))
        return;
    bl_group_look(group);
    if (group->broken == BELAY_OK)
        bl_group_give_up(group, why != NULL && why[0] != '\0' ? why : "it did not say why");
}
