/* SPDX-License-Identifier: Apache-2.0 */
/* Training over real ranks: with the same global batch any number of them ends where one does, the same number twice in
 * the same bits; what one rank loses, all leave out, and no bit differs from a run without it. */
#include "train/amp_support.h"

#include <signal.h>

enum { GLOBAL = 8, STEPS = 64, WINDOW = 3 };

/* ---- runs ----------------------------------------------------------------------------------------------------------- */

static int n_ranks(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_SIZE");
    return text != NULL ? atoi(text) : 1;
}

static int rank_here(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_RANK");
    return text != NULL ? atoi(text) : 0;
}

/* Losses after each step and each epoch. */
typedef struct curve {
    double loss[STEPS];
    int n;
} curve;

static void note(void *state, const belay_progress *progress)
{
    curve *c = state;
    bool is_epoch = progress->kind == BELAY_PROGRESS_EPOCH;
    if (progress->kind == BELAY_PROGRESS_STEP || is_epoch) {
        assert_true(c->n + 2 < STEPS);
        c->loss[c->n++] = progress->loss;
        if (is_epoch)
            c->loss[c->n++] = progress->valid_loss;
    }
}

static const char *device = "cpu";

/* 70 samples in global batches of 8: the last one of an epoch has 6, which four ranks have 2, 2, 1 and 1 of. */
static trial over_ranks(void)
{
    trial t = new_trial();
    t.is_ranked = true;
    t.options.batch = GLOBAL / n_ranks();
    t.device = device;
    return t;
}

static void run_noting(trial *t, curve *c)
{
    *c = (curve){.n = 0};
    t->options.progress = note;
    t->options.progress_state = c;
    run_trial(t);
    assert_int_equal(t->code, BELAY_OK);
    assert_int_equal(t->closed, 0);
}

/* ---- one, two and four ranks ---------------------------------------------------------------------------------------- */

static void compare_with_one(bool is_mean, bool is_ragged)
{
    curve alone, together;
    trial one = new_trial(), all = over_ranks();
    one.is_mean = all.is_mean = is_mean;
    one.options.no_shuffle = all.options.no_shuffle = false;
    one.options.epochs = all.options.epochs = 3;
    one.n_samples = all.n_samples = is_ragged ? 66 : 72; /* with 66 two of four ranks have no part of the last batch */
    run_noting(&one, &alone);
    run_noting(&all, &together);
    assert_int_equal(together.n, alone.n);
    for (int i = 0; i < alone.n; i++)
        if (!(fabs(together.loss[i] - alone.loss[i]) <= 1e-5 + 1e-4 * fabs(alone.loss[i])))
            fail_msg("figure %d is %.9g over ranks, %.9g alone", i, together.loss[i], alone.loss[i]);
    assert_int_equal(all.result.best_epoch, one.result.best_epoch);
    end_trial(&one);
    end_trial(&all);
}

static void losses_are_those_of_one_rank_with_the_same_global_batch(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++)
        compare_with_one(k % 2 != 0, k / 2 != 0);
}

static void the_same_ranks_twice_give_the_same_bits(void **state)
{
    (void)state;
    curve c, again;
    trial a = over_ranks(), b = over_ranks();
    b.options.workers = 2;
    b.threads = 2;
    run_noting(&a, &c);
    run_noting(&b, &again);
    assert_memory_equal(&c, &again, sizeof c);
    assert_same_weights(&a, &b);
    end_trial(&a);
    end_trial(&b);
}

/* ---- a fault on one rank -------------------------------------------------------------------------------------------- */

/* A sample of that batch that lies with the rank. */
static int64_t sample_of(int64_t position, int rank) { return (position * n_ranks() + rank) * (GLOBAL / n_ranks()); }

