/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory under copies that nobody waits for, and device memory under a host that does not keep off. */
#include "support/seeds.h"
#include "support/told.h"

#include <stdlib.h>
#include <string.h>

#include <belay/devices.h>

#include "tensor/context.h"

enum { N = 512, BYTES = N * 4, SEEDS = 40 };

typedef struct lab {
    belay_context *context;
    belay_stream a, b;
    belay_tensor x;
    belay_host host; /* two tensors long */
    float *data;
} lab;

static void open_lab(lab *l, int64_t seed)
{
    *l = (lab){.context = seeds_open(seed, &(belay_options){.device = "sim:0"})};
    belay_site_push(l->context, "start");
    belay_recording_set(l->context, false);
    l->a = belay_stream_open(l->context, "a");
    l->b = belay_stream_open(l->context, "b");
    l->x = belay_tensor_name_set(belay_zeros(l->context, BELAY_F32, belay_shape1(N)), "x");
    l->host = belay_host_new(l->context, 2 * BYTES);
    l->data = belay_host_data(l->host);
    assert_int_equal(belay_host_n_bytes(l->host), 2 * BYTES);
    for (int i = 0; i < 2 * N; i++)
        l->data[i] = (float)i;
    assert_int_equal(belay_synchronise(l->context), BELAY_OK);
    (void)belay_stream_use(l->a);
}

static void here(lab *l, const char *label) { seeds_here(l->context, label); }

static void for_all_seeds(void (*test)(lab *l))
{
    for (int64_t seed = 0; seed < seeds_n(SEEDS); seed++) {
        lab l;
        open_lab(&l, seed);
        test(&l);
    }
}

static void and_with_threads(void (*test)(lab *l))
{
    for_all_seeds(test);
    for (int run = 0; run < 5; run++) {
        lab l;
        open_lab(&l, SEEDS_THREADS);
        test(&l);
    }
}

#define WHEN      "    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, rank 0\n"
#define TRY_HOST  "    try: Wait for the copy's event before the memory is touched again.\n"
#define TRY_ORDER "    try: Record an event behind the first use and let the other stream wait for it.\n"

/* ---- right ----------------------------------------------------------------------------------------------------------- */

static void go_round(lab *l)
{
    assert_int_equal(belay_tensor_write_later(l->x, l->host, BYTES, BYTES), BELAY_OK);
    belay_tensor y = belay_add(l->x, l->x);
    belay_event copied = belay_event_record(l->a);
    assert_int_equal(belay_tensor_read_later(y, l->host, 0, BYTES), BELAY_OK);
    assert_int_equal(belay_event_synchronise(copied), BELAY_OK);
    for (int i = N; i < 2 * N; i++)
        l->data[i] = -1; /* its copy has ended */
    assert_int_equal(belay_stream_synchronise(l->a), BELAY_OK);
    for (int i = 0; i < N; i++)
        assert_float_equal(l->data[i], 2.0f * (float)(N + i), 0);
    belay_host_free(l->host);
    told_close(l->context);
}

static void copies_run_in_their_stream(void **state)
{
    (void)state;
    and_with_threads(go_round);
}

static void cross_streams(lab *l)
{
    belay_tensor y = belay_zeros(l->context, BELAY_F32, belay_shape1(N));
    assert_int_equal(belay_tensor_write_later(l->x, l->host, BYTES, BYTES), BELAY_OK);
    assert_int_equal(belay_tensor_read_later(l->x, l->host, 0, BYTES), BELAY_OK);
    assert_int_equal(belay_stream_wait(l->b, belay_event_record(l->a)), BELAY_OK);
    (void)belay_stream_use(l->b);
    assert_int_equal(belay_tensor_write_later(y, l->host, 0, BYTES), BELAY_OK);
    float out[N];
    told_read(y, out, N);
    for (int i = 0; i < N; i++)
        assert_float_equal(out[i], (float)(N + i), 0);
    told_close(l->context);
}

static void memory_goes_from_stream_to_stream_behind_an_event(void **state)
{
    (void)state;
    and_with_threads(cross_streams);
}

static void pageable(lab *l)
{
    float values[N];
    for (int i = 0; i < N; i++)
        values[i] = 3;
    assert_int_equal(belay_tensor_write(l->x, values, sizeof values), BELAY_OK);
    memset(values, 0, sizeof values); /* the call has taken them */
    float out[N];
    told_read(l->x, out, N);
    assert_float_equal(out[N - 1], 3, 0);
    told_close(l->context);
}

static void memory_that_is_nobodys_is_the_callers_again_at_once(void **state)
{
    (void)state;
    and_with_threads(pageable);
}

/* ---- wrong ----------------------------------------------------------------------------------------------------------- */

