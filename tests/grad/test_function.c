/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of the user's own: what they keep, when they are freed, what they are told as. */
#include "support/told.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "tensor/context.h"

/* y = x^3, with a state that counts its own calls. */
typedef struct cube {
    int n_forward, n_backward, n_freed;
    enum { PLAIN, FAULT_IN_FORWARD, FAULT_IN_BACKWARD, NIL_RESULT, WRONG_SHAPE, WRONG_DTYPE, RETURN_INPUT } mode;
    bool recorded, wanted;
} cube;

static void cube_forward(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                         int n_out)
{
    cube *c = state;
    (void)n_in, (void)n_out;
    c->n_forward++;
    c->recorded = belay_function_records(call);
    c->wanted = belay_function_wants(call, 0);
    if (c->mode == FAULT_IN_FORWARD)
        belay_fault_raise(belay_function_context(call), BELAY_DATA_ROW, "found in forward");
    if (c->mode == NIL_RESULT)
        return;
    belay_function_save(call, in[0]);
    out[0] = c->mode == RETURN_INPUT ? in[0] : belay_mul(belay_mul(in[0], in[0]), in[0]);
}

static void cube_backward(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                          belay_tensor *grad_in, int n_in)
{
    cube *c = state;
    (void)n_out, (void)n_in;
    c->n_backward++;
    belay_tensor x = belay_function_saved(call, 0);
    if (c->mode == FAULT_IN_BACKWARD)
        belay_fault_raise(belay_function_context(call), BELAY_DATA_ROW, "found in backward");
    if (c->mode == WRONG_SHAPE)
        grad_in[0] = belay_sum(x, NULL);
    else if (c->mode == WRONG_DTYPE)
        grad_in[0] = belay_cast(x, BELAY_F64);
    else
        grad_in[0] = belay_mul(grad_out[0], belay_affine(belay_mul(x, x), 3, 0));
}

static void cube_free(void *state) { ((cube *)state)->n_freed++; }

static const belay_function function = {
    .name = "cube", .forward = cube_forward, .backward = cube_backward, .free = cube_free};

static belay_tensor apply(belay_context *context, cube *c, belay_tensor x)
{
    belay_tensor y;
    belay_function_apply(context, &function, c, &x, 1, 0, &y, 1);
    return y;
}

static void a_users_op_has_its_own_gradient(void **state)
{
    (void)state;
    belay_context *context = told_open();
    cube c = {0};
    belay_tensor x = told_leaf(context, belay_shape1(2), (const float[]){2, 3});
    belay_tensor y = apply(context, &c, x);
    float out[2];
    told_read(y, out, 2);
    assert_memory_equal(out, ((const float[]){8, 27}), sizeof out);
    assert_true(c.recorded && c.wanted);
    assert_int_equal(c.n_freed, 0);
    belay_backward(belay_sum(y, NULL));
    assert_int_equal(c.n_backward, 1);
    assert_int_equal(c.n_freed, 1);
    told_read(belay_tensor_grad(x), out, 2);
    assert_memory_equal(out, ((const float[]){12, 27}), sizeof out);
    told_close(context);
    assert_int_equal(c.n_freed, 1);
}

static void a_result_may_be_written_over_its_input(void **state)
{
    (void)state;
    const float value = 2;
    float got[2];
    cube c = {0};
    belay_context *context = told_open();
    belay_tensor x = told_leaf(context, belay_shape1(1), &value), y = x;
    belay_function_apply(context, &function, &c, &y, 1, 0, &y, 1);
    told_read(y, &got[0], 1);
    belay_backward(belay_sum(y, NULL));
    told_read(belay_tensor_grad(x), &got[1], 1);
    assert_true(got[0] == 8 && got[1] == 12);
    told_close(context);
}