static void compare_skipped(int64_t position, int rank, plant planted, belay_on_fault policy)
{
    static told heard;
    const belay_batch_place places[] = {{0, position}, {1, position}};
    trial without = over_ranks(), bad = over_ranks();
    bool is_transient = planted.when == 1 && policy == BELAY_ON_FAULT_REDO;
    memset(&heard, 0, sizeof heard);
    without.options.skip = places;
    without.options.n_skip = is_transient ? 0 : 2;
    run_trial(&without);
    assert_int_equal(without.code, BELAY_OK);
    planted.sample = sample_of(position, rank);
    bad.samples.plant = planted;
    bad.options.on_fault = policy;
    bad.told = &heard;
    run_trial(&bad);
    assert_int_equal(bad.code, BELAY_OK);
    assert_int_equal(bad.closed, 0);
    assert_same_weights(&bad, &without);
    assert_memory_equal(&bad.result.last_loss, &without.result.last_loss, sizeof(double));
    assert_memory_equal(&bad.result.train_loss, &without.result.train_loss, sizeof(double));
    assert_int_equal(bad.result.n_faults, is_transient ? 1 : 2);
    assert_int_equal(bad.result.n_transient, is_transient);
    assert_int_equal(bad.result.n_skipped, is_transient ? 0 : 2);
    bool is_mine = bad.rank == rank;
    assert_int_equal(heard.n > 0, is_mine);
    end_trial(&without);
    end_trial(&bad);
}

/* First, middle and last of a window, and the only one of its tail. */
static const int64_t positions[] = {3, 4, 5, 6};
enum { N_POSITIONS = (int)(sizeof positions / sizeof positions[0]) };

static void what_one_rank_loses_is_left_out_by_all(void **state)
{
    (void)state;
    for (int p = 0; p < N_POSITIONS; p++)
        for (int rank = 0; rank<n_ranks(); rank += n_ranks()> 2 ? 3 : 1) {
            compare_skipped(positions[p], rank, (plant){.column = 2, .value = VOCABULARY}, BELAY_ON_FAULT_SKIP);
            compare_skipped(positions[p], rank, (plant){.column = -1, .value = CLASSES}, BELAY_ON_FAULT_SKIP);
        }
    compare_skipped(4, n_ranks() - 1, (plant){.refuses = true}, BELAY_ON_FAULT_SKIP);
}

static void what_is_clean_when_it_is_done_again_counts(void **state)
{
    (void)state;
    for (int p = 0; p < N_POSITIONS; p++) {
        compare_skipped(positions[p], n_ranks() - 1, (plant){.column = 2, .value = VOCABULARY, .when = 1},
                        BELAY_ON_FAULT_REDO);
        compare_skipped(positions[p], 0, (plant){.column = 2, .value = -1}, BELAY_ON_FAULT_REDO);
    }
}

/* All batches of a window, each lost by another rank. */
static void a_window_without_a_good_batch_is_discarded_by_all(void **state)
{
    (void)state;
    const belay_batch_place places[] = {{0, 3}, {0, 4}, {0, 5}, {1, 3}, {1, 4}, {1, 5}};
    trial without = over_ranks(), bad = over_ranks();
    without.options.skip = places;
    without.options.n_skip = 6;
    bad.options.skip = places;
    bad.options.n_skip = 5; /* the last is lost */
    bad.samples.plant = (plant){.sample = sample_of(5, n_ranks() - 1), .column = 1, .value = -1};
    const belay_batch_place some[] = {{0, 3}, {0, 4}, {1, 3}, {1, 4}};
    bad.options.skip = some;
    bad.options.n_skip = 4;
    run_trial(&without);
    run_trial(&bad);
    assert_same_weights(&bad, &without);
    assert_int_equal(bad.result.n_steps, without.result.n_steps);
    end_trial(&without);
    end_trial(&bad);
}

/* ---- ends ----------------------------------------------------------------------------------------------------------- */

