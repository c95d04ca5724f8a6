/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a training tell each other.  After each pass over a window all hear how it went on each: one that was
 * not clean anywhere is thrown away everywhere, and what one rank leaves out all leave out.  So weights, counts, figures
 * and decisions are the same on all ranks at the end of each window, and any of them can save the run.
 *
 * Whoever ends for a reason that the others cannot know tells them, so that nobody waits. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "dist/vote.h"
#include "train/trainer.h"

static bool is_alone(const bl_trainer *t) { return t->ranks.group == NULL; }

static belay_code no_memory(bl_trainer *t)
{
    return bl_error_set(&t->error, BELAY_MEM_EXHAUSTED, "no memory for what %d ranks tell each other", t->ranks.size);
}

/* ---- made and freed ------------------------------------------------------------------------------------------------- */

belay_code bl_train_ranks_join(bl_trainer *t, belay_reducer *reducer)
{
    bl_train_ranks *r = &t->ranks;
    r->size = 1;
    if (reducer == NULL)
        return BELAY_OK;
    if (belay_reducer_is_nil(reducer))
        return bl_error_set(&t->error, BELAY_CONF_VALUE, "the reducer of a training is nil: it could not be made");
    r->group = bl_reducer_group(reducer);
    r->size = belay_group_size(r->group);
    r->rank = belay_group_rank(r->group);
    if (bl_reducer_module(reducer) == t->model)
        return BELAY_OK;
    bl_error_set(&t->error, BELAY_CONF_VALUE, "the reducer of a training averages another module than the one trained");
    bl_error_advise(&t->error, "Make it by belay_ddp over the module that is given to belay_train.");
    return BELAY_CONF_VALUE;
}

belay_code bl_train_ranks_init(bl_trainer *t)
{
    bl_train_ranks *r = &t->ranks;
    int64_t n = t->options.accumulate, n_all;
    if (is_alone(t))
        return BELAY_OK;
    bool fits = bl_checked_mul(n, r->size, &n_all);
    r->agreed = bl_alloc(n, sizeof *r->agreed);
    r->again = bl_alloc(n, sizeof *r->again);
    r->mine = bl_alloc(n, sizeof *r->mine);
    r->theirs = fits ? bl_alloc(n_all, sizeof *r->theirs) : NULL;
    return r->agreed != NULL && r->again != NULL && r->mine != NULL && r->theirs != NULL ? BELAY_OK : no_memory(t);
}

void bl_train_ranks_fini(bl_trainer *t)
{
    bl_train_ranks *r = &t->ranks;
    bl_free(r->agreed);
    bl_free(r->again);
    bl_free(r->mine);
    bl_free(r->theirs);
}

/* ---- meeting -------------------------------------------------------------------------------------------------------- */

belay_code bl_train_ranks_meet(bl_trainer *t, belay_code code)
{
    if (is_alone(t))
        return code;
    if (code == BELAY_OK)
        return belay_group_barrier(t->ranks.group);
    bl_train_ranks_give_up(t, code);
    return code;
}

belay_code bl_train_ranks_take(bl_trainer *t, void *data, int64_t n_bytes, const char *what)
{
    return is_alone(t) ? BELAY_OK : bl_group_host_broadcast(t->ranks.group, data, n_bytes, 0, what);
}

/* FNV-1a. */
static int64_t hash_of(const char *text)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (; text != NULL && *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001B3);
    return (int64_t)hash;
}

static int64_t hash_of_skipped(const belay_train_options *o)
{
    uint64_t hash = (uint64_t)o->n_skip;
    for (int64_t i = 0; i < o->n_skip; i++)
        hash =
            (hash ^ ((uint64_t)o->skip[i].epoch << 32 ^ (uint64_t)o->skip[i].position)) * UINT64_C(0x9E3779B97F4A7C15);
    return (int64_t)hash;
}

typedef struct compared {
    const char *what;
    int64_t value;
    bool is_hash;
} compared;

