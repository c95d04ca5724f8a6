/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of faults, from the kernel that finds a bad index to the words. */
#include "support/told.h"

#include <stdio.h>
#include <string.h>

#include "launch/flight.h"

static bl_fault_ring *ring_of(belay_context *context) { return context->ring; }

/* A launch of embedding by hand: ids of i64, a table of n_rows rows of one value. */
static bl_launch lookup(belay_context *context, const int64_t *ids, int64_t n_ids, const float *table, int64_t n_rows,
                        float *out)
{
    const bl_signature *s = bl_signature_of(BL_OP_embedding);
    bl_launch l = {.op = BL_OP_embedding, .dtype = BELAY_F32, .n_operands = 3, .policy = BELAY_INDEX_RAISE};
    belay_shape shapes[3] = {belay_shape2(n_rows, 1), belay_shape1(n_ids), belay_shape2(n_ids, 1)};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < s->operand[k].n_axes; i++)
            l.dim[s->operand[k].axis[i]] = shapes[k].size[i];
    l.operand[0] = (bl_operand){.data = (void *)(uintptr_t)table, .dtype = BELAY_F32};
    l.operand[1] = (bl_operand){.data = (void *)(uintptr_t)ids, .dtype = BELAY_I64};
    l.operand[2] = (bl_operand){.data = out, .dtype = BELAY_F32};
    l.n_items = l.size[1] = n_ids;
    l.size[0] = l.size[2] = l.size[3] = 1;
    l.params.i[0] = -1;
    l.gates = true;
    l.ring = ring_of(context);
    return l;
}

static void launches_beyond_the_ring_are_counted(void **state)
{
    (void)state;
    enum { MORE = 7 };
    belay_context *context = told_open();
    bl_fault_ring *ring = ring_of(context);
    const int64_t ids[] = {5};
    const float table[] = {1, 2};
    float out[1];
    bl_launch l = lookup(context, ids, 1, table, 2, out);
    for (uint64_t serial = 1; serial <= BL_RING_FAULTS + MORE; serial++) {
        l.serial = serial;
        assert_int_equal(context->device->api->run(context->device, 0, &l), BELAY_OK);
    }
    assert_int_equal(ring->claimed, BL_RING_FULL);
    assert_int_equal(ring->dropped, MORE);
    assert_int_equal(ring->window[0].gate, BELAY_INDEX_RANGE);
    for (uint64_t i = 0; i < BL_RING_FAULTS; i++) {
        assert_int_equal(ring->record[i].published, i + 1);
        assert_int_equal(ring->record[i].launch, i + 1);
    }
    bl_call call = {.context = context, .op = BL_OP_embedding};
    bl_proof none = {.launch.serial = UINT64_MAX};
    bl_flight_tell_now(&call, &none);
    told_expect("belay: 7 more launches met bad indices than the ring of faults holds (index.range)\n" TOLD_START "%s",
                told_try(BELAY_INDEX_RANGE));
    assert_int_equal(ring->claimed, 0);
    assert_int_equal(ring->dropped, 0);
    l.serial = 1; /* the ring can be used again */
    assert_int_equal(context->device->api->run(context->device, 0, &l), BELAY_OK);
    assert_int_equal(ring->record[0].published, 1);
    bl_flight_tell_now(&call, &none);
    assert_int_equal(belay_close(context), 3);
}

static void a_record_tells_the_lowest_element_and_the_count(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const int64_t ids[] = {0, 1, -3, 0, 2, 9};
    const float table[] = {1, 2};
    float out[6];
    bl_launch l = lookup(context, ids, 6, table, 2, out);
    l.serial = 12;
    l.step = 3;
    l.site = 4;
    assert_int_equal(context->device->api->run(context->device, 0, &l), BELAY_OK);
    const bl_fault_record *r = &ring_of(context)->record[0];
    assert_int_equal(r->launch, 12);
    assert_int_equal(r->element, 2);
    assert_int_equal(r->got, -3);
    assert_int_equal(r->limit, 2);
    assert_int_equal(r->count, 3);
    assert_int_equal(r->step, 3);
    assert_int_equal(r->site, 4);
    assert_int_equal(r->code, BELAY_INDEX_RANGE);
    assert_int_equal(r->op, BL_OP_embedding);
    assert_int_equal(r->operand, 1);
    const float expected[] = {1, 2, 0, 1, 0, 0};
    assert_memory_equal(out, expected, sizeof out);
    assert_int_equal(belay_close(context), 0);
}

