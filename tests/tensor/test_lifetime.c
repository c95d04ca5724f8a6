/* SPDX-License-Identifier: Apache-2.0 */
/* The sentences of docs/lifetime.md about handles, scopes, ownership and storages. */
#include "support/told.h"

#include <stdio.h>
#include <string.h>

#include "tensor/context.h"

/* ---- handles --------------------------------------------------------------------------------------------------------- */

static void a_stale_handle_names_its_tensor_and_where_and_when_it_died(void **state)
{
    (void)state;
    belay_context *context = told_open();
    context->step = 7;
    belay_scope scope = belay_scope_open(context);
    belay_tensor x = belay_tensor_name_set(belay_zeros(context, BELAY_F32, belay_shape2(2, 3)), "hidden");
    int died = __LINE__ + 1;
    belay_scope_close(scope);
    int used = __LINE__ + 1;
    belay_tensor y = belay_neg(x);
    assert_true(belay_tensor_is_nil(y));
    told_expect("belay: tensor hidden [2, 3] f32 was used after it had died (life.stale)\n"
                "    called at: test_lifetime.c:%d\n"
                "    died at: test_lifetime.c:%d, in step 7\n"
                "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 7, rank 0\n"
                "%s",
                used, died, told_try(BELAY_LIFE_STALE));
    assert_int_equal(belay_close(context), 3);
}

static void a_stale_handle_is_told_after_its_slot_has_new_tenants(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_tensor_name_set(belay_zeros(context, BELAY_I64, belay_shape1(5)), "old");
    int died = __LINE__ + 1;
    belay_tensor_free(x);
    belay_tensor y = belay_zeros(context, BELAY_F32, belay_shape1(2));
    assert_int_equal(y.slot, x.slot);
    int used = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_neg(x)));
    told_expect("belay: tensor old [5] i64 was used after it had died (life.stale)\n"
                "    called at: test_lifetime.c:%d\n"
                "    died at: test_lifetime.c:%d, in step 0\n" TOLD_START "%s",
                used, died, told_try(BELAY_LIFE_STALE));
    assert_int_equal(belay_close(context), 3);
}

static void a_handle_whose_death_is_long_ago_is_still_stale(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape1(5));
    belay_tensor_free(x);
    for (int i = 0; i < BL_MAX_DEATHS; i++)
        belay_tensor_free(belay_zeros(context, BELAY_F32, belay_shape1(1)));
    int used = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_neg(x)));
    told_expect("belay: a tensor was used after it had died (life.stale)\n"
                "    called at: test_lifetime.c:%d\n"
                "    died: more than %d tensors ago\n" TOLD_START "%s",
                used, BL_MAX_DEATHS, told_try(BELAY_LIFE_STALE));
    assert_int_equal(belay_close(context), 3);
}

static void a_nil_handle_absorbs_in_silence(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor nil = {0}, x = belay_zeros(context, BELAY_F32, belay_shape2(2, 2));
    assert_true(belay_tensor_is_nil(belay_neg(nil)));
    assert_true(belay_tensor_is_nil(belay_add(x, nil)));
    assert_true(belay_tensor_is_nil(belay_add(nil, x)));
    assert_true(belay_tensor_is_nil(belay_linear(x, nil, nil)));
    assert_true(belay_tensor_is_nil(belay_sum(nil, NULL)));
    assert_true(belay_tensor_is_nil(belay_keep(nil)));
    belay_backward(nil);
    belay_tensor_free(nil);
    belay_tensor_grad_clear(nil);
    assert_false(belay_tensor_is_alive(nil));
    assert_int_equal(belay_tensor_shape(nil).rank, 0);
    assert_int_equal(belay_tensor_n_elements(nil), 0);
    assert_string_equal(belay_tensor_name(nil), "");
    assert_null(belay_tensor_context(nil));
    told_close(context);
}

static void expect_forged(int line, belay_tensor forged)
{
    told_expect("belay: a handle was used that no tensor ever had: slot %u, generation %u (life.stale)\n"
                "    called at: test_lifetime.c:%d\n" TOLD_START
                "    try: Use handles as Belay gave them: this one was made up, or its memory was overwritten.\n",
                forged.slot, forged.generation, line);
}

static void a_forged_handle_is_stale(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape1(1));
    const belay_tensor forged[] = {{x.context, x.slot, x.generation + 5},
                                   {x.context, 0, 1},
                                   {x.context, 4000000000u, 1},
                                   {x.context, x.slot + 1, 1}};
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        assert_false(belay_tensor_is_alive(forged[i]));
        int line = __LINE__ + 1;
        assert_true(belay_tensor_is_nil(belay_neg(forged[i])));
        expect_forged(line, forged[i]);
    }
    belay_tensor_free(x);
    const belay_tensor not_yet = {x.context, x.slot, x.generation + 1};
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_neg(not_yet)));
    expect_forged(line, not_yet);
    assert_int_equal(belay_n_faults(context), 5);
    assert_int_equal(belay_close(context), 3);
}