static void state_is_freed_once_whatever_happens(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = told_leaf(context, belay_shape1(2), (const float[]){2, 3}), nil = {0}, y[9];
    belay_tensor constant = told_f32(context, belay_shape1(2), (const float[]){2, 3}), dead;
    dead = belay_neg(constant);
    belay_tensor_free(dead);

    cube unrecorded = {0}, absent = {0}, stale = {0}, many = {0}, none = {0}, off = {0}, cut = {0}, empty = {0};
    apply(context, &unrecorded, constant);
    assert_int_equal(unrecorded.n_freed, 1);
    assert_true(belay_tensor_is_nil(apply(context, &absent, nil)));
    assert_int_equal(absent.n_freed, 1);
    assert_int_equal(absent.n_forward, 0);
    assert_string_equal(told(), "");
    assert_true(belay_tensor_is_nil(apply(context, &stale, dead)));
    assert_int_equal(stale.n_freed, 1);
    belay_function_apply(context, &function, &many, &x, 1, 0, y, 9);
    assert_int_equal(many.n_freed, 1);
    belay_function_apply(context, &function, &none, &x, 1, 0, y, 0);
    assert_int_equal(none.n_freed, 1);
    belay_recording_set(context, false);
    apply(context, &off, x);
    belay_recording_set(context, true);
    assert_int_equal(off.n_freed, 1);
    assert_false(off.recorded || off.wanted);
    belay_scope scope = belay_scope_open(context);
    apply(context, &cut, x);
    assert_int_equal(cut.n_freed, 0);
    belay_scope_close(scope);
    assert_int_equal(cut.n_freed, 1);
    empty.mode = NIL_RESULT;
    assert_true(belay_tensor_is_nil(apply(context, &empty, x)));
    assert_int_equal(empty.n_freed, 1);

    cube left = {0}, closed = {0};
    apply(context, &left, x); /* freed by belay_close */
    belay_close(context);
    assert_int_equal(left.n_freed, 1);
    belay_context *shut = belay_open(&(belay_options){.device = "none"});
    belay_function_apply(shut, &function, &closed, NULL, 0, 0, y, 1);
    belay_function_apply(NULL, &function, &closed, NULL, 0, 0, y, 1);
    assert_int_equal(closed.n_freed, 2);
    assert_int_equal(closed.n_forward, 0);
    belay_close(shut);
}

static void state_is_freed_once_when_memory_ends(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        belay_context *context = told_open();
        cube c = {0};
        belay_tensor x = told_leaf(context, belay_shape1(2), (const float[]){2, 3});
        bl_memory_fail_at(n);
        belay_backward(belay_sum(apply(context, &c, x), NULL));
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        bool is_told = belay_n_faults(context) > 0;
        belay_close(context);
        assert_int_equal(c.n_freed, 1);
        if (!failed)
            break;
        assert_true(is_told || n > 0);
    }
}

static void optional_inputs_may_be_nil(void **state)
{
    (void)state;
    belay_context *context = told_open();
    cube c = {0};
    belay_tensor in[] = {told_leaf(context, belay_shape1(1), (const float[]){2}), {0}}, y;
    belay_function_apply(context, &function, &c, in, 2, 1u << 1, &y, 1);
    assert_true(belay_tensor_is_alive(y));
    assert_false(c.n_freed);
    belay_backward(belay_sum(y, NULL));
    cube refused = {0};
    belay_function_apply(context, &function, &refused, in, 2, 1u << 0, &y, 1);
    assert_true(belay_tensor_is_nil(y));
    assert_int_equal(refused.n_forward, 0);
    told_close(context);
}

/* ---- faults ---------------------------------------------------------------------------------------------------------- */

static void a_fault_inside_closes_the_gate_though_nothing_is_recorded_there(void **state)
{
    (void)state;
    belay_context *context = told_open();
    cube c = {.mode = FAULT_IN_FORWARD};
    apply(context, &c, told_f32(context, belay_shape1(1), (const float[]){2}));
    assert_true(context->window_faulted);
    context->window_faulted = false;
    belay_recording_set(context, false);
    apply(context, &c, told_f32(context, belay_shape1(1), (const float[]){2}));
    assert_false(context->window_faulted);
    assert_int_equal(belay_close(context), 4);
}

