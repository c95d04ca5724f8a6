/* SPDX-License-Identifier: Apache-2.0 */
/* A window's end for which the device waits: rank 0 of two, over a transport whose operations end when the test says so.
 * The peer is rank 0's double: its words and gradients are the same, but for what the test has it say. */
#include "support/seeds.h"
#include "support/told.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <belay/belay.h>
#include <belay/devices.h>

#include "base/memory.h"
#include "dist/parts.h"
#include "dist/worker.h"
#include "tensor/window.h"

enum { SEEDS = 10, SIZE = 2, MOST = 1024, ROWS = 4, SEQ = 3, TOKENS = 9, EMBED = 4, OUT = 3 };
enum { WEIGHTS = TOKENS * EMBED + EMBED * OUT + OUT, ALL = 1 << 30 };

#ifdef BELAY_SMALL /* whose ring of windows is full at once: each step waits for its own */
enum { RUNS_AHEAD = false };
#else
enum { RUNS_AHEAD = true };
#endif

/* ---- the transport --------------------------------------------------------------------------------------------------- */

typedef struct operation {
    bl_plane plane;
    int number; /* of its plane */
    bool is_sum;
    void *data;
    const void *mine;
    int64_t n;
    belay_dtype dtype;
} operation;

struct bl_transport {
    int n_operations;
    operation operation[MOST];
    int n_started[BL_N_PLANES];
    atomic_int n_let[BL_N_PLANES]; /* those with a number below it may end */
    atomic_bool blocks;            /* no call returns that asks whether words are over */
    atomic_int fails_at;           /* number of an operation of data; -1: none */
    atomic_uint peer_flags;        /* what the peer says more at a window's end */
    atomic_llong peer_code;        /* of its fault */
    atomic_int peer_steps;         /* how many it is further */
    bl_word said;                  /* by this rank, at a window's end; read when the worker has nothing to do */
};

static bl_transport fake;

static belay_code open_fake(bl_transport **out, bl_transport_place *place, bl_error *error)
{
    (void)error;
    *out = &fake;
    *place = (bl_transport_place){.size = SIZE, .local_size = SIZE, .host = "node0"};
    return BELAY_OK;
}

static void close_fake(bl_transport *t, bool whole) { (void)t, (void)whole; }

static belay_code start(bl_transport *t, const operation *o, int *request)
{
    assert_true(t->n_operations < MOST);
    *request = t->n_operations++;
    t->operation[*request] = *o;
    t->operation[*request].number = t->n_started[o->plane]++;
    return BELAY_OK;
}

static belay_code all_reduce(bl_transport *t, bl_plane plane, void *data, int64_t n, belay_dtype dtype,
                             belay_group_op op, int *request, bl_error *error)
{
    (void)error;
    return start(t, &(operation){plane, 0, op == BELAY_GROUP_SUM, data, NULL, n, dtype}, request);
}

static belay_code broadcast(bl_transport *t, bl_plane plane, void *data, int64_t n, int root, int *request,
                            bl_error *error)
{
    (void)root, (void)error;
    return start(t, &(operation){plane, 0, false, data, NULL, n, BELAY_U8}, request);
}

static belay_code all_gather(bl_transport *t, bl_plane plane, const void *mine, void *all, int64_t n, int *request,
                             bl_error *error)
{
    (void)error;
    return start(t, &(operation){plane, 0, false, all, mine, n, BELAY_U8}, request);
}

/* To peers all goes off, from them nothing comes: this rank hears of the other by words alone. */
enum { SENT = MOST, AWAITED };
static belay_code send(bl_transport *t, int peer, const void *data, int64_t n, int *request, bl_error *error)
{
    (void)t, (void)peer, (void)data, (void)n, (void)error;
    *request = SENT;
    return BELAY_OK;
}

static belay_code receive(bl_transport *t, int peer, void *data, int64_t n, int *request, bl_error *error)
{
    (void)t, (void)peer, (void)data, (void)n, (void)error;
    *request = AWAITED;
    return BELAY_OK;
}

static void let_peer_speak(bl_transport *t, bl_word *word)
{
    if (word->kind != BL_CALL_STEP)
        return;
    t->said = word[-1];
    word->flags |= t->peer_flags;
    word->step += (uint64_t)t->peer_steps;
    word->value = t->peer_code != 0 ? t->peer_code : word->value;
}