/* What an observer of a run over ranks saw: weights of all ranks have the same bits. */
static void compare_over_ranks(const trial *t)
{
    belay_context *context = belay_open(&(belay_options){.threads = 1, .no_journal = true});
    belay_group *group = belay_group_open(context, NULL);
    assert_int_equal(belay_group_bind(group, "cpu"), BELAY_OK);
    int64_t n = t->n_weights;
    belay_tensor mine = belay_tensor_from(context, BELAY_F32, belay_shape1(n), t->weights, n * 4);
    belay_tensor all = belay_full(context, BELAY_F32, belay_shape2(n_ranks(), n), 0);
    float *theirs = calloc((size_t)(n_ranks() * n), sizeof *theirs);
    assert_int_equal(belay_group_all_gather(group, mine, all), BELAY_OK);
    assert_int_equal(belay_tensor_read(all, theirs, n_ranks() * n * 4), BELAY_OK);
    for (int q = 0; q < n_ranks(); q++)
        assert_memory_equal(theirs + q * n, t->weights, (size_t)n * 4);
    free(theirs);
    assert_int_equal(belay_close(context), 0);
}

/* ---- an overflow on one rank ---------------------------------------------------------------------------------------- */

static amp_trial amp_over_ranks(bool is_fixed)
{
    amp_trial a = new_amp_trial(BELAY_F16);
    a.trial.is_ranked = true;
    a.trial.options.batch = GLOBAL / n_ranks();
    a.scaler = (belay_grad_scaler_options){.init_scale = 1024, .is_fixed = is_fixed};
    return a;
}

static void overflow(int64_t position, bool is_fixed, const trial *without)
{
    amp_trial a = amp_over_ranks(is_fixed);
    a.bad_epoch = 0;
    a.bad_position = position;
    a.bad_rank = n_ranks() - 1;
    run_amp_trial(&a);
    assert_int_equal(a.trial.code, BELAY_OK);
    assert_int_equal(a.trial.result.n_overflowed, 1);
    assert_int_equal(a.trial.result.n_faults, 0);
    assert_int_equal(a.trial.result.n_steps, without->result.n_steps);
    assert_true(a.scale == (is_fixed ? 1024 : 512));
    compare_over_ranks(&a.trial);
    if (is_fixed)
        assert_same_weights(&a.trial, without);
    end_trial(&a.trial);
}

/* First, middle and last place in a window. */
static void an_overflow_on_one_rank_drops_the_window_of_all(void **state)
{
    (void)state;
    const belay_batch_place places[] = {{0, 3}, {0, 4}, {0, 5}};
    amp_trial without = amp_over_ranks(true);
    without.trial.options.skip = places;
    without.trial.options.n_skip = 3;
    run_amp_trial(&without);
    for (int64_t position = 3; position < 6; position++)
        for (int is_fixed = 0; is_fixed < 2; is_fixed++)
            overflow(position, is_fixed != 0, &without.trial);
    end_trial(&without.trial);
}

static void weights_are_the_same_on_all_ranks(void **state)
{
    (void)state;
    trial t = over_ranks();
    t.samples.plant = (plant){.sample = sample_of(4, 1), .column = 2, .value = VOCABULARY};
    run_trial(&t);
    compare_over_ranks(&t);
    end_trial(&t);
}

static void stop_ends_all_ranks_at_the_same_window(void **state)
{
    (void)state;
    static sig_atomic_t stop;
    curve c;
    trial t = over_ranks();
    stop = 0;
    t.options.stop = &stop;
    t.samples.stop = rank_here() == n_ranks() - 1 ? &stop : NULL; /* one of them is asked */
    t.samples.stop_at = 30 / n_ranks();
    t.options.progress = note;
    t.options.progress_state = &c;
    c.n = 0;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_OK);
    assert_int_equal(t.result.status, 128 + SIGTERM);
    assert_int_equal(t.result.n_steps, 2);
    compare_over_ranks(&t);
    end_trial(&t);
}