static void a_fault_in_backward_names_site_and_layer_of_the_forward(void **state)
{
    (void)state;
    belay_context *context = told_open();
    cube c = {.mode = FAULT_IN_BACKWARD};
    belay_tensor x = told_leaf(context, belay_shape1(1), (const float[]){2});
    size_t length = bl_layer_push(context, "classifier");
    belay_tensor y = apply(context, &c, x);
    bl_layer_pop(context, length);
    belay_backward(belay_sum(y, NULL));
    belay_fault fault;
    assert_true(belay_fault_first(context, &fault));
    assert_memory_equal(fault.text, "belay: found in backward (data.row)\n", 36);
    assert_string_equal(fault.layer, "classifier");
    assert_true(words_have(fault.site, "test_function.c:"));
    assert_true(context->window_faulted);
    assert_string_equal(context->layer, "");
    assert_int_equal(belay_close(context), 4);
}

static void a_label_of_the_forward_is_told_by_backward(void **state)
{
    (void)state;
    belay_context *context = told_open();
    cube c = {.mode = FAULT_IN_BACKWARD};
    belay_tensor x = told_leaf(context, belay_shape1(1), (const float[]){2});
    belay_site_push(context, "model.py:3");
    belay_tensor y = apply(context, &c, x);
    belay_site_pop(context);
    belay_site_push(context, "train.py:12");
    belay_backward(belay_sum(y, NULL));
    belay_site_pop(context);
    belay_fault fault;
    assert_true(belay_fault_first(context, &fault));
    assert_string_equal(fault.site, "model.py:3");
    assert_int_equal(belay_close(context), 4);
}

static void a_gradient_of_another_shape_or_dtype_is_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    for (int mode = WRONG_SHAPE; mode <= WRONG_DTYPE; mode++) {
        cube c = {.mode = mode};
        belay_tensor x = told_leaf(context, belay_shape1(2), (const float[]){2, 3});
        belay_site_push(context, "model.py:3");
        belay_backward(belay_sum(apply(context, &c, x), NULL));
        belay_site_pop(context);
        told_expect("belay: backward of cube gave input 0, [2] f32, a gradient of %s (shape.contract)\n"
                    "    called at: model.py:3\n"
                    "    when: epoch 0, batch %d (micro-batch %d of its window), step 0, rank 0\n%s",
                    mode == WRONG_SHAPE ? "[] f32" : "[2] f64", mode - WRONG_SHAPE, mode - WRONG_SHAPE,
                    told_try(BELAY_SHAPE_CONTRACT));
        assert_true(belay_tensor_is_nil(belay_tensor_grad(x)));
    }
    assert_int_equal(belay_close(context), 3);
}

static void a_function_without_its_parts_is_refused(void **state)
{
    (void)state;
    belay_context *context = told_open();
    cube c = {0};
    const belay_function no_forward = {.name = "hollow", .backward = cube_backward, .free = cube_free},
                         no_name = {.forward = cube_forward}, no_backward = {.name = "oneway", .forward = cube_forward};
    belay_tensor x = told_leaf(context, belay_shape1(1), (const float[]){2}), y;
    belay_site_push(context, "model.py:4");
    belay_function_apply(context, &no_forward, &c, &x, 1, 0, &y, 1);
    assert_true(belay_tensor_is_nil(y));
    assert_int_equal(c.n_freed, 1);
    belay_function_apply(context, &no_name, &c, &x, 1, 0, &y, 1);
    belay_function_apply(context, NULL, &c, &x, 1, 0, &y, 1);
    assert_int_equal(c.n_forward, 0);
    belay_function_apply(context, &no_backward, &c, &x, 1, 0, &y, 1);
    belay_backward(y);
    assert_true(belay_tensor_is_nil(belay_tensor_grad(x)));
    belay_site_pop(context);
#define TOLD_CALL "    called at: model.py:4\n" TOLD_START
    told_expect("belay: belay_function_apply was given no forward in its function (conf.missing)\n" TOLD_CALL "%s"
                "belay: belay_function_apply was given no name in its function (conf.missing)\n" TOLD_CALL "%s"
                "belay: belay_function_apply was given no function (conf.missing)\n" TOLD_CALL "%s"
                "belay: oneway has no backward, and a gradient of its input is wanted (conf.missing)\n" TOLD_CALL "%s",
                told_try(BELAY_CONF_MISSING), told_try(BELAY_CONF_MISSING), told_try(BELAY_CONF_MISSING),
                told_try(BELAY_CONF_MISSING));
    assert_int_equal(belay_close(context), 2);
}