static void run(bl_transport *t, const operation *o)
{
    for (int64_t i = 0; i < o->n && o->is_sum; i++) {
        assert_int_equal(o->dtype, BELAY_F32);
        ((float *)o->data)[i] *= SIZE;
    }
    for (int r = 0; r < SIZE && o->mine != NULL; r++)
        memcpy((char *)o->data + r * o->n, o->mine, (size_t)o->n);
    if (o->mine != NULL && o->n == BL_WORD_BYTES)
        let_peer_speak(t, (bl_word *)o->data + 1);
}

static belay_code test(bl_transport *t, int request, bool *is_done, bl_error *error)
{
    *is_done = request == SENT;
    if (request >= MOST)
        return BELAY_OK;
    const operation *o = &t->operation[request];
    while (t->blocks && o->plane == BL_PLANE_WORDS)
        usleep(1000);
    if (o->plane == BL_PLANE_DATA && o->number == t->fails_at)
        return bl_error_set(error, BELAY_COMM_FAILED, "the cable was cut");
    *is_done = o->number < t->n_let[o->plane];
    if (*is_done)
        run(t, o);
    return BELAY_OK;
}

static const bl_transport_api api = {.version = BL_TRANSPORT_VERSION,
                                     .name = "fake",
                                     .open = open_fake,
                                     .close = close_fake,
                                     .all_reduce = all_reduce,
                                     .broadcast = broadcast,
                                     .all_gather = all_gather,
                                     .send = send,
                                     .receive = receive,
                                     .test = test};

static void let_all(void) { fake.n_let[BL_PLANE_WORDS] = fake.n_let[BL_PLANE_DATA] = ALL; }

/* ---- a rank ---------------------------------------------------------------------------------------------------------- */

typedef struct rank {
    belay_context *context;
    belay_group *group;
    belay_module *model, *table, *fc;
    belay_reducer *reducer;
    belay_optimizer *sgd;
    int n; /* windows begun */
} rank;

static belay_tensor unused(belay_module *module, belay_tensor x)
{
    (void)module;
    return x;
}

static void open_model(rank *r, int64_t seed, const char *device)
{
    static const belay_module_kind kind = {.name = "words", .forward = unused};
    r->context = seeds_open(seed, &(belay_options){.device = device, .seed = 3});
    r->model = belay_module_new(r->context, &kind);
    r->table = belay_embedding_module(r->context, &(belay_embedding_module_options){.rows = TOKENS, .width = EMBED});
    r->fc = belay_linear_module(r->context, &(belay_linear_module_options){.in = EMBED, .out = OUT});
    (void)belay_module_add_child(r->model, "table", r->table);
    (void)belay_module_add_child(r->model, "fc", r->fc);
}

/* A group of two in place of the one that a process alone has. */
static belay_group *open_group(belay_context *context, const char *device)
{
    bl_error error;
    memset(&fake, 0, sizeof fake);
    fake.fails_at = -1;
    let_all();
    belay_group *group = belay_group_open(context, &(belay_group_options){.maker = "self"});
    assert_int_equal(belay_group_bind(group, device), BELAY_OK);
    assert_true(bl_worker_close(group->worker, true));
    group->worker = bl_worker_open(&api, INT64_C(20000000000), NULL, NULL, &error);
    assert_non_null(group->worker);
    group->place = group->worker->place;
    group->n_calls = 0;
    bl_free(group->all);
    group->all = bl_alloc(SIZE, sizeof *group->all);
    return group;
}

/* Lets all end that was posted, and the next word, which is that of a round. */
static void hold(const rank *r)
{
    fake.n_let[BL_PLANE_WORDS] = (int)r->group->worker->n_posted[BL_PLANE_WORDS] + 1;
    fake.n_let[BL_PLANE_DATA] = (int)r->group->worker->n_posted[BL_PLANE_DATA];
}

static void back(rank *r, int64_t bad_id)
{
    int64_t ids[ROWS * SEQ], labels[ROWS];
    for (int i = 0; i < ROWS * SEQ; i++)
        ids[i] = (i * 7 + r->n * 3) % TOKENS;
    for (int i = 0; i < ROWS; i++)
        labels[i] = (i + r->n) % OUT;
    ids[5] = bad_id > 0 ? bad_id : ids[5];
    r->n++;
    belay_scope scope = belay_scope_open(r->context);
    belay_tensor tokens = belay_tensor_from(r->context, BELAY_I64, belay_shape2(ROWS, SEQ), ids, sizeof ids);
    belay_tensor want = belay_tensor_from(r->context, BELAY_I64, belay_shape1(ROWS), labels, sizeof labels);
    belay_tensor mean = belay_mean(belay_forward(r->table, tokens), &(belay_axes){.n = 1, .axis = {1}});
    belay_backward(belay_cross_entropy(belay_forward(r->fc, mean), want, NULL));
    belay_scope_close(scope);
}