static void a_handle_of_no_context_is_stale_where_another_operand_has_one(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape2(1, 1)), none = {0};
    const belay_tensor forged = {x.context + 77, 3, 9};
    assert_true(belay_tensor_is_nil(belay_neg(forged))); /* there is nobody to tell */
    assert_false(belay_tensor_is_alive(forged));
    assert_true(belay_tensor_is_nil(belay_keep(forged)));
    assert_string_equal(told(), "");
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_add(forged, x)));
    told_expect("belay: operand 0 is a handle that no context ever gave (life.stale)\n"
                "    op: add, called at test_lifetime.c:%d\n"
                "    tensors: b [1, 1] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_STALE));
    line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_linear(forged, x, none)));
    told_expect("belay: a tensor that was used here is a handle that no context ever gave (life.stale)\n"
                "    called at: test_lifetime.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_STALE));
    line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_cat((const belay_tensor[]){x, forged}, 2, 0)));
    told_expect("belay: operand 1 of cat is a handle that no context ever gave (life.stale)\n"
                "    called at: test_lifetime.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_STALE));
    assert_int_equal(belay_close(context), 3);
}

static void a_slot_whose_generation_would_wrap_is_retired(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape1(1));
    belay_tensor_free(x);
    bl_slot_at(context, x.slot)->generation = UINT32_MAX;
    belay_tensor last = belay_zeros(context, BELAY_F32, belay_shape1(1));
    assert_int_equal(last.slot, x.slot);
    assert_int_equal(last.generation, UINT32_MAX);
    belay_tensor_free(last);
    for (int i = 0; i < 10; i++)
        assert_int_not_equal(belay_zeros(context, BELAY_F32, belay_shape1(1)).slot, x.slot);
    assert_false(belay_tensor_is_alive(last));
    assert_false(belay_tensor_is_alive((belay_tensor){x.context, x.slot, 0}));
    told_close(context);
}

/* ---- contexts -------------------------------------------------------------------------------------------------------- */

static void tensors_of_two_contexts_do_not_meet(void **state)
{
    (void)state;
    belay_context *a = told_open(), *b = told_open();
    belay_tensor x = belay_ones(a, BELAY_F32, belay_shape2(2, 2)), y = belay_ones(b, BELAY_F32, belay_shape2(2, 2));
    assert_true(belay_tensor_is_nil(belay_add(x, y)));
    assert_non_null(strstr(told(), "another context"));
    assert_non_null(strstr(told(), "(life.foreign)"));
    told_clear();
    assert_true(belay_tensor_is_nil(belay_linear(x, y, (belay_tensor){0})));
    assert_non_null(strstr(told(), "(life.foreign)"));
    told_clear();
    assert_int_equal(belay_n_faults(b), 0);
    assert_int_equal(belay_close(a), 3);
    told_close(b);
}

