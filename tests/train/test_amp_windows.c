/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision over the nets that differ in what a lost window could leave behind: classifiers, a GPT, a net whose
 * batch norm keeps running statistics; in bf16 and f16, on cpu and on sim:1 while sim:0 is the current device.  An inf in
 * any micro-batch, on the way forward or back, costs its window and nothing else; and each net ends where f32 ends. */
#include "train/train_support.h"

#include <belay/devices.h>

#include "tensor/context.h"

typedef enum net_kind { MEAN, LSTM, GPT, NORM, N_NETS } net_kind;

static const char *const net_name[N_NETS] = {"mean", "lstm", "gpt", "batch norm"};

typedef enum way { NOWHERE, FORWARD, BACK, STATISTICS, N_WAYS } way; /* the last: in what batch norm's are of */

static way last_way(net_kind kind) { return kind == NORM ? STATISTICS : BACK; }

/* ---- the nets, [batch, SEQ] -> [batch, CLASSES] ---- */

typedef struct net {
    net_kind kind;
    way inf;                 /* on which way it comes */
    int64_t epoch, position; /* and in which micro-batch */
    belay_module *body, *norm, *head;
} net;

static void pass_on(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                    int n_out)
{
    (void)call, (void)state, (void)n_in, (void)n_out;
    out[0] = in[0];
}

static void make_inf(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                     belay_tensor *grad_in, int n_in)
{
    (void)call, (void)state, (void)n_out, (void)n_in;
    grad_in[0] = belay_affine(grad_out[0], INFINITY, 0);
}

static const belay_function poison = {.name = "poison", .forward = pass_on, .backward = make_inf};

static bool is_now(const belay_context *context, const net *self, way inf)
{
    return self->inf == inf && belay_recording_get(context) && context->epoch == self->epoch &&
           context->position == self->position;
}

static belay_tensor net_forward(belay_module *module, belay_tensor ids)
{
    const net *self = belay_module_self(module);
    belay_context *context = belay_module_context(module);
    belay_tensor x = belay_forward(self->body, ids);
    if (self->kind == GPT)
        x = belay_slice(belay_mean(x, &(belay_axes){.n = 1, .axis = {1}}), 1, 0, CLASSES, 1);
    if (self->kind == NORM)
        x = belay_view(x, belay_shape2(belay_tensor_shape(ids).size[0], -1));
    if (is_now(context, self, STATISTICS))
        x = belay_affine(x, INFINITY, 0);
    if (is_now(context, self, BACK))
        belay_function_apply(context, &poison, NULL, &x, 1, 0, &x, 1);
    if (self->kind == NORM)
        x = belay_forward(self->head, belay_relu(belay_forward(self->norm, x)));
    return is_now(context, self, FORWARD) ? belay_affine(x, INFINITY, 0) : x;
}

static const belay_module_kind net_module = {"net", sizeof(net), net_forward, NULL};

static belay_module *body_of(belay_context *context, net_kind kind)
{
    if (kind == GPT)
        return belay_gpt2(
            context,
            &(belay_gpt2_options){
                .vocabulary = VOCABULARY, .context = SEQ, .layers = 2, .heads = 2, .width = 8, .dropout = 0.1});
    if (kind == NORM)
        return belay_embedding_module(context, &(belay_embedding_module_options){.rows = VOCABULARY, .width = 4});
    return small_model(context, kind == MEAN);
}

static belay_module *new_net(belay_context *context, net_kind kind)
{
    belay_module *module = belay_module_new(context, &net_module);
    net *self = belay_module_self(module);
    *self = (net){.kind = kind, .body = belay_module_add_child(module, "body", body_of(context, kind))};
    if (kind != NORM)
        return module;
    self->norm = belay_module_add_child(
        module, "norm",
        belay_batch_norm_module(context, &(belay_batch_norm_module_options){.channels = SEQ * 4, .momentum = 0.25}));
    self->head = belay_module_add_child(
        module, "head", belay_linear_module(context, &(belay_linear_module_options){.in = SEQ * 4, .out = CLASSES}));
    return module;
}

/* ---- everything that a window may change ---- */

enum { MOST_BYTES = 1 << 16, MOST_PARTS = 128 };

typedef struct bits {
    unsigned char bytes[MOST_BYTES];
    char name[MOST_PARTS][64];
    int64_t end[MOST_PARTS];
    int n;
} bits;

