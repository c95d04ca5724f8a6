/* SPDX-License-Identifier: Apache-2.0 */
/* Makers, state for checkpoints, lifetime, memory that ends. */
#include "optim/optim_support.h"

#include "base/memory.h"

static void state_written_back_goes_on_bit_for_bit(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        copies middle = {0}, end[2];
        for (int run = 0; run < 2; run++) {
            belay_context *context = open_cpu();
            belay_tensor leaf[LEAVES];
            make_leaves(context, 2000, leaf);
            belay_optimizer *o = optimizer_of(context, kind, leaf, LEAVES);
            if (run == 1)
                restore(&middle, leaf, LEAVES, o);
            for (uint64_t step = run == 0 ? 0 : 3; step < 6; step++) {
                if (step == 3 && run == 0)
                    middle = copy_all(leaf, LEAVES, o);
                give_drawn(context, leaf, step == 1 ? 2 : LEAVES, step);
                belay_optimizer_step(o);
            }
            end[run] = copy_all(leaf, LEAVES, o);
            assert_int_equal(belay_optimizer_n_applied(o), 6);
            assert_string_equal(told, "");
            assert_int_equal(belay_close(context), 0);
        }
        assert_same(&end[0], &end[1], false);
        copies_free(&middle);
        copies_free(&end[0]);
        copies_free(&end[1]);
    }
}

static void state_is_named_after_its_parameters(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_tensor leaf[LEAVES];
    make_leaves(context, 4, leaf);
    belay_tensor more[] = {leaf[1], leaf[2], leaf[1],
                           belay_tensor_requires_grad_set(belay_zeros(context, BELAY_F64, belay_shape2(2, 3)), true)};
    belay_optimizer *o = belay_adam_over(context, more, 4, &(belay_adam_options){.lr = 1, .amsgrad = true});
    static const char *const names[] = {
        "exp_avg.b", "exp_avg_sq.b", "max_exp_avg_sq.b", "exp_avg.c", "exp_avg_sq.c", "max_exp_avg_sq.c",
        "exp_avg.2", "exp_avg_sq.2", "max_exp_avg_sq.2", "t",         "state"};
    const char *name;
    belay_tensor tensor;
    assert_int_equal(belay_optimizer_n_state(o), BL_COUNT(names));
    for (int i = 0; i < BL_COUNT(names); i++) {
        assert_true(belay_optimizer_state_get(o, i, &name, &tensor));
        assert_string_equal(name, names[i]);
    }
    assert_false(belay_optimizer_state_get(o, BL_COUNT(names), &name, &tensor));
    assert_false(belay_optimizer_state_get(o, -1, &name, &tensor));
    assert_true(belay_optimizer_state_get(o, 6, &name, NULL));
    assert_string_equal(name, names[6]);
    assert_true(belay_optimizer_state_get(o, 6, NULL, &tensor));
    belay_shape shape = belay_tensor_shape(tensor);
    assert_true(shape.rank == 2 && shape.size[0] == 2 && shape.size[1] == 3);
    assert_int_equal(belay_tensor_dtype(tensor), BELAY_F64);
    assert_int_equal(belay_close(context), 0);
}

/* The headline of the first thing told, and no more. */
static void assert_headline(const char *headline)
{
    assert_int_equal(strncmp(told, headline, strlen(headline)), 0);
    told[0] = '\0';
}

static void options_outside_of_their_range_are_refused(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_tensor leaf[LEAVES];
    make_leaves(context, 4, leaf);
    const struct {
        belay_sgd_options options;
        const char *headline;
    } sgd[] = {
        {{.lr = 0}, "belay: lr is 0, outside (0, inf) (conf.value)\n"},
        {{.lr = -0.5}, "belay: lr is -0.5, outside (0, inf) (conf.value)\n"},
        {{.lr = (double)NAN}, "belay: lr is nan, outside (0, inf) (conf.value)\n"},
        {{.lr = (double)INFINITY}, "belay: lr is inf, outside (0, inf) (conf.value)\n"},
        {{.lr = 1, .momentum = -1}, "belay: momentum is -1, outside [0, inf) (conf.value)\n"},
        {{.lr = 1, .weight_decay = -1}, "belay: weight_decay is -1, outside [0, inf) (conf.value)\n"},
        {{.lr = 1, .clip = -1}, "belay: clip is -1, outside [0, inf) (conf.value)\n"},
        {{.lr = 1, .nesterov = true},
         "belay: nesterov needs a momentum and no dampening; momentum is 0, dampening 0 (conf.conflict)\n"},
        {{.lr = 1, .schedule.kind = BELAY_SCHEDULE_STEP},
         "belay: schedule.period is 0, outside [1, inf) (conf.value)\n"},
        {{.lr = 1, .schedule.kind = (belay_schedule_kind)9},
         "belay: schedule.kind is 9, which is no kind (conf.value)\n"},
        {{.lr = 1, .schedule.warmup = -3}, "belay: schedule.warmup is -3, outside [0, inf) (conf.value)\n"},
        {{.lr = 1, .schedule.warmup_start = 2}, "belay: schedule.warmup_start is 2, outside [0, 1] (conf.value)\n"},
    };
    for (int i = 0; i < BL_COUNT(sgd); i++) {
        belay_optimizer *o = belay_sgd_over(context, leaf, LEAVES, &sgd[i].options);
        assert_non_null(o);
        assert_headline(sgd[i].headline);
        belay_optimizer_step(o);
        assert_int_equal(belay_optimizer_n_state(o), 0);
        assert_false(belay_optimizer_is_applied(o));
    }
    belay_adam_over(context, leaf, LEAVES, &(belay_adam_options){.lr = 1, .beta2 = 1});
    assert_headline("belay: beta2 is 1, outside [0, 1) (conf.value)\n");
    belay_adam_over(context, leaf, LEAVES, &(belay_adam_options){.lr = 1, .eps = -1});
    assert_headline("belay: eps is -1, outside (0, inf) (conf.value)\n");
    belay_adam_over(context, leaf, LEAVES, NULL);
    assert_headline("belay: lr is 0, outside (0, inf) (conf.value)\n");
    assert_int_equal(belay_close(context), 2);
}