static void change(lab *l)
{
    here(l, "the copy");
    assert_int_equal(belay_tensor_write_later(l->x, l->host, BYTES, BYTES), BELAY_OK);
    l->data[N + 100] = 7;
    here(l, "the wait");
    assert_int_equal(belay_stream_synchronise(l->a), BELAY_OK);
    told_expect(
        "belay: host memory of 4096 bytes was changed while its copy to x might still be reading it (life.host)\n"
        "    called at: the copy on stream a\n"
        "    surfaced at: the wait\n"
        "    copied: bytes [2048, 4096); first changed: of bytes [2304, 2560)\n" WHEN TRY_HOST);
    assert_int_equal(belay_synchronise(l->context), BELAY_OK);
    told_expect("%s", ""); /* once */
    assert_int_equal(belay_close(l->context), 3);
}

/* The second copy overwrites what the first has read. */
static void change_before_ours(lab *l)
{
    here(l, "the copy");
    assert_int_equal(belay_tensor_write_later(l->x, l->host, 0, BYTES), BELAY_OK);
    l->data[0] = 7;
    here(l, "the next");
    assert_int_equal(belay_tensor_read_later(l->x, l->host, 0, BYTES), BELAY_OK);
    told_expect(
        "belay: host memory of 4096 bytes was changed while its copy to x might still be reading it (life.host)\n"
        "    called at: the copy on stream a\n"
        "    surfaced at: the next\n"
        "    copied: bytes [0, 2048); first changed: of bytes [0, 256)\n" WHEN TRY_HOST);
    assert_int_equal(belay_synchronise(l->context), BELAY_OK);
    told_expect("%s", "");
    assert_int_equal(belay_close(l->context), 3);
}

static void a_change_is_found_before_our_own_hides_it(void **state)
{
    (void)state;
    for_all_seeds(change_before_ours);
}

static void a_change_under_a_copy_is_found(void **state)
{
    (void)state;
    for_all_seeds(change); /* with threads it would be a race of the test's own */
}

static void free_early(lab *l)
{
    here(l, "the copy");
    assert_int_equal(belay_tensor_write_later(l->x, l->host, 0, BYTES), BELAY_OK);
    here(l, "the release");
    belay_host_free(l->host);
    told_expect("belay: host memory of 4096 bytes was freed while its copy to x might still be reading it (life.host)\n"
                "    called at: the release on the default stream\n"
                "    copied at: the copy on stream a\n"
                "    copied: bytes [0, 2048); the memory stays until the copy has ended\n" WHEN TRY_HOST);
    float out[N];
    told_read(l->x, out, N);
    for (int i = 0; i < N; i++)
        assert_float_equal(out[i], (float)i, 0);
    assert_null(belay_host_data(l->host));
    told_expect("belay: host memory was used that has been freed (life.stale)\n"
                "    called at: the release\n" WHEN "%s",
                told_try(BELAY_LIFE_STALE));
    assert_int_equal(belay_close(l->context), 3);
}

static void memory_that_is_freed_under_a_copy_is_named_and_stays(void **state)
{
    (void)state;
    and_with_threads(free_early);
}

static void free_under_read(lab *l)
{
    here(l, "the copy");
    assert_int_equal(belay_tensor_read_later(l->x, l->host, 0, BYTES), BELAY_OK);
    here(l, "the release");
    belay_host_free(l->host);
    told_expect(
        "belay: host memory of 4096 bytes was freed while its copy from x might still be writing it (life.host)\n"
        "    called at: the release on the default stream\n"
        "    copied at: the copy on stream a\n"
        "    copied: bytes [0, 2048); the memory stays until the copy has ended\n" WHEN TRY_HOST);
    assert_int_equal(belay_close(l->context), 3);
}

static void memory_that_is_freed_under_a_copy_to_it_stays(void **state)
{
    (void)state;
    and_with_threads(free_under_read);
}

static void race(lab *l)
{
    belay_tensor y = belay_zeros(l->context, BELAY_F32, belay_shape1(N));
    assert_int_equal(belay_synchronise(l->context), BELAY_OK);
    here(l, "first");
    assert_int_equal(belay_tensor_read_later(l->x, l->host, 0, BYTES), BELAY_OK);
    (void)belay_stream_use(l->b);
    assert_int_equal(belay_tensor_write_later(y, l->host, BYTES, BYTES), BELAY_OK); /* other bytes */
    here(l, "second");
    assert_int_equal(belay_tensor_write_later(y, l->host, BYTES / 2, BYTES), BELAY_LIFE_STREAM);
    told_expect("belay: host memory of 4096 bytes would be read on stream b while stream a may still be writing it: "
                "nothing orders the two (life.stream)\n"
                "    called at: second on stream b\n"
                "    written at: first on stream a\n" WHEN TRY_ORDER);
    assert_int_equal(belay_close(l->context), 3);
}