static void add_bits(bits *b, const char *name, belay_tensor tensor)
{
    int64_t from = b->n > 0 ? b->end[b->n - 1] : 0;
    int64_t n_bytes = belay_tensor_n_elements(tensor) * belay_dtype_size(belay_tensor_dtype(tensor));
    assert_true(b->n < MOST_PARTS && from + n_bytes <= MOST_BYTES);
    assert_int_equal(belay_tensor_read(tensor, b->bytes + from, n_bytes), BELAY_OK);
    snprintf(b->name[b->n], sizeof b->name[0], "%s", name);
    b->end[b->n++] = from + n_bytes;
}

/* The decision, the clipping factor, the norm and the counts of refusals are of the last window, not of the run. */
static void forget_the_window(bits *b)
{
    double state[8];
    unsigned char *at = b->bytes + b->end[b->n - 1] - sizeof state;
    memcpy(state, at, sizeof state);
    state[0] = state[2] = state[4] = state[6] = state[7] = 0;
    memcpy(at, state, sizeof state);
}

static void bits_of(const belay_module *model, const belay_optimizer *optimizer, bits *b)
{
    const char *name;
    belay_tensor tensor;
    b->n = 0;
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++)
        add_bits(b, belay_module_parameter_name(model, i), belay_module_parameter(model, i));
    for (int64_t i = 0; i < belay_module_n_buffers(model); i++)
        add_bits(b, belay_module_buffer_name(model, i), belay_module_buffer(model, i));
    for (int64_t i = 0; belay_optimizer_state_get(optimizer, i, &name, &tensor); i++) {
        add_bits(b, name, tensor);
        if (strcmp(name, "state") == 0)
            forget_the_window(b);
    }
}

static void assert_same_bits(const bits *a, const bits *b, const char *what)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        int64_t from = i > 0 ? a->end[i - 1] : 0;
        assert_int_equal(a->end[i], b->end[i]);
        if (memcmp(a->bytes + from, b->bytes + from, (size_t)(a->end[i] - from)) != 0)
            fail_msg("%s: %s has other bits", what, a->name[i]);
    }
}

static bool are_same_bits(const bits *a, const bits *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, (size_t)a->end[a->n - 1]) == 0;
}

/* ---- where and in what ---- */

typedef struct setup {
    net_kind kind;
    belay_dtype dtype;
    const char *device; /* NULL: cpu */
    way inf;
    int64_t position; /* of the inf, in epoch 0 */
    uint64_t seed;
} setup;

static const char *words_of(const setup *s)
{
    static const char *const ways[N_WAYS] = {"nowhere", "forward", "back", "in what is normed"};
    static char words[128];
    snprintf(words, sizeof words, "%s in %s on %s, inf %s in micro-batch %lld, seed %d", net_name[s->kind],
             belay_dtype_name(s->dtype), s->device != NULL ? s->device : "cpu", ways[s->inf], (long long)s->position,
             (int)s->seed);
    return words;
}

typedef struct job {
    belay_context *context;
    belay_module *model;
    belay_optimizer *adam;
    belay_grad_scaler *scaler;
} job;

static job open_job(const setup *s, const belay_grad_scaler_options *scale)
{
    job j = {.context = belay_open(&(belay_options){
                 .device = s->device != NULL ? "sim:0" : "cpu", .seed = s->seed, .threads = 1, .no_journal = true})};
    assert_true(belay_is_open(j.context));
    belay_device_guard guard = belay_device_guard_open(j.context, s->device != NULL ? s->device : "cpu");
    j.model = new_net(j.context, s->kind);
    net *self = belay_module_self(j.model);
    self->inf = s->inf;
    self->position = s->position;
    j.adam = belay_adam(j.model, &(belay_adam_options){.lr = 0.02, .weight_decay = 1e-5, .clip = 1});
    j.scaler = scale != NULL ? belay_grad_scaler_new(j.context, scale) : NULL;
    belay_device_guard_close(guard);
    assert_int_equal(belay_n_faults(j.context), 0);
    return j;
}

/* ---- a loop by hand: a good window, one with an inf, a good one ---- */

enum { WINDOW = 3 };