static void a_handle_of_a_closed_context_is_found_to_be_one(void **state)
{
    (void)state;
    belay_context *a = told_open();
    belay_tensor x = belay_ones(a, BELAY_F32, belay_shape1(2));
    told_close(a);
    float out[2];
    assert_false(belay_tensor_is_alive(x));
    assert_null(belay_tensor_context(x));
    assert_int_equal(belay_tensor_read(x, out, sizeof out), BELAY_LIFE_STALE);
    assert_true(belay_tensor_is_nil(belay_neg(x)));
    belay_context *b = told_open(); /* the same place in the table of contexts */
    belay_tensor y = belay_ones(b, BELAY_F32, belay_shape1(2));
    assert_int_not_equal(x.context, y.context);
    assert_false(belay_tensor_is_alive(x));
    int line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_add(y, x)));
    told_expect("belay: operand 1 belongs to another context, which is closed (life.foreign)\n"
                "    op: add, called at test_lifetime.c:%d\n"
                "    tensors: a [2] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_FOREIGN));
    line = __LINE__ + 1;
    assert_true(belay_tensor_is_nil(belay_add(x, y)));
    told_expect("belay: operand 0 belongs to another context, which is closed (life.foreign)\n"
                "    op: add, called at test_lifetime.c:%d\n"
                "    tensors: b [2] f32; on cpu\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_FOREIGN));
    assert_int_equal(belay_close(b), 3);
}

static void contexts_are_independent(void **state)
{
    (void)state;
    belay_context *a = told_open(), *b = told_open();
    belay_tensor x = belay_ones(a, BELAY_F32, belay_shape1(3)), y = belay_ones(b, BELAY_F32, belay_shape1(3));
    told_close(a);
    assert_false(belay_tensor_is_alive(x));
    assert_true(belay_tensor_item(belay_sum(y, NULL)) == 3);
    told_close(b);
}

/* ---- scopes ---------------------------------------------------------------------------------------------------------- */

static void temporaries_die_with_their_scope(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor before = belay_ones(context, BELAY_F32, belay_shape1(1));
    belay_scope outer = belay_scope_open(context);
    belay_tensor a = belay_ones(context, BELAY_F32, belay_shape1(1));
    belay_scope inner = belay_scope_open(context);
    belay_tensor b = belay_ones(context, BELAY_F32, belay_shape1(1));
    belay_scope_close(inner);
    assert_false(belay_tensor_is_alive(b));
    assert_true(belay_tensor_is_alive(a));
    belay_scope_close(outer);
    assert_false(belay_tensor_is_alive(a));
    assert_true(belay_tensor_is_alive(before));
    told_close(context);
}

static void keep_hands_a_temporary_to_the_next_outer_scope(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_scope outer = belay_scope_open(context), inner = belay_scope_open(context);
    belay_tensor x = belay_keep(belay_ones(context, BELAY_F32, belay_shape1(1)));
    belay_tensor y = belay_keep(belay_keep(belay_ones(context, BELAY_F32, belay_shape1(1))));
    belay_scope_close(inner);
    assert_true(belay_tensor_is_alive(x));
    belay_scope_close(outer);
    assert_false(belay_tensor_is_alive(x));
    assert_true(belay_tensor_is_alive(y));
    assert_true(belay_tensor_is_alive(belay_keep(y))); /* there is nothing further out */
    told_close(context);
}

static void a_scope_closed_twice_is_a_fault(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_scope scope = belay_scope_open(context);
    belay_scope_close(scope);
    int line = __LINE__ + 1;
    belay_scope_close(scope);
    told_expect("belay: a scope was closed twice (0 scopes are open) (life.scope)\n"
                "    called at: test_lifetime.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_SCOPE));
    belay_scope other = belay_scope_open(context); /* the same depth, another scope */
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape1(1));
    belay_scope_close(scope);
    assert_true(belay_tensor_is_alive(x));
    told_clear();
    belay_scope_close(other);
    assert_string_equal(told(), "");
    assert_int_equal(belay_close(context), 3);
}

static void a_scope_of_a_closed_context_does_nothing(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_scope scope = belay_scope_open(context);
    told_close(context);
    belay_scope_close(scope);
    belay_context *other = told_open(); /* the same place in the table of contexts, the same depth */
    belay_scope_open(other);
    belay_tensor x = belay_ones(other, BELAY_F32, belay_shape1(1));
    belay_scope_close(scope);
    assert_true(belay_tensor_is_alive(x));
    told_close(other);
}

static void a_scope_that_was_made_up_is_a_fault(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_scope scope = belay_scope_open(context);
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape1(1));
    const belay_scope forged[] = {{scope.context, scope.depth, scope.serial + 9},
                                  {scope.context, 0, scope.serial},
                                  {scope.context, 1, 0},
                                  {scope.context, 4000000000u, 4000000000u}};
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        int line = __LINE__ + 1;
        belay_scope_close(forged[i]);
        told_expect("belay: a scope was closed that was never opened (life.scope)\n"
                    "    called at: test_lifetime.c:%d\n" TOLD_START "%s",
                    line, told_try(BELAY_LIFE_SCOPE));
    }
    belay_scope_close((belay_scope){scope.context + 3, scope.depth, scope.serial}); /* there is nobody to tell */
    assert_string_equal(told(), "");
    assert_true(belay_tensor_is_alive(x));
    assert_int_equal(belay_close(context), 3);
}

static void a_scope_closed_before_those_inside_closes_them_and_is_a_fault(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_scope outer = belay_scope_open(context);
    belay_scope_open(context);
    belay_scope_open(context);
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape1(1));
    int line = __LINE__ + 1;
    belay_scope_close(outer);
    told_expect("belay: a scope was closed while 2 inside of it are open (life.scope)\n"
                "    called at: test_lifetime.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_SCOPE));
    assert_false(belay_tensor_is_alive(x));
    assert_int_equal(context->depth, 1);
    assert_int_equal(belay_close(context), 3);
}

static void too_many_scopes_are_a_fault_and_the_nil_scope_absorbs(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_scope scopes[300];
    int n = 0;
    while (n < 300 && (scopes[n] = belay_scope_open(context)).context != 0)
        n++;
    assert_int_equal(n, BL_MAX_SCOPES - 2);
    assert_non_null(strstr(told(), "belay: 254 scopes are open: the most are 254 (life.scope)\n"));
    told_clear();
    belay_scope_close(scopes[n]);
    while (n-- > 0)
        belay_scope_close(scopes[n]);
    assert_string_equal(told(), "");
    assert_int_equal(context->depth, 1);
    assert_int_equal(belay_close(context), 3);
}