static void name_value(const compared *item, int64_t value, bl_text *out)
{
    if (item->is_hash)
        bl_text_format(out, "of hash %016" PRIx64, (uint64_t)value);
    else
        bl_text_format(out, "%" PRId64, value);
}

static belay_code tell_difference(const bl_trainer *t, const compared *item, const uint64_t *value, bl_vote vote)
{
    bl_text between = {0}, odd = {0}, reference = {0};
    bl_text_format(&between, ": %s other than of ", item->what);
    name_value(item, (int64_t)value[vote.odd], &odd);
    name_value(item, (int64_t)value[vote.reference], &reference);
    belay_code code = bl_vote_break(t->ranks.group, value, vote,
                                    &(bl_vote_words){.before = "",
                                                     .between = bl_text_get(&between),
                                                     .odd = bl_text_get(&odd),
                                                     .reference = bl_text_get(&reference)});
    bl_group_look(t->ranks.group);
    bl_text_fini(&between);
    bl_text_fini(&odd);
    bl_text_fini(&reference);
    return code;
}

/* What the first window relies on. */
enum { N_ITEMS = 16 };
static void list_items(const bl_trainer *t, compared out[N_ITEMS])
{
    const bl_train_state *s = &t->state;
    const char *tokens = belay_tokenizer_to_json(belay_dataset_tokenizer(t->data));
    const char *labels = belay_labels_to_json(belay_dataset_labels(t->data));
    const compared items[N_ITEMS] = {
        {"samples of the data", s->samples, false},
        {"tokens of the data", hash_of(tokens), true},
        {"labels of the data", hash_of(labels), true},
        {"samples of the validation data", t->options.valid != NULL ? belay_dataset_n_samples(t->options.valid) : 0,
         false},
        {"samples of a global batch", s->batch, false},
        {"micro-batches of a step", s->accumulate, false},
        {"the seed of the order", s->seed, false},
        {"shuffle", s->shuffle, false},
        {"drop_last", s->drop_last, false},
        {"epochs", t->options.epochs, false},
        {"patience", t->options.patience, false},
        {"max_faults", t->options.max_faults, false},
        {"batches to skip", hash_of_skipped(&t->options), true},
        {"epochs that were done", s->epoch, false},
        {"batches that were done", s->position, false},
        {"steps that were done", s->steps, false},
    };
    memcpy(out, items, sizeof items);
}

belay_code bl_train_ranks_compare(bl_trainer *t)
{
    bl_train_ranks *r = &t->ranks;
    if (is_alone(t))
        return BELAY_OK;
    compared items[N_ITEMS];
    int64_t mine[N_ITEMS];
    list_items(t, items);
    for (int i = 0; i < N_ITEMS; i++)
        mine[i] = items[i].value;
    int64_t *all = bl_alloc((int64_t)r->size * N_ITEMS, sizeof *all);
    uint64_t *value = bl_alloc(r->size, sizeof *value);
    belay_code code = all != NULL && value != NULL ? BELAY_OK : no_memory(t);
    if (code == BELAY_OK)
        code = bl_group_host_all_gather(r->group, mine, all, (int64_t)sizeof mine, "what each rank trains with");
    for (int i = 0; i < N_ITEMS && code == BELAY_OK; i++) {
        for (int q = 0; q < r->size; q++)
            value[q] = (uint64_t)all[q * N_ITEMS + i];
        bl_vote vote = bl_vote_of(value, r->size);
        if (vote.odd >= 0)
            code = tell_difference(t, &items[i], value, vote);
    }
    bl_free(all);
    bl_free(value);
    return code;
}

/* ---- what comes from other ranks ------------------------------------------------------------------------------------- */

/* Something that no rank of this build says: the group cannot go on. */
static belay_code refuse_received(bl_trainer *t, const char *what)
{
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_COMM_FAILED);
    snprintf(f.what, sizeof f.what, "%.200s: what came from the ranks was damaged", what);
    bl_group_break(t->ranks.group, &f, NULL, 0);
    bl_group_look(t->ranks.group);
    return t->ranks.group->broken;
}