static void step(rank *r)
{
    back(r, 0);
    belay_optimizer_step(r->sgd);
}

/* In its steady state: the order of gradients has been learned. */
static void open_rank(rank *r, int64_t seed)
{
    *r = (rank){.n = 0};
    open_model(r, seed, "sim:0");
    r->group = open_group(r->context, "sim:0");
    r->reducer = belay_ddp(r->model, r->group,
                           &(belay_ddp_options){.first_bucket_bytes = 16, .bucket_bytes = 16, .digest_every = -1});
    r->sgd = belay_sgd(r->model, &(belay_sgd_options){.lr = 0.1, .momentum = 0.9});
    told_expect("%s", "");
    step(r);
    assert_false(r->reducer->later.is_on);
    assert_true(r->reducer->has_learned);
}

static void read_weights(const rank *r, float out[WEIGHTS])
{
    for (int64_t i = 0; i < belay_module_n_parameters(r->model); i++) {
        belay_tensor p = belay_module_parameter(r->model, i);
        int64_t n = belay_tensor_n_elements(p);
        assert_int_equal(belay_tensor_read(p, out, n * 4), BELAY_OK);
        out += n;
    }
}

/* What so many windows make of the weights, of which `left_out` is not applied. */
static void expect_weights(const rank *r, int left_out)
{
    float got[WEIGHTS], wanted[WEIGHTS];
    rank alone = {.n = 0};
    read_weights(r, got);
    open_model(&alone, SEEDS_THREADS, "cpu");
    alone.sgd = belay_sgd(alone.model, &(belay_sgd_options){.lr = 0.1, .momentum = 0.9});
    for (int i = 0; i < r->n; i++) {
        if (i != left_out)
            step(&alone);
        else
            alone.n++;
    }
    read_weights(&alone, wanted);
    assert_memory_equal(got, wanted, sizeof got);
    told_close(alone.context);
}

/* The step has returned, the ranks have not agreed, and the device has decided nothing. */
static void expect_ahead(const rank *r, uint64_t window)
{
    assert_true(r->reducer->later.is_on);
    assert_false(bl_work_is_over(&r->reducer->later.work));
    assert_int_equal(r->context->window, window + 1);
    assert_int_equal(r->context->ring->window[bl_window_place(window)].outcome, BL_WINDOW_OPEN);
}

/* ---- tests ----------------------------------------------------------------------------------------------------------- */

static void the_host_goes_past_a_step_that_the_ranks_have_not_agreed_on(void **state)
{
    (void)state;
    if (!RUNS_AHEAD)
        skip();
    for (int64_t seed = -1; seed < seeds_n(SEEDS); seed++) {
        rank r;
        open_rank(&r, seed);
        (void)belay_sync_debug_set(r.context, BELAY_SYNC_DEBUG_ERROR);
        for (int i = 0; i < 3; i++) {
            uint64_t window = r.context->window;
            hold(&r);
            back(&r, 0); /* waits for the window before */
            belay_optimizer_step(r.sgd);
            expect_ahead(&r, window);
            let_all();
        }
        (void)belay_sync_debug_set(r.context, BELAY_SYNC_DEBUG_OFF);
        told_expect("%s", "");
        expect_weights(&r, -1);
        told_close(r.context);
    }
}

static void words_go_before_buckets_and_buckets_before_words(void **state)
{
    (void)state;
    if (!RUNS_AHEAD)
        skip();
    for (int64_t seed = -1; seed < seeds_n(SEEDS); seed++) {
        rank r;
        open_rank(&r, seed);
        uint64_t window = r.context->window;
        hold(&r);
        back(&r, 0);
        fake.n_let[seed % 2 == 0 ? BL_PLANE_DATA : BL_PLANE_WORDS] = ALL;
        belay_optimizer_step(r.sgd);
        assert_int_equal(r.context->ring->window[bl_window_place(window)].outcome, BL_WINDOW_OPEN);
        let_all();
        told_expect("%s", "");
        expect_weights(&r, -1);
        told_close(r.context);
    }
}