/* The rank with the fault ends with its own status, the others name it. */
static void on_fault_stop_ends_all_ranks(void **state)
{
    (void)state;
    static told heard;
    trial t = over_ranks();
    int rank = n_ranks() - 1;
    char expected[1024];
    memset(&heard, 0, sizeof heard);
    t.told = &heard;
    t.options.on_fault = BELAY_ON_FAULT_STOP;
    t.samples.plant = (plant){.sample = sample_of(4, rank), .column = 2, .value = VOCABULARY};
    run_trial(&t);
    assert_int_equal(t.code, t.rank == rank ? BELAY_RUN_STOPPED : BELAY_COMM_PEER);
    assert_int_equal(t.result.status, t.rank == rank ? 3 : 5);
    snprintf(expected, sizeof expected,
             "belay: rank %d gave up: the run stopped at epoch 0, batch 4 (run.stopped) (comm.peer)\n"
             "    called at: train_support.h:%d\n",
             rank, run_trial_line);
    if (t.rank != rank)
        assert_memory_equal(heard.text, expected, strlen(expected));
    if (heard.n != 1 + (t.rank == rank))
        fail_msg("%s", heard.text);
    end_trial(&t);
}

/* The lowest rank with a fault in that pass says so. */
static void too_many_faults_end_all_ranks(void **state)
{
    (void)state;
    static told heard;
    trial t = over_ranks();
    int rank = n_ranks() - 1;
    memset(&heard, 0, sizeof heard);
    t.told = &heard;
    t.options.max_faults = -1;
    t.samples.plant = (plant){.sample = sample_of(4, rank), .column = 2, .value = VOCABULARY};
    run_trial(&t);
    assert_int_equal(t.code, t.rank == rank ? BELAY_RUN_MAX_FAULTS : BELAY_COMM_PEER);
    assert_int_equal(t.result.n_faults, 1);
    assert_int_equal(t.result.n_steps, 1);
    assert_int_equal(heard.n, 1 + (t.rank == rank));
    end_trial(&t);
}

static void ranks_with_other_data_are_named(void **state)
{
    (void)state;
    static told heard;
    trial t = over_ranks();
    char expected[1024];
    memset(&heard, 0, sizeof heard);
    t.told = &heard;
    t.n_samples = rank_here() == 1 ? 71 : 70;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_COMM_MISMATCH);
    snprintf(expected, sizeof expected,
             "belay: rank 1: samples of the data other than of %s (comm.mismatch)\n"
             "    called at: train_support.h:%d\n"
             "    rank 1: 71\n"
             "    %s: 70\n"
             "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank %d\n"
             "    try: Compare the rank named with the others: same program, settings, data and order of calls.\n",
             "ranks 0, 2", run_trial_line, "ranks 0, 2", t.rank);
    assert_words_equal(heard.text, expected);
    end_trial(&t);
}

/* ---- folders -------------------------------------------------------------------------------------------------------- */

/* One that all ranks see. */
static const char *folder(const char *name)
{
    static char path[2][512];
    static int n;
    const char *shared = getenv("BELAY_RANKS");
    assert_non_null(shared);
    n = 1 - n;
    snprintf(path[n], sizeof path[n], "%s/%s", shared, name);
    return path[n];
}

static void compare_files(const char *name)
{
    int64_t n, n_too;
    char *a = read_file_in(folder("undisturbed"), name, &n), *b = read_file_in(folder("disturbed"), name, &n_too);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(n, n_too);
    assert_memory_equal(a, b, (size_t)n);
    free(a);
    free(b);
}

/* Stopped after its second step, by one rank's wish. */
static void run_stopped(trial *t)
{
    static sig_atomic_t stop;
    stop = 0;
    t->options.stop = &stop;
    t->samples.stop = rank_here() == 0 ? &stop : NULL;
    t->samples.stop_at = 6 * (int)t->options.batch;
    run_trial(t);
    assert_int_equal(t->result.status, 128 + SIGTERM);
    assert_int_equal(t->result.n_steps, 2);
    t->options.stop = NULL;
    t->samples.stop = NULL;
    end_trial(t);
}