static void two_copies_of_the_same_bytes_need_an_order(void **state)
{
    (void)state;
    and_with_threads(race);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    lab l;
    open_lab(&l, 1);
    here(&l, "here");
    assert_int_equal(belay_tensor_write_later(l.x, l.host, BYTES + 4, BYTES), BELAY_SIZE_EXTENT);
    told_expect("belay: 2048 bytes from offset 2052 on reach past host memory of 4096 bytes (size.extent)\n"
                "    called at: here\n" WHEN "%s",
                told_try(BELAY_SIZE_EXTENT));
    assert_int_equal(belay_tensor_read_later(l.x, l.host, -4, BYTES), BELAY_SIZE_EXTENT);
    assert_int_equal(belay_tensor_read_later(l.x, l.host, INT64_MAX, BYTES), BELAY_SIZE_EXTENT);
    told_clear();
    assert_int_equal(belay_tensor_write_later(l.x, l.host, 0, BYTES - 4), BELAY_SHAPE_CONTRACT);
    told_expect("belay: 2044 bytes were to be copied to a tensor of 2048 bytes (shape.contract)\n"
                "    called at: here\n" WHEN "%s",
                told_try(BELAY_SHAPE_CONTRACT));
    assert_true(belay_host_is_nil(belay_host_new(l.context, -1)));
    told_expect("belay: host memory of -1 bytes was asked for (conf.value)\n"
                "    called at: here\n" WHEN "%s",
                told_try(BELAY_CONF_VALUE));
    assert_int_equal(belay_close(l.context), 3);
}

static void on_cpu_a_copy_has_ended_when_its_call_returns(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape1(4));
    belay_host host = belay_host_new(context, 16);
    float *data = belay_host_data(host);
    data[3] = 5;
    assert_int_equal(belay_tensor_write_later(x, host, 0, 16), BELAY_OK);
    data[3] = 6;
    float out[4];
    told_read(x, out, 4);
    assert_float_equal(out[3], 5, 0);
    assert_int_equal(belay_tensor_read_later(x, host, 0, 16), BELAY_OK);
    assert_float_equal(data[3], 5, 0);
    belay_host_free(host);
    told_close(context);
}

/* ---- touches --------------------------------------------------------------------------------------------------------- */

__attribute__((noinline, no_sanitize("address", "undefined"))) static float touch(const volatile float *at)
{
    return *at;
}

static void a_touch_by_the_host_is_named_by_its_tensor(void **state)
{
    (void)state;
    lab l;
    open_lab(&l, 3);
    const float *device = bl_slot_get(l.context, l.x)->data;
    assert_true(touch(device + 2) != 0); /* NaN */
    here(&l, "the next call");
    belay_tensor y = belay_relu(l.x);
    told_expect("belay: the host read byte 8 of x (2048 bytes), in memory of sim:0 (place.host)\n"
                "    called at: the next call\n"
                "    made at: start, in step 0, 1 launch earlier\n" WHEN "%s",
                told_try(BELAY_PLACE_HOST));
    float out[N];
    told_read(y, out, N); /* and the run goes on */
    assert_float_equal(out[2], 0, 0);
    assert_int_equal(belay_close(l.context), 3);
}

static void a_touch_is_the_touched_contexts(void **state)
{
    (void)state;
    lab l, other;
    open_lab(&l, 3);
    open_lab(&other, 4);
    assert_true(touch(bl_slot_get(other.context, other.x)->data) != 0);
    assert_int_equal(belay_synchronise(l.context), BELAY_OK);
    assert_int_equal(belay_n_faults(l.context), 0);
    assert_int_equal(belay_synchronise(other.context), BELAY_OK);
    assert_int_equal(belay_n_faults(other.context), 1);
    assert_int_equal(belay_close(l.context), 0);
    assert_int_equal(belay_close(other.context), 3);
}

int main(void)
{
    setenv("BELAY_SIM_BYTES", "16777216", 1); /* quick to open */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_run_in_their_stream),
        cmocka_unit_test(memory_goes_from_stream_to_stream_behind_an_event),
        cmocka_unit_test(memory_that_is_nobodys_is_the_callers_again_at_once),
        cmocka_unit_test(a_change_under_a_copy_is_found),
        cmocka_unit_test(a_change_is_found_before_our_own_hides_it),
        cmocka_unit_test(memory_that_is_freed_under_a_copy_is_named_and_stays),
        cmocka_unit_test(memory_that_is_freed_under_a_copy_to_it_stays),
        cmocka_unit_test(two_copies_of_the_same_bytes_need_an_order),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(on_cpu_a_copy_has_ended_when_its_call_returns),
        cmocka_unit_test(a_touch_by_the_host_is_named_by_its_tensor),
        cmocka_unit_test(a_touch_is_the_touched_contexts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