/* ---- storages -------------------------------------------------------------------------------------------------------- */

static void a_view_keeps_the_storage_that_its_tensor_leaves(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const float values[] = {1, 2, 3, 4};
    belay_scope scope = belay_scope_open(context);
    belay_tensor x = told_f32(context, belay_shape1(4), values);
    belay_tensor y = belay_keep(belay_view(x, belay_shape2(2, 2)));
    belay_scope_close(scope);
    assert_false(belay_tensor_is_alive(x));
    float out[4];
    told_read(y, out, 4);
    assert_memory_equal(out, values, sizeof out);
    assert_int_equal(context->n_storages_alive, 1);
    belay_tensor_free(y);
    assert_int_equal(context->n_storages_alive, 0);
    assert_int_equal(belay_memory_get(context).in_use, 0);
    told_close(context);
}

static void free_ends_a_temporary_now_and_leaves_what_an_object_owns(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape1(1));
    belay_tensor owned = bl_tensor_own(context, belay_ones(context, BELAY_F32, belay_shape1(1)));
    belay_tensor_free(x);
    belay_tensor_free(owned);
    assert_false(belay_tensor_is_alive(x));
    assert_true(belay_tensor_is_alive(owned));
    int line = __LINE__ + 1;
    belay_tensor_free(x);
    assert_non_null(strstr(told(), "belay: a tensor [1] f32 was used after it had died (life.stale)\n"));
    char at[64];
    snprintf(at, sizeof at, "    called at: test_lifetime.c:%d\n", line);
    assert_true(words_have(told(), at));
    assert_int_equal(belay_close(context), 3);
}

static void a_leaf_takes_its_gradient_along(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    belay_scope scope = belay_scope_open(context);
    belay_backward(belay_sum(x, NULL));
    belay_scope_close(scope);
    belay_tensor grad = belay_tensor_grad(x);
    assert_true(belay_tensor_is_alive(grad));
    belay_tensor_free(grad); /* it belongs to the leaf */
    assert_true(belay_tensor_is_alive(grad));
    belay_tensor_free(x);
    assert_false(belay_tensor_is_alive(grad));
    assert_int_equal(context->n_storages_alive, 0);
    told_close(context);
}

static void a_steady_loop_reuses_slots_and_storages(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor w = told_leaf(context, belay_shape1(2), (const float[]){1, 2});
    int64_t slots = 0, peak = 0;
    for (int i = 0; i < 1000; i++) {
        belay_scope scope = belay_scope_open(context);
        belay_backward(belay_sum(belay_mul(w, w), NULL));
        belay_tensor_grad_clear(w);
        belay_scope_close(scope);
        if (i == 1) {
            slots = context->n_slots;
            peak = belay_memory_get(context).peak;
        }
    }
    assert_int_equal(context->n_slots, slots);
    assert_int_equal(belay_memory_get(context).peak, peak);
    told_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stale_handle_names_its_tensor_and_where_and_when_it_died),
        cmocka_unit_test(a_stale_handle_is_told_after_its_slot_has_new_tenants),
        cmocka_unit_test(a_handle_whose_death_is_long_ago_is_still_stale),
        cmocka_unit_test(a_nil_handle_absorbs_in_silence),
        cmocka_unit_test(a_forged_handle_is_stale),
        cmocka_unit_test(a_handle_of_no_context_is_stale_where_another_operand_has_one),
        cmocka_unit_test(a_scope_of_a_closed_context_does_nothing),
        cmocka_unit_test(a_scope_that_was_made_up_is_a_fault),
        cmocka_unit_test(a_slot_whose_generation_would_wrap_is_retired),
        cmocka_unit_test(tensors_of_two_contexts_do_not_meet),
        cmocka_unit_test(a_handle_of_a_closed_context_is_found_to_be_one),
        cmocka_unit_test(contexts_are_independent),
        cmocka_unit_test(temporaries_die_with_their_scope),
        cmocka_unit_test(keep_hands_a_temporary_to_the_next_outer_scope),
        cmocka_unit_test(a_scope_closed_twice_is_a_fault),
        cmocka_unit_test(a_scope_closed_before_those_inside_closes_them_and_is_a_fault),
        cmocka_unit_test(too_many_scopes_are_a_fault_and_the_nil_scope_absorbs),
        cmocka_unit_test(a_view_keeps_the_storage_that_its_tensor_leaves),
        cmocka_unit_test(free_ends_a_temporary_now_and_leaves_what_an_object_owns),
        cmocka_unit_test(a_leaf_takes_its_gradient_along),
        cmocka_unit_test(a_steady_loop_reuses_slots_and_storages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