static void a_run_that_was_stopped_goes_on_to_the_same_bits(void **state)
{
    (void)state;
    trial whole = over_ranks(), part = over_ranks();
    part.samples.plant = whole.samples.plant =
        (plant){.sample = sample_of(1, n_ranks() - 1), .column = 2, .value = VOCABULARY};
    whole.options.out = folder("undisturbed");
    run_trial(&whole);
    part.options.out = folder("disturbed");
    run_stopped(&part);
    part.options.resume = true;
    run_trial(&part);
    assert_int_equal(part.code, BELAY_OK);
    assert_same_weights(&part, &whole);
    assert_int_equal(part.result.n_faults, 2);
    compare_over_ranks(&part); /* all are here: the files are whole */
    compare_files("best.safetensors");
    assert_true(is_there(folder("disturbed"), "faults.jsonl"));
    assert_int_equal(is_there(folder("disturbed"), "faults.rank1.jsonl"), n_ranks() > 1);
    end_trial(&whole);
    end_trial(&part);
}

/* Rank 0 tells in its file what another rank lost. */
static void faults_of_other_ranks_have_a_line(void **state)
{
    (void)state;
    trial t = over_ranks();
    int rank = n_ranks() - 1;
    t.samples.plant = (plant){.sample = sample_of(4, rank), .column = 2, .value = VOCABULARY};
    t.options.epochs = 1;
    t.options.out = folder("told");
    t.options.overwrite = true;
    run_trial(&t);
    compare_over_ranks(&t);
    char *lines = read_file_in(folder("told"), "faults.jsonl", NULL);
    assert_non_null(lines);
    if (n_ranks() > 1) {
        char text[128];
        snprintf(text, sizeof text, "\"what\":\"a micro-batch faulted on rank %d\"", rank);
        assert_non_null(strstr(lines, text));
        assert_non_null(strstr(lines, "\"code\":\"index.range\""));
        assert_non_null(strstr(lines, "\"policy\":\"skipped\""));
    }
    free(lines);
    end_trial(&t);
}

/* One rank, alone, goes on with what several trained, and ends where one would have ended. */
static void one_rank_goes_on_with_what_several_trained(void **state)
{
    (void)state;
    curve alone;
    trial first = over_ranks(), rest = new_trial(), one = new_trial();
    first.options.epochs = 1;
    first.options.out = rest.options.out = folder("handed");
    first.options.overwrite = true;
    run_trial(&first);
    compare_over_ranks(&first);
    if (rank_here() == 0) {
        rest.options.resume = true;
        rest.options.out = folder("handed");
        run_trial(&rest);
        run_noting(&one, &alone);
        assert_int_equal(rest.code, BELAY_OK);
        assert_true(fabs(rest.result.train_loss - one.result.train_loss) <= 1e-5 + 1e-4 * one.result.train_loss);
        assert_true(fabs(rest.result.last_loss - one.result.last_loss) <= 1e-5 + 1e-4 * one.result.last_loss);
        end_trial(&rest);
        end_trial(&one);
    }
    compare_over_ranks(&first);
    end_trial(&first);
}

/* A rank is killed in the third window.  The lowest of the others saves, and what it saves is what an undisturbed run had
 * there, byte for byte. */
static void die(int victim)
{
    static told heard;
    trial stopped = over_ranks(), t = over_ranks();
    stopped.options.out = folder("undisturbed");
    run_stopped(&stopped);
    memset(&heard, 0, sizeof heard);
    t.told = &heard;
    t.timeout = 2;
    t.options.out = folder("disturbed");
    t.samples.end_at = rank_here() == victim ? 7 * (int)t.options.batch + 1 : 0;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_COMM_DEADLINE);
    assert_int_equal(t.result.status, 5);
    assert_int_equal(t.closed, 5);
    assert_int_equal(t.result.n_steps, 2);
    assert_int_equal(heard.n, 1);
    if (rank_here() == (victim == 0))
        compare_files("last.safetensors");
    end_trial(&t);
}

static void the_lowest_survivor_saves_what_rank_0_had_not(void **state)
{
    (void)state;
    die(0);
}