/* Sums of numbers of samples, as far as doubles are whole. */
static belay_code take_count(bl_trainer *t, double sum, const char *of, int64_t *out)
{
    char what[120];
    if (sum >= 0 && sum <= 0x1p53 && sum == (double)(int64_t)sum) {
        *out = (int64_t)sum;
        return BELAY_OK;
    }
    snprintf(what, sizeof what, "the ranks have %g %s together", bl_text_real(sum), of);
    return refuse_received(t, what);
}

/* ---- a pass over the window ----------------------------------------------------------------------------------------- */

belay_code bl_train_ranks_agree(bl_trainer *t, bl_train_figures *figures, bool *is_clean)
{
    bl_train_ranks *r = &t->ranks;
    if (is_alone(t))
        return BELAY_OK;
    const double mine[3] = {figures->loss, (double)figures->n_samples, (double)figures->n_right};
    bool is_asked = t->options.stop != NULL && *t->options.stop != 0;
    uint32_t flags = (*is_clean ? 0 : BL_FLAG_FAULT) | (is_asked ? BL_FLAG_STOP : 0);
    TRY(bl_reducer_agree(t->options.reducer, flags, mine, &r->verdict));
    *is_clean = (r->verdict.flags & BL_FLAG_FAULT) == 0;
    figures->loss = r->verdict.figure[0];
    TRY(take_count(t, r->verdict.figure[1], "samples", &figures->n_samples));
    return take_count(t, r->verdict.figure[2], "right answers", &figures->n_right);
}

/* A fate and, above it, the code of the fault that made it. */
enum { FATE_BITS = 8 };

static bool is_fate(int64_t word)
{
    int64_t code = word >> FATE_BITS;
    return (word & ((1 << FATE_BITS) - 1)) <= BL_FATE_OUT &&
           (code == BELAY_OK || (code == (int64_t)(belay_code)code && bl_error_is_code((belay_code)code)));
}

static belay_code check_fates(bl_trainer *t)
{
    char what[120];
    for (int64_t i = 0; i < t->ranks.size * t->n_window; i++) {
        if (is_fate(t->ranks.theirs[i]))
            continue;
        snprintf(what, sizeof what,
                 "rank %" PRId64 " says %" PRId64 " of micro-batch %" PRId64 " of a window, which is no fate",
                 i / t->n_window, t->ranks.theirs[i], i % t->n_window);
        return refuse_received(t, what);
    }
    return BELAY_OK;
}

static void count(bl_trainer *t, bl_train_fate before, bl_train_fate now)
{
    t->window.faults += before == BL_FATE_GOOD && now != BL_FATE_GOOD;
    t->window.transient += (now == BL_FATE_REDONE) - (before == BL_FATE_REDONE && now != before);
    t->window.skipped += now == BL_FATE_OUT && before != BL_FATE_OUT;
}

static belay_code settle_fate(bl_trainer *t, int64_t k)
{
    bl_train_ranks *r = &t->ranks;
    bl_train_fate before = r->agreed[k], now = before;
    for (int q = 0; q < r->size; q++) {
        bl_train_fate fate = (bl_train_fate)(r->theirs[q * t->n_window + k] & ((1 << FATE_BITS) - 1));
        now = fate > now ? fate : now;
    }
    for (int q = 0; q < r->size; q++) {
        belay_code code = (belay_code)(r->theirs[q * t->n_window + k] >> FATE_BITS);
        if (code != BELAY_OK && q != r->rank && bl_train_writes(t))
            TRY(bl_train_record_of_rank(t, q, code, t->state.position + k,
                                        now == BL_FATE_OUT ? "skipped" : "transient"));
    }
    count(t, before, now);
    r->agreed[k] = t->fate[k] = now;
    r->mine[k] = 0;
    return BELAY_OK;
}