/* Many rows, so that several threads have a share; the bad ones lie in every share. */
static void the_lowest_element_does_not_depend_on_threads(void **state)
{
    (void)state;
    enum { N = 200000, WIDTH = 4 };
    static int64_t ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = i % 1000 == 777 ? 5 + i : i % 3;
    char first[4096] = "";
    for (int threads = 1; threads <= 4; threads++) {
        told_clear();
        belay_context *context =
            belay_open(&(belay_options){.log = told_remember, .no_journal = true, .threads = threads});
        belay_tensor table = belay_ones(context, BELAY_F32, belay_shape2(3, WIDTH));
        belay_tensor tokens = belay_tensor_from(context, BELAY_I64, belay_shape1(N), ids, sizeof ids);
        belay_site_push(context, "here");
        belay_embedding(table, tokens, NULL);
        belay_site_pop(context);
        if (threads == 1)
            told_expect("belay: ids[777] is 782, outside [0, 3) of weight (index.range)\n"
                        "    op: embedding, called at here\n"
                        "    tensors: weight [3, 4] f32; ids [200000] i64; on cpu\n"
                        "    bad: 200 of 200000 elements; values 782, 1782, 2782, 3782\n" TOLD_START
                        "    likely: well past the bound: ids of another vocabulary or table, or two inputs swapped\n"
                        "    try: Check that these ids were made for this table.\n");
        belay_fault fault;
        assert_true(belay_fault_first(context, &fault));
        assert_int_equal(fault.count, 200);
        assert_int_equal(fault.element, 777);
        if (threads == 1)
            snprintf(first, sizeof first, "%s", fault.text);
        assert_string_equal(fault.text, first);
        assert_int_equal(belay_close(context), 3);
    }
}

/* One call for all passes: a loop that the compiler unrolls has a site for each copy of its body. */
__attribute__((noinline)) static void look_up_corrected(belay_tensor table, belay_tensor tokens)
{
    float out[3];
    belay_tensor rows = belay_embedding(table, tokens, NULL);
    told_read(rows, out, 3);
    assert_memory_equal(out, ((const float[]){10, 20, 30}), sizeof out);
    belay_backward(belay_sum(rows, NULL));
}

static void policies_count_always_and_warn_once_a_site(void **state)
{
    (void)state;
    told_clear();
    belay_context *context =
        belay_open(&(belay_options){.log = told_remember, .no_journal = true, .index_policy = BELAY_INDEX_CLAMP});
    const int64_t ids[] = {-1, 1, 7};
    belay_tensor table = told_leaf(context, belay_shape2(3, 1), (const float[]){10, 20, 30});
    belay_tensor tokens = belay_tensor_from(context, BELAY_I64, belay_shape1(3), ids, sizeof ids);
    float out[3];
    for (int i = 0; i < 5; i++)
        look_up_corrected(table, tokens);
    assert_int_equal(belay_n_faults(context), 1);
    assert_int_equal(context->n_corrected, 10);
    assert_int_equal(ring_of(context)->window[0].gate, 0);
    assert_non_null(strstr(told(), "(index.clamped)\n"));
    told_clear();
    belay_embedding_options zero = {.policy = BELAY_INDEX_ZERO};
    told_read(belay_embedding(table, tokens, &zero), out, 3);
    assert_memory_equal(out, ((const float[]){0, 20, 0}), sizeof out);
    assert_non_null(strstr(told(), "(index.zeroed)\n"));
    assert_int_equal(belay_close(context), 0);
}

static void a_fault_while_recording_closes_the_gate_and_one_in_validation_does_not(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const int64_t ids[] = {9};
    belay_tensor table = belay_ones(context, BELAY_F32, belay_shape2(3, 1));
    belay_tensor tokens = belay_tensor_from(context, BELAY_I64, belay_shape1(1), ids, sizeof ids);
    belay_recording_set(context, false);
    belay_embedding(table, tokens, NULL);
    assert_int_equal(ring_of(context)->window[0].gate, 0);
    belay_recording_set(context, true);
    belay_embedding(table, tokens, NULL);
    assert_int_equal(ring_of(context)->window[0].gate, BELAY_INDEX_RANGE);
    assert_int_equal(belay_n_faults(context), 2);
    assert_int_equal(belay_close(context), 3);
}

static bool sample_of(void *state, int64_t row, char *out, size_t size)
{
    snprintf(out, size, "%s:%d", (const char *)state, (int)row + 2);
    return true;
}

static void the_sample_of_a_bad_row_is_named(void **state)
{
    (void)state;
    belay_context *context = told_open();
    const int64_t ids[] = {0, 1, 0, 9};
    belay_tensor table = belay_ones(context, BELAY_F32, belay_shape2(3, 1));
    belay_tensor tokens = belay_tensor_from(context, BELAY_I64, belay_shape2(2, 2), ids, sizeof ids);
    bl_context_batch_set(context, 2, sample_of, (void *)"train.tsv");
    belay_embedding(table, tokens, NULL);
    assert_non_null(strstr(told(), "    sample: train.tsv:3 (row 1 of the batch)\n"));
    told_clear();
    bl_context_batch_set(context, 5, sample_of, (void *)"train.tsv"); /* not this tensor's rows */
    belay_embedding(table, tokens, NULL);
    assert_null(strstr(told(), "sample:"));
    assert_int_equal(belay_close(context), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_beyond_the_ring_are_counted),
        cmocka_unit_test(a_record_tells_the_lowest_element_and_the_count),
        cmocka_unit_test(the_lowest_element_does_not_depend_on_threads),
        cmocka_unit_test(policies_count_always_and_warn_once_a_site),
        cmocka_unit_test(a_fault_while_recording_closes_the_gate_and_one_in_validation_does_not),
        cmocka_unit_test(the_sample_of_a_bad_row_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