static void parameters_that_cannot_be_updated_are_refused(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_sgd_options options = {.lr = 1};
    belay_tensor ids = belay_tensor_name_set(belay_zeros(context, BELAY_I64, belay_shape1(3)), "ids");
    belay_tensor wide = belay_transpose(belay_zeros(context, BELAY_F32, belay_shape2(2, 3)), 0, 1);
    belay_tensor dead = belay_tensor_name_set(belay_zeros(context, BELAY_F32, belay_shape1(3)), "gone"), nil = {0};
    belay_tensor_free(dead);
    belay_sgd_over(context, &ids, 1, &options);
    assert_headline("belay: parameter 0 of an optimizer, ids, is i64: it must be a float (type.dtype)\n");
    belay_sgd_over(context, &wide, 1, &options);
    assert_headline("belay: parameter 0 of an optimizer, , is not contiguous (shape.contract)\n");
    belay_sgd_over(context, &nil, 1, &options);
    assert_headline("belay: parameter 0 of an optimizer is nil (conf.missing)\n");
    belay_sgd_over(context, NULL, 0, &options);
    assert_headline("belay: an optimizer needs a parameter; 0 were given (conf.missing)\n");
    belay_sgd_over(context, NULL, 3, &options);
    assert_headline("belay: an optimizer needs a parameter; 0 were given (conf.missing)\n");
    belay_sgd_over(context, &dead, 1, &options);
    assert_non_null(strstr(told, "(life.stale)"));
    belay_close(context);
}

static void parameter_that_died_refuses_the_step(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_tensor leaf[LEAVES];
    make_leaves(context, 4, leaf);
    belay_optimizer *o = optimizer_of(context, 2, leaf, LEAVES);
    give_drawn(context, leaf, LEAVES, 0);
    belay_tensor_free(leaf[1]);
    copies before = copy_all(leaf, 1, o);
    belay_optimizer_step(o);
    copies after = copy_all(leaf, 1, o);
    assert_same(&before, &after, true);
    assert_non_null(strstr(told, "belay: step 0 was not applied: life.stale in its window (run.window_lost)\n"));
    copies_free(&before);
    copies_free(&after);
    assert_int_equal(belay_close(context), 3);
}

static void optimizer_can_be_freed_before_its_context(void **state)
{
    (void)state;
    belay_context *context = open_cpu();
    belay_tensor leaf[LEAVES];
    make_leaves(context, 4096, leaf);
    int64_t before = belay_memory_get(context).in_use;
    belay_optimizer *o = optimizer_of(context, 3, leaf, LEAVES);
    assert_true(belay_memory_get(context).in_use > before);
    belay_optimizer_free(o);
    assert_int_equal(belay_memory_get(context).in_use, before);
    belay_optimizer_free(NULL);
    assert_string_equal(told, "");
    assert_int_equal(belay_close(context), 0);
}

/* ---- memory that ends ---- */

/* Two steps; what the leaves and the optimizer's age are at the end, or nothing when the context did not open. */
static bool job(float out[5], double *applied)
{
    belay_context *context = open_cpu();
    bool is_open = belay_is_open(context);
    belay_tensor leaf[LEAVES];
    make_leaves(context, 4, leaf);
    belay_optimizer *o = optimizer_of(context, 3, leaf, LEAVES);
    for (uint64_t step = 0; step < 2; step++) {
        give_drawn(context, leaf, LEAVES, step);
        belay_optimizer_step(o);
    }
    *applied = (double)belay_optimizer_n_applied(o);
    memset(out, 0, 5 * sizeof *out);
    is_open = is_open && belay_tensor_read(leaf[1], out, 12) == BELAY_OK &&
              belay_tensor_read(leaf[2], out + 3, 8) == BELAY_OK;
    (void)belay_close(context);
    return is_open;
}

static void every_failing_allocation_is_a_named_fault(void **state)
{
    (void)state;
    float whole[5], out[5];
    double applied;
    bl_memory_fail_at(-1);
    assert_true(job(whole, &applied));
    assert_true(applied == 2);
    for (int64_t n = 0; n < 5000; n++) {
        bl_memory_fail_at(n);
        bool ended = job(out, &applied);
        if (!bl_memory_failed()) {
            bl_memory_fail_at(-1);
            assert_true(n > 50);
            return;
        }
        bool same = ended && memcmp(out, whole, sizeof out) == 0;
        bool is_named = strstr(told, "mem.exhausted") != NULL;
        if (!same && !is_named)
            print_error("allocation %lld: the result differs and nothing was named; told: %s\n", (long long)n, told);
        assert_true(same || is_named);
    }
    fail_msg("the job never got all its memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_written_back_goes_on_bit_for_bit),
        cmocka_unit_test(state_is_named_after_its_parameters),
        cmocka_unit_test(options_outside_of_their_range_are_refused),
        cmocka_unit_test(parameters_that_cannot_be_updated_are_refused),
        cmocka_unit_test(parameter_that_died_refuses_the_step),
        cmocka_unit_test(optimizer_can_be_freed_before_its_context),
        cmocka_unit_test(every_failing_allocation_is_a_named_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