static void a_fault_of_the_peer_is_heard_by_the_device_first(void **state)
{
    (void)state;
    if (!RUNS_AHEAD)
        skip();
    for (int64_t seed = -1; seed < seeds_n(SEEDS); seed++) {
        rank r;
        open_rank(&r, seed);
        fake.peer_flags = BL_FLAG_FAULT;
        fake.peer_code = BELAY_INDEX_RANGE;
        uint64_t window = r.context->window;
        hold(&r);
        back(&r, 0);
        seeds_here(r.context, "the step");
        belay_optimizer_step(r.sgd);
        expect_ahead(&r, window);
        let_all();
        assert_int_equal(belay_synchronise(r.context), BELAY_OK);
        told_expect("belay: step 1 was not applied: index.range in its window (run.window_lost)\n"
                    "    called at: the step\n"
                    "    when: epoch 0, batch 2 (micro-batch 1 of its window), step 1, rank 0\n%s",
                    told_try(BELAY_RUN_WINDOW_LOST));
        fake.peer_flags = 0;
        fake.peer_code = 0;
        step(&r);
        step(&r);
        told_expect("%s", "");
        assert_int_equal(belay_optimizer_n_applied(r.sgd), 3);
        expect_weights(&r, 1);
        told_close(r.context);
    }
}

/* Whatever there is no memory for: where the device cannot be told to wait, the host does, for work that was posted.  When
 * it is the update that has none, the peer applies the window and this rank does not: it gives up. */
static void a_window_without_memory_ends(void **state)
{
    (void)state;
    int n_gave_up = 0;
    for (int64_t n = 0; n < 24; n++) {
        rank r;
        open_rank(&r, -1);
        back(&r, 0);
        bl_memory_fail_at(n);
        belay_optimizer_step(r.sgd);
        bl_memory_fail_at(-1);
        assert_int_equal(belay_synchronise(r.context), BELAY_OK);
        bool gave_up = r.group->broken != BELAY_OK;
        assert_true(!gave_up || strstr(told(), "(mem.exhausted)\n") != NULL);
        n_gave_up += gave_up;
        told_clear();
        step(&r);
        assert_int_equal(belay_optimizer_is_applied(r.sgd), !gave_up);
        if (!gave_up)
            told_expect("%s", "");
        told_clear();
        assert_int_equal(belay_close(r.context) != 0, gave_up);
    }
    assert_true(n_gave_up > 0);
}

/* Its code is of another build, and 0 in the lower half. */
static void a_fault_of_the_peer_that_has_no_name_here_is_one(void **state)
{
    (void)state;
    if (!RUNS_AHEAD)
        skip();
    rank r;
    open_rank(&r, -1);
    fake.peer_flags = BL_FLAG_FAULT;
    fake.peer_code = INT64_C(1) << 32;
    back(&r, 0);
    belay_optimizer_step(r.sgd);
    let_all();
    assert_int_equal(belay_synchronise(r.context), BELAY_OK);
    assert_non_null(strstr(told(), "belay: step 1 was not applied: comm.peer in its window (run.window_lost)\n"));
    told_clear();
    fake.peer_flags = 0;
    fake.peer_code = 0;
    step(&r);
    assert_int_equal(belay_optimizer_n_applied(r.sgd), 2);
    expect_weights(&r, 1);
    told_close(r.context);
}

static void a_fault_that_only_the_device_knows_is_told_to_the_peer(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < seeds_n(SEEDS); seed++) {
        rank r;
        open_rank(&r, seed);
        back(&r, TOKENS);
        belay_optimizer_step(r.sgd);
        step(&r);
        assert_int_equal(belay_optimizer_n_applied(r.sgd), 2);
        assert_int_equal(belay_optimizer_n_faulted(r.sgd), 1);
        assert_non_null(strstr(told(), "(index.range)"));
        assert_non_null(strstr(told(), "belay: step 1 was not applied: index.range in its window (run.window_lost)\n"));
        told_clear();
        expect_weights(&r, 1);
        told_close(r.context);
    }
}

static void what_the_device_knows_is_in_the_word(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < seeds_n(SEEDS); seed++) {
        rank r;
        open_rank(&r, seed);
        back(&r, TOKENS);
        belay_optimizer_step(r.sgd);
        (void)bl_later_settle(r.reducer);
        assert_int_equal(fake.said.flags & BL_FLAG_FAULT, BL_FLAG_FAULT);
        assert_int_equal(fake.said.value, BELAY_INDEX_RANGE);
        assert_int_equal(r.reducer->verdict.n_faulted, SIZE);
        assert_int_equal(belay_close(r.context), 3);
        told_clear();
    }
}