/* All count the same.  The lowest rank with a fault in this pass ends the run; the others hear of it. */
static belay_code check_faults(bl_trainer *t, int lowest)
{
    belay_code code = bl_train_check_faults(t);
    if (code == BELAY_OK || t->ranks.rank == lowest)
        return code;
    t->error = (bl_error){0};
    code = belay_group_barrier(t->ranks.group);
    return code != BELAY_OK ? code : BELAY_RUN_MAX_FAULTS;
}

belay_code bl_train_ranks_fates(bl_trainer *t)
{
    bl_train_ranks *r = &t->ranks;
    int lowest = r->size - 1;
    if (is_alone(t))
        return BELAY_OK;
    for (int64_t k = 0; k < t->n_window; k++)
        r->mine[k] = r->mine[k] * (1 << FATE_BITS) + (int64_t)t->fate[k];
    TRY(bl_group_host_all_gather(r->group, r->mine, r->theirs, t->n_window * (int64_t)sizeof *r->mine,
                                 "the fates of a window"));
    TRY(check_fates(t));
    for (int64_t i = r->size * t->n_window - 1; i >= 0; i--)
        lowest = r->theirs[i] >> FATE_BITS != BELAY_OK ? (int)(i / t->n_window) : lowest;
    for (int64_t k = 0; k < t->n_window; k++)
        TRY(settle_fate(t, k));
    return check_faults(t, lowest);
}

belay_code bl_train_ranks_stop(bl_trainer *t)
{
    bl_train_ranks *r = &t->ranks;
    if (is_alone(t) || (r->verdict.flags & BL_FLAG_STOP) == 0)
        return BELAY_OK;
    int32_t number = t->options.stop != NULL ? *t->options.stop : 0;
    TRY(bl_group_host_all_reduce(r->group, &number, 1, BELAY_I32, BELAY_GROUP_MAX, "what a rank was asked to stop by"));
    t->stopped_by = number;
    return BELAY_OK;
}

/* ---- a validation --------------------------------------------------------------------------------------------------- */

belay_code bl_train_ranks_sum(bl_trainer *t, bl_train_figures *figures, int64_t *n_faulted)
{
    enum { LOSS, SAMPLES, RIGHT, FAULTED, N };
    bl_train_ranks *r = &t->ranks;
    if (is_alone(t))
        return BELAY_OK;
    const double mine[N] = {figures->loss, (double)figures->n_samples, (double)figures->n_right, (double)*n_faulted};
    double sum[N] = {0}, *all = bl_alloc((int64_t)r->size * N, sizeof *all);
    if (all == NULL)
        return no_memory(t);
    belay_code code =
        bl_group_host_all_gather(r->group, mine, all, (int64_t)sizeof mine, "the figures of a validation");
    for (int q = 0; q < r->size; q++)
        for (int i = 0; i < N; i++)
            sum[i] += all[q * N + i];
    bl_free(all);
    TRY(code);
    figures->loss = sum[LOSS];
    TRY(take_count(t, sum[SAMPLES], "samples", &figures->n_samples));
    TRY(take_count(t, sum[RIGHT], "right answers", &figures->n_right));
    return take_count(t, sum[FAULTED], "batches with a fault", n_faulted);
}

/* ---- the end -------------------------------------------------------------------------------------------------------- */

void bl_train_ranks_give_up(bl_trainer *t, belay_code code)
{
    bl_train_ranks *r = &t->ranks;
    char why[200];
    if (is_alone(t) || r->has_given_up || r->group->broken != BELAY_OK)
        return;
    r->has_given_up = true;
    snprintf(why, sizeof why, "%.160s (%s)", t->error.code == code ? t->error.what : belay_code_why(code),
             belay_code_name(code));
    belay_group_abort(r->group, why);
}

/* Who died or gave up has nothing that the others lack: all have committed the same windows. */
bool bl_train_ranks_saves(const bl_trainer *t, belay_code code)
{
    const bl_train_ranks *r = &t->ranks;
    if (is_alone(t) || r->size == 1)
        return true;
    if (code == BELAY_OK)
        return bl_train_writes(t);
    return !r->has_given_up && r->rank == bl_group_lowest_survivor(r->group);
}