/* ---- ownership ------------------------------------------------------------------------------------------------------- */

static void an_input_handed_out_as_result_stays_where_it_was(void **state)
{
    (void)state;
    belay_context *context = told_open();
    cube c = {.mode = RETURN_INPUT};
    belay_scope outer = belay_scope_open(context);
    belay_tensor x = told_f32(context, belay_shape1(2), (const float[]){2, 3});
    belay_scope inner = belay_scope_open(context);
    belay_tensor y = apply(context, &c, x);
    assert_true(belay_tensor_is_alive(y));
    assert_int_not_equal(y.slot, x.slot);
    belay_scope_close(inner);
    assert_true(belay_tensor_is_alive(x));
    assert_false(belay_tensor_is_alive(y));
    belay_scope_close(outer);
    assert_false(belay_tensor_is_alive(x));
    told_close(context);
}

static belay_scope foreign_scope;
static void close_outside(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                          int n_out)
{
    (void)call, (void)state, (void)n_in, (void)n_out;
    belay_scope_close(foreign_scope);
    belay_scope_open(belay_function_context(call)); /* and leaves one open */
    out[0] = belay_neg(in[0]);
}

static void a_function_can_close_no_scope_around_it(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const belay_function closing = {.name = "closing", .forward = close_outside};
    foreign_scope = belay_scope_open(context);
    belay_tensor x = told_f32(context, belay_shape1(2), (const float[]){2, 3}), y;
    belay_function_apply(context, &closing, NULL, &x, 1, 0, &y, 1);
    assert_non_null(strstr(told(), "belay: a scope was closed by a function that was called inside of it and has not "
                                   "ended (life.scope)\n"));
    assert_true(belay_tensor_is_alive(x));
    assert_int_equal(context->depth, 2);
    told_clear();
    belay_scope_close(foreign_scope);
    assert_string_equal(told(), "");
    assert_int_equal(belay_close(context), 3);
}

static void one_application_inside_another_leaves_the_walk_as_it_was(void **state)
{
    (void)state;
    belay_context *context = told_open();
    cube c = {0};
    belay_tensor x = told_leaf(context, belay_shape1(1), (const float[]){2});
    belay_tensor y = apply(context, &c, x), z = apply(context, &(cube){0}, y);
    belay_backward(belay_sum(z, NULL));
    float grad[1];
    told_read(belay_tensor_grad(x), grad, 1);
    assert_true(grad[0] == 9 * 256);
    assert_false(context->in_backward || context->is_gating);
    assert_true(context->recording);
    assert_int_equal(context->floor, 0);
    told_close(context);
}

/* ---- without end ----------------------------------------------------------------------------------------------------- */

static void apply_itself(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                         int n_out)
{
    belay_function_apply(belay_function_context(call), state, state, in, n_in, 0, out, n_out);
}