static void micro_batch(const job *j, const setup *s, uint32_t position)
{
    samples data = {.seed = 11, .plant = {.sample = -1}};
    int64_t ids[BATCH * SEQ], labels[BATCH];
    for (int64_t i = 0; i < BATCH; i++) {
        belay_sample sample = {.room = &ids[i * SEQ]};
        assert_int_equal(get_sample(&data, position * BATCH + i, &sample), BELAY_OK);
        labels[i] = sample.label;
    }
    belay_scope scope = belay_scope_open(j->context);
    belay_device_guard guard = belay_device_guard_open(j->context, s->device != NULL ? s->device : "cpu");
    belay_position_set(j->context, 0, position);
    belay_tensor x = belay_tensor_from(j->context, BELAY_I64, belay_shape2(BATCH, SEQ), ids, sizeof ids);
    belay_tensor y = belay_tensor_from(j->context, BELAY_I64, belay_shape1(BATCH), labels, sizeof labels);
    belay_device_guard_close(guard);
    belay_autocast cast = belay_autocast_open(j->context, s->dtype);
    belay_tensor loss = belay_cross_entropy(belay_forward(j->model, x), y, NULL);
    belay_autocast_close(cast);
    belay_backward(belay_grad_scaler_scale(j->scaler, loss));
    belay_scope_close(scope);
}

static void window(const job *j, const setup *s, uint32_t number)
{
    belay_optimizer_divisor_set(j->adam, WINDOW);
    for (uint32_t i = 0; i < WINDOW; i++)
        micro_batch(j, s, number * WINDOW + i);
    belay_grad_scaler_step(j->scaler, j->adam);
    belay_grad_scaler_update(j->scaler);
}

static void lose_a_window(const setup *s)
{
    static bits before, after, end;
    job j = open_job(s, &(belay_grad_scaler_options){.init_scale = 256, .growth_interval = 100});
    window(&j, s, 0);
    assert_int_equal(belay_optimizer_n_applied(j.adam), 1);
    assert_int_equal(belay_grad_scaler_growth_get(j.scaler), 1);
    bits_of(j.model, j.adam, &before);
    window(&j, s, 1);
    bits_of(j.model, j.adam, &after);
    assert_same_bits(&before, &after, words_of(s));
    if (belay_grad_scaler_get(j.scaler) != 128)
        fail_msg("%s: the scale is %g", words_of(s), belay_grad_scaler_get(j.scaler));
    assert_int_equal(belay_grad_scaler_growth_get(j.scaler), 0);
    assert_true(belay_grad_scaler_found_inf(j.scaler));
    window(&j, s, 2);
    bits_of(j.model, j.adam, &end);
    assert_false(are_same_bits(&end, &after));
    assert_true(belay_grad_scaler_get(j.scaler) == 128);
    assert_int_equal(belay_grad_scaler_n_backoffs(j.scaler), 1);
    assert_int_equal(belay_optimizer_n_applied(j.adam), 2);
    assert_int_equal(belay_optimizer_n_overflowed(j.adam), 1);
    assert_int_equal(belay_optimizer_n_faulted(j.adam), 0);
    assert_int_equal(belay_close(j.context), 0);
}

static void an_inf_in_any_micro_batch_leaves_every_bit_and_halves_the_scale_once(void **state)
{
    for (net_kind kind = 0; kind < N_NETS; kind++)
        for (belay_dtype dtype = BELAY_BF16; dtype <= BELAY_F16; dtype++)
            for (way inf = FORWARD; inf <= last_way(kind); inf++)
                for (int64_t position = WINDOW; position < 2 * WINDOW; position++)
                    lose_a_window(&(setup){kind, dtype, *state, inf, position, 7});
}

/* ---- trainings ---- */

/* Every second id is one of the label's, so that a mean can learn it as well as what reads in order. */
static belay_code get_mixed(void *state, int64_t index, belay_sample *sample)
{
    belay_code code = get_sample(state, index, sample);
    for (int64_t i = 0; i < SEQ; i += 2)
        sample->room[i] = sample->room[i] % (VOCABULARY / CLASSES) * CLASSES + sample->label;
    return code;
}

static belay_dataset *open_mixed(belay_context *context, samples *s, int64_t n)
{
    return belay_dataset_callback(context, n, get_mixed, s,
                                  &(belay_ids_options){.seq = SEQ, .n_tokens = VOCABULARY, .n_classes = CLASSES});
}

typedef struct trained {
    belay_train_result result;
    bits bits;
} trained;

static void run_training(const setup *s, const belay_train_options *more, bool is_scaled, int64_t n, trained *out)
{
    samples data = {.seed = 11, .plant = {.sample = -1}}, valid = {.seed = 12, .plant = {.sample = -1}};
    belay_train_options options = *more;
    job j = open_job(s, is_scaled ? &(belay_grad_scaler_options){.init_scale = 256, .is_fixed = true} : NULL);
    options.batch = BATCH;
    options.no_shuffle = true;
    options.autocast = s->dtype;
    options.scaler = j.scaler;
    options.seed = 3;
    options.valid = open_mixed(j.context, &valid, 40);
    assert_int_equal(belay_train(j.model, j.adam, open_mixed(j.context, &data, n), &options, &out->result), BELAY_OK);
    bits_of(j.model, j.adam, &out->bits);
    assert_int_equal(belay_close(j.context), 0);
}