static void rank_0_saves_when_another_dies(void **state)
{
    (void)state;
    die(n_ranks() - 1);
}

static void end_here(void *state, const belay_progress *progress)
{
    (void)state;
    if (progress->kind == BELAY_PROGRESS_SAVED && progress->epoch == 2 && rank_here() == 0)
        raise(SIGKILL);
}

/* The last epoch's checkpoint is there, its best is not: another rank makes both. */
static void a_survivor_ends_the_run_that_rank_0_could_not(void **state)
{
    (void)state;
    trial whole = over_ranks(), t = over_ranks();
    whole.options.out = folder("undisturbed");
    run_trial(&whole);
    t.timeout = 2;
    t.options.out = folder("disturbed");
    t.options.progress = end_here;
    run_trial(&t);
    assert_int_equal(t.code, BELAY_COMM_DEADLINE);
    assert_int_equal(t.result.n_epochs, 2);
    assert_same_weights(&t, &whole);
    if (rank_here() == 1) {
        compare_files("best.safetensors");
        assert_true(
            is_there(folder("disturbed"), "last.safetensors")); /* knows the size of metrics.csv, with its times */
    }
    end_trial(&whole);
    end_trial(&t);
}

/* A group that is broken is the process's last: such a test has a process of its own. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_one_rank_with_the_same_global_batch),
        cmocka_unit_test(the_same_ranks_twice_give_the_same_bits),
        cmocka_unit_test(what_one_rank_loses_is_left_out_by_all),
        cmocka_unit_test(what_is_clean_when_it_is_done_again_counts),
        cmocka_unit_test(a_window_without_a_good_batch_is_discarded_by_all),
        cmocka_unit_test(an_overflow_on_one_rank_drops_the_window_of_all),
        cmocka_unit_test(weights_are_the_same_on_all_ranks),
        cmocka_unit_test(stop_ends_all_ranks_at_the_same_window),
        cmocka_unit_test(a_run_that_was_stopped_goes_on_to_the_same_bits),
        cmocka_unit_test(faults_of_other_ranks_have_a_line),
        cmocka_unit_test(one_rank_goes_on_with_what_several_trained),
    };
    const struct CMUnitTest policy[] = {cmocka_unit_test(on_fault_stop_ends_all_ranks)};
    const struct CMUnitTest many[] = {cmocka_unit_test(too_many_faults_end_all_ranks)};
    const struct CMUnitTest data[] = {cmocka_unit_test(ranks_with_other_data_are_named)};
    const struct CMUnitTest first[] = {cmocka_unit_test(the_lowest_survivor_saves_what_rank_0_had_not)};
    const struct CMUnitTest last[] = {cmocka_unit_test(rank_0_saves_when_another_dies)};
    const struct CMUnitTest end[] = {cmocka_unit_test(a_survivor_ends_the_run_that_rank_0_could_not)};
    const struct CMUnitTest sim[] = {cmocka_unit_test(losses_are_those_of_one_rank_with_the_same_global_batch),
                                     cmocka_unit_test(what_one_rank_loses_is_left_out_by_all),
                                     cmocka_unit_test(what_is_clean_when_it_is_done_again_counts),
                                     cmocka_unit_test(a_run_that_was_stopped_goes_on_to_the_same_bits)};
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "sim") == 0) {
        device = "sim";
        return cmocka_run_group_tests(sim, NULL, NULL);
    }
    if (strcmp(word, "policy") == 0)
        return cmocka_run_group_tests(policy, NULL, NULL);
    if (strcmp(word, "many") == 0)
        return cmocka_run_group_tests(many, NULL, NULL);
    if (strcmp(word, "data") == 0)
        return cmocka_run_group_tests(data, NULL, NULL);
    if (strcmp(word, "first") == 0)
        return cmocka_run_group_tests(first, NULL, NULL);
    if (strcmp(word, "last") == 0)
        return cmocka_run_group_tests(last, NULL, NULL);
    if (strcmp(word, "end") == 0)
        return cmocka_run_group_tests(end, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