static void a_reduction_that_fails_in_flight_is_not_applied(void **state)
{
    (void)state;
    if (!RUNS_AHEAD)
        skip();
    float before[WEIGHTS], after[WEIGHTS];
    for (int64_t seed = -1; seed < SEEDS; seed++) {
        rank r;
        open_rank(&r, seed);
        read_weights(&r, before);
        uint64_t window = r.context->window;
        hold(&r);
        back(&r, 0);
        int first = fake.n_let[BL_PLANE_DATA], last = (int)r.group->worker->n_posted[BL_PLANE_DATA] - 1;
        assert_true(last > first);
        belay_optimizer_step(r.sgd);
        expect_ahead(&r, window);
        fake.fails_at = seed % 2 == 0 ? first : last;
        let_all();
        assert_int_equal(belay_synchronise(r.context), BELAY_OK);
        read_weights(&r, after);
        assert_memory_equal(after, before, sizeof after);
        assert_int_equal(belay_optimizer_n_applied(r.sgd), 1);
        assert_non_null(strstr(told(), "belay: step 1 was not applied: comm.failed in its window (run.window_lost)\n"));
        back(&r, 0);
        assert_non_null(strstr(told(), "belay: the cable was cut (comm.failed)\n"));
        assert_int_equal(belay_close(r.context), 4);
        told_clear();
    }
}

/* The device holds for the worker, which never comes back: the group's deadline holds for who waits for the device. */
static void a_wait_for_the_device_ends_though_the_transport_does_not(void **state)
{
    (void)state;
    if (!RUNS_AHEAD)
        skip();
    float before[WEIGHTS], after[WEIGHTS];
    rank r;
    open_rank(&r, -1);
    read_weights(&r, before);
    r.group->worker->timeout = 100000000;
    back(&r, 0);
    fake.blocks = true;
    belay_optimizer_step(r.sgd);
    assert_int_equal(belay_synchronise(r.context), BELAY_OK);
    assert_non_null(strstr(told(), "belay: step 1 was not applied: comm.deadline in its window (run.window_lost)\n"));
    told_clear();
    read_weights(&r, after);
    assert_memory_equal(after, before, sizeof after);
    assert_int_equal(belay_group_barrier(r.group), BELAY_COMM_DEADLINE);
    assert_non_null(strstr(told(), "(comm.deadline)\n"));
    told_clear();
    fake.blocks = false;
    assert_int_equal(belay_close(r.context), 5);
}

static void words_that_do_not_fit_end_it_all(void **state)
{
    (void)state;
    float before[WEIGHTS], after[WEIGHTS];
    for (int64_t seed = -1; seed < SEEDS; seed++) {
        rank r;
        open_rank(&r, seed);
        read_weights(&r, before);
        if (seed % 2 == 0)
            fake.peer_flags = BL_FLAG_REFUSED; /* which makes it another call */
        else
            fake.peer_steps = 1;
        step(&r);
        read_weights(&r, after);
        assert_memory_equal(after, before, sizeof after);
        assert_non_null(
            strstr(told(), "belay: step 1 was not applied: comm.mismatch in its window (run.window_lost)\n"));
        step(&r);
        const char *why = seed % 2 == 0 ? ": a tie (comm.mismatch)\n"
                                        : "belay: rank 1 is at another step than rank 0; as many say one as the other "
                                          "(comm.mismatch)\n";
        assert_non_null(strstr(told(), why));
        read_weights(&r, after);
        assert_memory_equal(after, before, sizeof after);
        assert_int_equal(belay_close(r.context), 3);
        told_clear();
    }
}

static void a_rank_closes_ahead_of_the_others(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < seeds_n(SEEDS); seed++) {
        rank r;
        open_rank(&r, seed);
        step(&r);
        if (seed % 2 == 0)
            belay_reducer_free(r.reducer);
        told_close(r.context);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_goes_past_a_step_that_the_ranks_have_not_agreed_on),
        cmocka_unit_test(words_go_before_buckets_and_buckets_before_words),
        cmocka_unit_test(a_fault_of_the_peer_is_heard_by_the_device_first),
        cmocka_unit_test(a_window_without_memory_ends),
        cmocka_unit_test(a_fault_of_the_peer_that_has_no_name_here_is_one),
        cmocka_unit_test(a_fault_that_only_the_device_knows_is_told_to_the_peer),
        cmocka_unit_test(what_the_device_knows_is_in_the_word),
        cmocka_unit_test(a_reduction_that_fails_in_flight_is_not_applied),
        cmocka_unit_test(a_wait_for_the_device_ends_though_the_transport_does_not),
        cmocka_unit_test(words_that_do_not_fit_end_it_all),
        cmocka_unit_test(a_rank_closes_ahead_of_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