/* Epoch 0 has 9 batches in windows of 3, the last batch of 6: an inf in each of them, against its window skipped. */
static void compare_with_skipped(setup s, int64_t first)
{
    static trained bad, skipped;
    const belay_batch_place places[] = {{0, first}, {0, first + 1}, {0, first + 2}};
    const belay_train_options options = {.epochs = 2, .accumulate = WINDOW};
    belay_train_options without = options;
    without.skip = places;
    without.n_skip = WINDOW;
    s.inf = NOWHERE;
    run_training(&s, &without, true, 70, &skipped);
    for (s.inf = FORWARD; s.inf <= last_way(s.kind); s.inf++)
        for (s.position = first; s.position < first + WINDOW; s.position++) {
            run_training(&s, &options, true, 70, &bad);
            if (bad.result.n_overflowed != 1)
                fail_msg("%s: %d windows were dropped", words_of(&s), (int)bad.result.n_overflowed);
            assert_same_bits(&skipped.bits, &bad.bits, words_of(&s));
            assert_int_equal(bad.result.n_faults, 0);
            assert_int_equal(bad.result.n_steps, skipped.result.n_steps);
            assert_true(bad.result.last_loss == skipped.result.last_loss);
            assert_true(bad.result.best_loss == skipped.result.best_loss);
        }
}

static void under_a_fixed_scale_an_inf_in_any_micro_batch_is_as_its_window_skipped(void **state)
{
    for (net_kind kind = 0; kind < N_NETS; kind++)
        for (belay_dtype dtype = BELAY_BF16; dtype <= BELAY_F16; dtype++)
            for (int64_t first = 0; first < 9; first += WINDOW)
                compare_with_skipped((setup){kind, dtype, *state, NOWHERE, 0, 7}, first);
}

/* ---- it ends where f32 ends ---- */

enum { SEEDS = 5 };

typedef struct range {
    double low, high;
} range;

/* On cpu and, where that is wanted, on sim:1, which gives the same bits. */
static range range_of(net_kind kind, belay_dtype dtype, bool is_on_sim)
{
    static trained cpu, sim;
    range r = {INFINITY, -INFINITY};
    const belay_train_options options = {.epochs = 8, .accumulate = 2};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        setup s = {kind, dtype, NULL, NOWHERE, 0, seed};
        run_training(&s, &options, dtype == BELAY_F16, 240, &cpu);
        s.device = "sim:1";
        if (is_on_sim && seed == SEEDS) {
            run_training(&s, &options, dtype == BELAY_F16, 240, &sim);
            assert_same_bits(&cpu.bits, &sim.bits, words_of(&s));
            assert_true(cpu.result.last_loss == sim.result.last_loss);
        }
        r.low = fmin(r.low, cpu.result.last_loss);
        r.high = fmax(r.high, cpu.result.last_loss);
    }
    return r;
}

static void every_net_ends_in_the_range_of_f32_and_on_sim_as_on_cpu(void **state)
{
    (void)state;
    for (net_kind kind = 0; kind < N_NETS; kind++) {
        range exact = range_of(kind, BELAY_F32, false);
        if (!(exact.high < 0.4 * log(CLASSES))) /* nothing was learnt */
            fail_msg("%s ends at %g", net_name[kind], exact.high);
        for (belay_dtype dtype = BELAY_BF16; dtype <= BELAY_F16; dtype++) {
            range low = range_of(kind, dtype, true);
            print_message("%s, %s: [%g, %g], f32: [%g, %g]\n", net_name[kind], belay_dtype_name(dtype), low.low,
                          low.high, exact.low, exact.high);
            assert_true(low.low <= exact.high && low.high >= exact.low);
        }
    }
}

#define ON_BOTH(test)                                                                                                  \
    {#test "_on_cpu", test, NULL, NULL, NULL}, { #test "_on_sim", test, NULL, NULL, "sim:1" }

int main(void)
{
    setenv("BELAY_SIM_BYTES", "16777216", 1); /* quick to open */
    setenv("BELAY_SIM_SEED", "11", 0);
    const struct CMUnitTest tests[] = {
        ON_BOTH(an_inf_in_any_micro_batch_leaves_every_bit_and_halves_the_scale_once),
        ON_BOTH(under_a_fixed_scale_an_inf_in_any_micro_batch_is_as_its_window_skipped),
        cmocka_unit_test(every_net_ends_in_the_range_of_f32_and_on_sim_as_on_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