static void a_function_that_applies_itself_ends_when_no_scope_is_left(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_function endless = {.name = "endless", .forward = apply_itself};
    belay_tensor x = told_f32(context, belay_shape1(1), (const float[]){2}), y;
    int line = __LINE__ + 1;
    belay_function_apply(context, &endless, &endless, &x, 1, 0, &y, 1);
    assert_true(belay_tensor_is_nil(y));
    told_expect("belay: 254 scopes are open: the most are 254 (life.scope)\n"
                "    called at: test_function.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_SCOPE));
    assert_int_equal(context->depth, 1);
    assert_int_equal(context->floor, 0);
    assert_true(context->recording);
    assert_int_equal(belay_close(context), 3);
}

static belay_tensor walked_from;
static void negate(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                   int n_out)
{
    (void)call, (void)state, (void)n_in, (void)n_out;
    out[0] = belay_neg(in[0]);
}
static void walk_back_again(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                            belay_tensor *grad_in, int n_in)
{
    (void)call, (void)state, (void)n_out, (void)n_in;
    belay_backward(walked_from);
    grad_in[0] = belay_neg(grad_out[0]);
}

static void a_backward_that_walks_back_from_its_own_result_is_a_fault(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const belay_function endless = {.name = "endless", .forward = negate, .backward = walk_back_again};
    belay_tensor x = told_leaf(context, belay_shape0(), (const float[]){2});
    int line = __LINE__ + 1;
    belay_function_apply(context, &endless, NULL, &x, 1, 0, &walked_from, 1);
    belay_backward(walked_from);
    told_expect("belay: backward was called on a tensor whose record is gone: a backward before has walked it, or its "
                "scope has closed (life.tape)\n"
                "    called at: test_function.c:%d\n" TOLD_START "%s",
                line, told_try(BELAY_LIFE_TAPE));
    assert_true(belay_tensor_item(belay_tensor_grad(x)) == -1);
    assert_int_equal(belay_close(context), 3);
}

/* What a function's free does besides: all that could pull the tape from under it. */
typedef struct meddler {
    belay_context *context;
    belay_tensor leaf, other;
    int n_freed;
} meddler;

static void meddle(void *state)
{
    meddler *m = state;
    m->n_freed++;
    belay_recording_set(m->context, true);
    belay_scope_close(foreign_scope);
    (void)belay_scope_open(m->context);
    belay_tensor y = belay_neg(m->leaf);
    belay_backward(belay_sum(y, NULL));
    belay_backward(m->other);
}

static void negate_back(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                        belay_tensor *grad_in, int n_in)
{
    (void)call, (void)state, (void)n_out, (void)n_in;
    grad_in[0] = belay_neg(grad_out[0]);
}

static void an_end_of_a_state_that_meddles_leaves_the_tape_whole(void **state)
{
    (void)state;
    const belay_function meddling = {.name = "meddling", .forward = negate, .backward = negate_back, .free = meddle};
    for (int way = 0; way < 3; way++) { /* freed by a backward, by a scope, by belay_close */
        belay_context *context = told_open();
        belay_tensor x = told_leaf(context, belay_shape1(2), (const float[]){2, 3}), y;
        foreign_scope = belay_scope_open(context);
        meddler m = {.context = context, .leaf = x, .other = belay_sum(belay_neg(x), NULL)};
        for (int i = 0; i < 3; i++)
            belay_function_apply(context, &meddling, &m, &x, 1, 0, &y, 1);
        belay_tensor sum = belay_sum(belay_add(y, belay_exp(x)), NULL);
        if (way == 0)
            belay_backward(sum);
        assert_int_equal(m.n_freed, way == 0 ? 1 : 0);
        if (way < 2) {
            told_clear();
            belay_scope_close(foreign_scope);
            assert_non_null(strstr(told(),
                                   "belay: a scope was closed by a function that was called inside of it and has "
                                   "not ended (life.scope)\n"));
            assert_int_equal(m.n_freed, 3);
            assert_int_equal(context->depth, 1);
            assert_true(context->recording);
        }
        assert_int_equal(belay_close(context), way < 2 ? 3 : 0);
        assert_int_equal(m.n_freed, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_users_op_has_its_own_gradient),
        cmocka_unit_test(a_result_may_be_written_over_its_input),
        cmocka_unit_test(state_is_freed_once_whatever_happens),
        cmocka_unit_test(state_is_freed_once_when_memory_ends),
        cmocka_unit_test(optional_inputs_may_be_nil),
        cmocka_unit_test(a_fault_inside_closes_the_gate_though_nothing_is_recorded_there),
        cmocka_unit_test(a_fault_in_backward_names_site_and_layer_of_the_forward),
        cmocka_unit_test(a_label_of_the_forward_is_told_by_backward),
        cmocka_unit_test(a_function_without_its_parts_is_refused),
        cmocka_unit_test(a_gradient_of_another_shape_or_dtype_is_refused),
        cmocka_unit_test(an_input_handed_out_as_result_stays_where_it_was),
        cmocka_unit_test(a_function_can_close_no_scope_around_it),
        cmocka_unit_test(an_end_of_a_state_that_meddles_leaves_the_tape_whole),
        cmocka_unit_test(one_application_inside_another_leaves_the_walk_as_it_was),
        cmocka_unit_test(a_function_that_applies_itself_ends_when_no_scope_is_left),
        cmocka_unit_test(a_backward_that_walks_back_from_its_own_result_is_a_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
