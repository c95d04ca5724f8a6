/* SPDX-License-Identifier: Apache-2.0 */
/* The software device's streams: order, waits, seeds, and what an illegal access leaves. */
#include "support/seeds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/sim/sim.h"

static bl_fault_ring ring;

static bl_device *open_sim(const char *name, bl_memory_mode memory)
{
    bl_device *device;
    bl_error error = {0};
    bl_device_options options = {.threads = 1, .memory = memory};
    if (bl_device_open(name, &options, &device, &error) != BELAY_OK)
        fail_msg("%s", error.what);
    return device;
}

static int stream_of(bl_device *device)
{
    int stream;
    assert_int_equal(device->api->stream_open(device, &stream), BELAY_OK);
    return stream;
}

static void set_seed(int64_t seed)
{
    seeds_set(seed);
    unsetenv("BELAY_SIM_DEVICES");
    setenv("BELAY_SIM_BYTES", "268435456", 1);
}

/* ---- commands that write down when they ran ---------------------------------------------------------------------------- */

enum { MOST_NOTES = 4096, MOST_LINES = 4 };

static pthread_mutex_t notes_lock = PTHREAD_MUTEX_INITIALIZER;
static int notes[MOST_NOTES], n_notes;
static int pool_of_numbers[MOST_NOTES];

static void note(void *state)
{
    pthread_mutex_lock(&notes_lock);
    notes[n_notes++] = *(const int *)state;
    pthread_mutex_unlock(&notes_lock);
}

/* Puts a command that notes `number`. */
static void put_note(bl_device *device, int stream, int number)
{
    pool_of_numbers[number] = number;
    assert_int_equal(bl_sim_call(device, stream, note, &pool_of_numbers[number], 0), BELAY_OK);
}

static int place_of(int number)
{
    for (int i = 0; i < n_notes; i++)
        if (notes[i] == number)
            return i;
    fail_msg("%d did not run", number);
    return -1;
}

/* Numbers with the same remainder are of one line and must have run in their order. */
static void check_lines(int lines, int n)
{
    int last[MOST_LINES] = {-1, -1, -1, -1};
    assert_int_equal(n_notes, n);
    for (int i = 0; i < n_notes; i++) {
        int line = notes[i] % lines;
        assert_true(notes[i] > last[line]);
        last[line] = notes[i];
    }
}

/* ---- order ----------------------------------------------------------------------------------------------------------- */

static void check_fifo(int64_t seed)
{
    set_seed(seed);
    n_notes = 0;
    bl_device *device = open_sim("sim:0", BL_MEMORY_POOL);
    int stream[3] = {0, stream_of(device), stream_of(device)};
    for (int i = 0; i < 300; i++)
        put_note(device, stream[i % 3], i);
    for (int i = 0; i < 3; i++)
        assert_int_equal(device->api->stream_put(device, stream[i]), 100);
    assert_int_equal(device->api->stream_synchronise(device, stream[1], 50), BELAY_OK);
    assert_true(device->api->stream_passed(device, stream[1]) >= 50);
    assert_int_equal(device->api->synchronise(device), BELAY_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(device->api->stream_passed(device, stream[i]), 100);
    check_lines(3, 300);
    bl_device_close(device);
}

static void commands_of_a_stream_run_in_their_order(void **state)
{
    (void)state;
    check_fifo(-1);
    for (int64_t seed = 0; seed < 20; seed++)
        check_fifo(seed);
}

/* A counter that four streams of two devices raise in turn, each behind the one before: without the waits it is a race. */
static void raise_counter(void *state) { ++*(int64_t *)state; }

static void check_waits(int64_t seed)
{
    set_seed(seed);
    int64_t counter = 0;
    bl_device *device[2] = {open_sim("sim:0", BL_MEMORY_POOL), open_sim("sim:1", BL_MEMORY_POOL)};
    int stream[4] = {0, 0, stream_of(device[0]), stream_of(device[1])};
    for (int i = 0; i < 200; i++) {
        int to = i * 7 % 4, from = i > 0 ? (i - 1) * 7 % 4 : to;
        bl_device *before = device[from % 2], *now = device[to % 2];
        uint64_t number = before->api->stream_put(before, stream[from]);
        assert_int_equal(now->api->stream_wait(now, stream[to], before, stream[from], number), BELAY_OK);
        assert_int_equal(bl_sim_call(now, stream[to], raise_counter, &counter, 0), BELAY_OK);
    }
    int last = 199 * 7 % 4;
    uint64_t number = device[last % 2]->api->stream_put(device[last % 2], stream[last]);
    assert_int_equal(device[last % 2]->api->stream_synchronise(device[last % 2], stream[last], number), BELAY_OK);
    assert_int_equal(counter, 200);
    bl_device_close(device[0]);
    bl_device_close(device[1]);
}

static void waits_order_streams_of_both_devices(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < 50; seed++)
        check_waits(seed);
}

/* Three streams of notes; one wait for each third one. */
static void run_program(int64_t seed, int *order)
{
    set_seed(seed);
    n_notes = 0;
    bl_device *device = open_sim("sim:0", BL_MEMORY_POOL);
    int stream[3] = {0, stream_of(device), stream_of(device)};
    for (int i = 0; i < 60; i++) {
        if (i % 9 == 4)
            assert_int_equal(device->api->stream_wait(device, stream[i % 3], device, stream[0],
                                                      device->api->stream_put(device, stream[0])),
                             BELAY_OK);
        put_note(device, stream[i % 3], i);
    }
    assert_int_equal(device->api->synchronise(device), BELAY_OK);
    check_lines(3, 60);
    for (int i = 0; i < 60; i++)
        if (i % 9 == 4) /* the last of stream 0 before it */
            assert_true(place_of(i / 3 * 3) < place_of(i));
    memcpy(order, notes, 60 * sizeof *order);
    bl_device_close(device);
}

static void seeds_give_other_orders_and_the_same_seed_the_same(void **state)
{
    (void)state;
    static int order[200][60];
    int again[60], n_other = 0;
    for (int seed = 0; seed < 200; seed++) {
        run_program(seed, order[seed]);
        bool is_new = true;
        for (int before = 0; before < seed; before++)
            is_new = is_new && memcmp(order[before], order[seed], sizeof order[seed]) != 0;
        n_other += is_new;
    }
    assert_true(n_other > 150);
    for (int seed = 0; seed < 200; seed += 7) {
        run_program(seed, again);
        assert_memory_equal(again, order[seed], sizeof again);
    }
}

static void a_poll_sees_the_end_in_every_mode(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < 30; seed++) {
        set_seed(seed);
        n_notes = 0;
        bl_device *one = open_sim("sim:0", BL_MEMORY_POOL), *two = open_sim("sim:1", BL_MEMORY_POOL);
        put_note(two, 0, 1);
        assert_int_equal(one->api->stream_wait(one, 0, two, 0, 1), BELAY_OK);
        put_note(one, 0, 2);
        while (one->api->stream_passed(one, 0) < 2)
            continue;
        assert_int_equal(place_of(2), 1);
        bl_device_close(one);
        bl_device_close(two);
    }
}

static void more_commands_than_a_stream_holds_are_waited_for(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < 2; seed++) {
        int64_t counter = 0;
        set_seed(seed);
        bl_device *device = open_sim("sim:0", BL_MEMORY_POOL);
        for (int i = 0; i < 5000; i++) {
            assert_int_equal(bl_sim_call(device, 0, raise_counter, &counter, 0), BELAY_OK);
            assert_true(device->api->stream_put(device, 0) - device->api->stream_passed(device, 0) <= 1024);
        }
        bl_device_close(device);
        assert_int_equal(counter, 5000);
    }
}

static void a_stream_is_opened_again_and_counts_on(void **state)
{
    (void)state;
    set_seed(SEEDS_THREADS);
    n_notes = 0;
    bl_device *device = open_sim("sim:0", BL_MEMORY_POOL);
    int stream[BL_MAX_DEVICE_STREAMS] = {0}, none = -1;
    for (int i = 1; i < BL_MAX_DEVICE_STREAMS; i++)
        stream[i] = stream_of(device);
    assert_int_equal(device->api->stream_open(device, &none), BELAY_SIZE_OVERFLOW);
    put_note(device, stream[3], 1);
    put_note(device, stream[3], 2);
    device->api->stream_close(device, stream[3]);
    assert_int_equal(n_notes, 2);
    assert_int_equal(device->api->stream_passed(device, stream[3]), 2);
    assert_int_equal(device->api->stream_wait(device, 0, device, stream[3], 2), BELAY_OK);
    assert_int_equal(stream_of(device), stream[3]);
    put_note(device, stream[3], 3);
    assert_int_equal(device->api->stream_put(device, stream[3]), 3);
    bl_device_close(device);
    assert_int_equal(n_notes, 3);
}

/* A command that waits outlives the device that it waits for. */
static void a_wait_for_a_closed_device_is_over(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < 10; seed++) {
        set_seed(seed);
        n_notes = 0;
        bl_device *one = open_sim("sim:0", BL_MEMORY_POOL), *two = open_sim("sim:1", BL_MEMORY_POOL);
        put_note(two, 0, 1);
        assert_int_equal(one->api->stream_wait(one, 0, two, 0, 1), BELAY_OK);
        put_note(one, 0, 2);
        bl_device_close(two);
        bl_device_close(one);
        check_lines(1, 2);
    }
}

/* ---- loss ------------------------------------------------------------------------------------------------------------ */

/* y = x + x over n elements. */
static bl_launch twice(float *y, float *x, int64_t n, uint64_t serial)
{
    bl_launch l = {.op = BL_OP_add,
                   .dtype = BELAY_F32,
                   .n_operands = 3,
                   .rank = 1,
                   .size = {n},
                   .n_items = n,
                   .work = n,
                   .ring = &ring,
                   .serial = serial};
    float *data[] = {y, x, x};
    for (int k = 0; k < 3; k++)
        l.operand[k] = (bl_operand){.data = data[k], .dtype = BELAY_F32, .stride = {1}};
    return l;
}

static void check_is_lost(bl_device *device, void *block)
{
    char bytes[8] = "none";
    int stream;
    bl_launch l = twice(block, block, 1, 99);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(device->api->run(device, 0, &l), BELAY_PLACE_LOST);
        assert_int_equal(device->api->copy_in(device, 0, block, bytes, 8), BELAY_PLACE_LOST);
        assert_int_equal(device->api->copy_out(device, 0, bytes, block, 8), BELAY_PLACE_LOST);
        assert_int_equal(device->api->copy_in_later(device, 0, block, bytes, 8), BELAY_PLACE_LOST);
        assert_int_equal(device->api->copy_out_later(device, 0, bytes, block, 8), BELAY_PLACE_LOST);
        assert_int_equal(device->api->stream_open(device, &stream), BELAY_PLACE_LOST);
        assert_int_equal(device->api->stream_wait(device, 0, device, 0, 0), BELAY_PLACE_LOST);
        assert_int_equal(device->api->stream_synchronise(device, 0, device->api->stream_put(device, 0)),
                         BELAY_PLACE_LOST);
        assert_int_equal(device->api->synchronise(device), BELAY_PLACE_LOST);
        assert_int_equal(bl_sim_call(device, 0, note, NULL, 0), BELAY_PLACE_LOST);
    }
    assert_string_equal(bytes, "none");
}

/* A gate that a command waits at until the host opens it: what is put meanwhile is queued. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_open;
} gate;

static void wait_at_gate(void *state)
{
    gate *g = state;
    pthread_mutex_lock(&g->lock);
    while (!g->is_open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void open_gate(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->is_open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

enum { PAGE = 4096, N = PAGE / 4 };

/* x has one page, y two: one element more reads past x; with x of two pages it would be a write past y. */
static void check_overrun(int64_t seed, bool is_write)
{
    set_seed(seed);
    n_notes = 0;
    gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, seed >= 0};
    bl_device *device = open_sim("sim:1", BL_MEMORY_EXACT);
    int64_t x_bytes = is_write ? 2 * PAGE : PAGE, y_bytes = is_write ? PAGE : 2 * PAGE;
    char *x = device->api->take(device, x_bytes), *y = device->api->take(device, y_bytes);
    bl_launch good = twice((float *)(void *)y, (float *)(void *)x, N, 20);
    bl_launch bad = twice((float *)(void *)y, (float *)(void *)x, N + 1, 21);
    bl_launch worse = twice((float *)(void *)(y + y_bytes), (float *)(void *)x, N, 22);
    if (seed < 0)
        assert_int_equal(bl_sim_call(device, 0, wait_at_gate, &g, 0), BELAY_OK);
    belay_code code = device->api->run(device, 0, &good);
    assert_int_equal(code, BELAY_OK);
    code = device->api->run(device, 0, &bad);
    assert_int_equal(code, BELAY_OK); /* what a launch does is learned later */
    if (seed < 0) {
        assert_int_equal(device->api->run(device, 0, &worse), BELAY_OK);
        put_note(device, 0, 5);
    }
    open_gate(&g);
    assert_int_equal(device->api->synchronise(device), BELAY_PLACE_LOST);
    const bl_access *loss = device->api->loss(device);
    assert_non_null(loss);
    assert_int_equal(loss->launch, 21);
    assert_int_equal(loss->address, (uintptr_t)(is_write ? y + y_bytes : x + x_bytes));
    assert_true(!loss->is_write_known || loss->is_write == is_write);
    assert_int_equal(n_notes, 0);
    assert_int_equal(device->api->stream_passed(device, 0), device->api->stream_put(device, 0));
    check_is_lost(device, y);
    assert_int_equal(device->api->loss(device)->launch, 21);
    device->api->give(device, x, x_bytes);
    device->api->give(device, y, y_bytes);
    bl_device_close(device);
}

static void an_overrun_loses_the_device_and_its_first_cause_is_kept(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < 20; seed++) {
        check_overrun(seed, false);
        check_overrun(seed, true);
    }
}

static void write_byte(void *state) { *(volatile char *)state = 1; }

/* A kernel of the user's own, which has the alias. */
static void check_byte(bl_memory_mode memory, int64_t n_bytes, int64_t offset)
{
    bl_device *device = open_sim("sim:0", memory);
    char *block = device->api->take(device, n_bytes);
    void *alias = bl_sim_arena_alias(&((bl_sim *)device)->arena, block);
    assert_int_equal(bl_sim_call(device, 0, write_byte, alias, 1), BELAY_OK);
    assert_int_equal(device->api->synchronise(device), BELAY_OK);
    assert_int_equal(bl_sim_call(device, 0, write_byte, (char *)alias + offset, 2), BELAY_OK);
    assert_int_equal(device->api->synchronise(device), BELAY_PLACE_LOST);
    assert_int_equal(device->api->loss(device)->launch, 2);
    assert_int_equal(device->api->loss(device)->address, (uintptr_t)(block + offset));
    device->api->give(device, block, n_bytes);
    bl_device_close(device);
}

static void the_byte_beside_an_exact_block_is_a_fault(void **state)
{
    (void)state;
    set_seed(SEEDS_THREADS);
    const int64_t sizes[] = {8, 4096, 100000, 1 << 20};
    for (int i = 0; i < BL_COUNT(sizes); i++) {
        check_byte(BL_MEMORY_EXACT, sizes[i], sizes[i]);
        check_byte(BL_MEMORY_EXACT, sizes[i], sizes[i] + 99);
        check_byte(BL_MEMORY_EXACT_LEFT, sizes[i], -1);
    }
}

static void a_block_that_was_given_back_is_a_fault(void **state)
{
    (void)state;
    set_seed(SEEDS_THREADS);
    bl_device *device = open_sim("sim:0", BL_MEMORY_EXACT);
    char *block = device->api->take(device, 64), out[64];
    device->api->give(device, block, 64);
    char *other = device->api->take(device, 64);
    assert_int_equal(device->api->copy_out(device, 0, out, block, 64), BELAY_PLACE_LOST);
    assert_int_equal(device->api->loss(device)->launch, 0);
    assert_int_equal(device->api->loss(device)->address, (uintptr_t)block);
    device->api->give(device, other, 64);
    bl_device_close(device);
}

/* The host's own, and another device's. */
static void an_operand_of_elsewhere_is_an_illegal_access(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < 2; seed++) {
        float here[4] = {1, 2, 3, 4};
        set_seed(seed);
        bl_device *one = open_sim("sim:0", BL_MEMORY_POOL), *two = open_sim("sim:1", BL_MEMORY_POOL);
        float *block = one->api->take(one, 16), *foreign = two->api->take(two, 16);
        float *elsewhere = seed < 0 ? here : foreign;
        bl_launch l = twice(block, elsewhere, 4, 3);
        assert_int_equal(one->api->run(one, 0, &l), BELAY_OK);
        assert_int_equal(one->api->synchronise(one), BELAY_PLACE_LOST);
        assert_int_equal(one->api->loss(one)->launch, 3);
        assert_int_equal(one->api->loss(one)->address, (uintptr_t)elsewhere);
        assert_int_equal(two->api->synchronise(two), BELAY_OK);
        one->api->give(one, block, 16);
        two->api->give(two, foreign, 16);
        bl_device_close(one);
        bl_device_close(two);
    }
}

static void a_copy_past_the_devices_memory_is_an_illegal_access(void **state)
{
    (void)state;
    set_seed(SEEDS_THREADS);
    char bytes[64] = "";
    bl_device *device = open_sim("sim:0", BL_MEMORY_POOL);
    char *end = ((bl_sim *)device)->arena.device + ((bl_sim *)device)->arena.n_bytes;
    assert_int_equal(device->api->copy_in_later(device, 0, end - 32, bytes, 64), BELAY_OK);
    assert_int_equal(device->api->synchronise(device), BELAY_PLACE_LOST);
    assert_int_equal(device->api->loss(device)->address, (uintptr_t)(end - 32));
    assert_true(device->api->loss(device)->is_write);
    bl_device_close(device);
}

/* The host takes what a stream waited for as ended when that stream has. */
static void a_lost_device_still_waits_for_another(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < 20; seed++) {
        set_seed(seed);
        n_notes = 0;
        bl_device *one = open_sim("sim:0", BL_MEMORY_POOL), *two = open_sim("sim:1", BL_MEMORY_POOL);
        gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, seed >= 0};
        assert_int_equal(bl_sim_call(two, 0, wait_at_gate, &g, 0), BELAY_OK);
        put_note(two, 0, 1);
        put_note(two, 0, 2);
        assert_int_equal(bl_sim_call(one, 0, write_byte, (void *)(uintptr_t)64, 4), BELAY_OK);
        belay_code code = one->api->stream_wait(one, 0, two, 0, 3);
        assert_true(code == BELAY_OK || code == BELAY_PLACE_LOST);
        open_gate(&g);
        assert_int_equal(one->api->synchronise(one), BELAY_PLACE_LOST);
        if (code == BELAY_OK)
            assert_int_equal(bl_sim_queue_n_passed(((bl_sim *)two)->queue[0]), 3);
        bl_device_close(one);
        bl_device_close(two);
    }
}

static void another_device_goes_on_when_one_is_lost(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < 20; seed++) {
        set_seed(seed);
        n_notes = 0;
        bl_device *one = open_sim("sim:0", BL_MEMORY_POOL), *two = open_sim("sim:1", BL_MEMORY_POOL);
        gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, seed >= 0};
        assert_int_equal(bl_sim_call(one, 0, wait_at_gate, &g, 0), BELAY_OK);
        assert_int_equal(bl_sim_call(one, 0, write_byte, (void *)(uintptr_t)64, 4), BELAY_OK);
        assert_int_equal(two->api->stream_wait(two, 0, one, 0, 2), BELAY_OK);
        put_note(two, 0, 1);
        open_gate(&g);
        assert_int_equal(two->api->synchronise(two), BELAY_OK);
        assert_int_equal(n_notes, 1);
        assert_int_equal(one->api->synchronise(one), BELAY_PLACE_LOST);
        assert_int_equal(one->api->loss(one)->launch, 4);
        assert_int_equal(one->api->loss(one)->address, 64);
        bl_device_close(one);
        bl_device_close(two);
    }
}

/* ---- words of the host ------------------------------------------------------------------------------------------------ */

/* A thread of the host that sets a word once it sees another, as one that takes turns with a device does. */
typedef struct partner {
    pthread_t thread;
    uint64_t ready, ended; /* ready: the device's count; ended: what the device holds for */
    uint64_t ready_at, ended_value;
    int note;
} partner;

static void *answer_once_ready(void *state)
{
    partner *p = state;
    while (__atomic_load_n(&p->ready, __ATOMIC_ACQUIRE) < p->ready_at)
        bl_sim_doze(0);
    note(&p->note);
    __atomic_store_n(&p->ended, p->ended_value, __ATOMIC_RELEASE);
    return NULL;
}

/* 0, 1 run before what the partner does (2), 3 and 4 after it; another stream goes on meanwhile. */
static void check_hold(int64_t seed)
{
    set_seed(seed);
    n_notes = 0;
    bl_device *device = open_sim("sim:0", BL_MEMORY_POOL);
    int side = stream_of(device), free_one = stream_of(device);
    partner p = {.ready_at = 2, .ended_value = 7, .note = 2};
    device->api->stream_show(device, side, &p.ready);
    put_note(device, side, 0);
    put_note(device, side, 1);
    assert_int_equal(device->api->stream_hold(device, side, &p.ended, 7), BELAY_OK);
    assert_int_equal(device->api->stream_put(device, side), 3);
    put_note(device, side, 3);
    assert_int_equal(device->api->stream_wait(device, 0, device, side, 4), BELAY_OK);
    put_note(device, 0, 4);
    put_note(device, free_one, 5);
    assert_int_equal(device->api->stream_synchronise(device, free_one, 1), BELAY_OK);
    assert_true(device->api->stream_passed(device, side) <= 2);
    assert_int_equal(pthread_create(&p.thread, NULL, answer_once_ready, &p), 0);
    assert_int_equal(device->api->stream_synchronise(device, 0, 2), BELAY_OK);
    assert_int_equal(device->api->stream_passed(device, side), 4);
    pthread_join(p.thread, NULL);
    assert_int_equal(n_notes, 6);
    for (int i = 1; i < 5; i++)
        assert_true(place_of(i - 1) < place_of(i));
    bl_device_close(device);
}

static void a_stream_holds_until_the_hosts_word_comes(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < seeds_n(100); seed++)
        check_hold(seed);
}

/* The partner waits for a stream that nobody else waits for. */
static void check_hold_beside(int64_t seed)
{
    set_seed(seed);
    n_notes = 0;
    bl_device *device = open_sim("sim:0", BL_MEMORY_POOL);
    int other = stream_of(device);
    partner p = {.ready_at = 1, .ended_value = 1, .note = 1};
    device->api->stream_show(device, other, &p.ready);
    assert_int_equal(pthread_create(&p.thread, NULL, answer_once_ready, &p), 0);
    assert_int_equal(device->api->stream_hold(device, 0, &p.ended, 1), BELAY_OK);
    put_note(device, 0, 2);
    put_note(device, other, 0);
    assert_int_equal(device->api->stream_synchronise(device, 0, 2), BELAY_OK);
    pthread_join(p.thread, NULL);
    check_lines(1, 3);
    bl_device_close(device);
}

static void other_streams_go_on_while_one_holds(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < seeds_n(100); seed++)
        check_hold_beside(seed);
}

static void a_word_that_has_come_holds_nothing(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < 20; seed++) {
        uint64_t word = 9;
        set_seed(seed);
        n_notes = 0;
        bl_device *device = open_sim("sim:1", BL_MEMORY_POOL);
        for (int i = 0; i < 20; i += 2) {
            put_note(device, 0, i);
            assert_int_equal(device->api->stream_hold(device, 0, &word, (uint64_t)i / 2), BELAY_OK);
            put_note(device, 0, i + 1);
        }
        assert_int_equal(device->api->synchronise(device), BELAY_OK);
        check_lines(1, 20);
        bl_device_close(device);
    }
}

static void a_device_that_closes_waits_for_no_word(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < 20; seed++) {
        uint64_t word = 0;
        set_seed(seed);
        n_notes = 0;
        bl_device *device = open_sim("sim:0", BL_MEMORY_POOL);
        int side = stream_of(device);
        assert_int_equal(device->api->stream_hold(device, side, &word, 1), BELAY_OK);
        put_note(device, side, 0);
        assert_int_equal(device->api->stream_wait(device, 0, device, side, 2), BELAY_OK);
        put_note(device, 0, 1);
        bl_device_close(device);
        check_lines(1, 2);
    }
}

/* One stream holds for a word that never comes; another one's kernel loses the device. */
static void a_lost_device_drops_its_holds(void **state)
{
    (void)state;
    for (int64_t seed = -1; seed < 20; seed++) {
        uint64_t word = 0;
        set_seed(seed);
        n_notes = 0;
        bl_device *device = open_sim("sim:0", BL_MEMORY_POOL);
        int side = stream_of(device);
        assert_int_equal(device->api->stream_hold(device, side, &word, 1), BELAY_OK);
        put_note(device, side, 0);
        assert_int_equal(bl_sim_call(device, 0, write_byte, (void *)(uintptr_t)64, 4), BELAY_OK);
        assert_int_equal(device->api->stream_synchronise(device, side, 2), BELAY_PLACE_LOST);
        assert_int_equal(device->api->stream_passed(device, side), 2);
        assert_int_equal(device->api->stream_hold(device, side, &word, 1), BELAY_PLACE_LOST);
        assert_int_equal(n_notes, 0);
        bl_device_close(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_of_a_stream_run_in_their_order),
        cmocka_unit_test(waits_order_streams_of_both_devices),
        cmocka_unit_test(seeds_give_other_orders_and_the_same_seed_the_same),
        cmocka_unit_test(a_poll_sees_the_end_in_every_mode),
        cmocka_unit_test(more_commands_than_a_stream_holds_are_waited_for),
        cmocka_unit_test(a_stream_is_opened_again_and_counts_on),
        cmocka_unit_test(a_wait_for_a_closed_device_is_over),
        cmocka_unit_test(an_overrun_loses_the_device_and_its_first_cause_is_kept),
        cmocka_unit_test(the_byte_beside_an_exact_block_is_a_fault),
        cmocka_unit_test(a_block_that_was_given_back_is_a_fault),
        cmocka_unit_test(an_operand_of_elsewhere_is_an_illegal_access),
        cmocka_unit_test(a_copy_past_the_devices_memory_is_an_illegal_access),
        cmocka_unit_test(a_lost_device_still_waits_for_another),
        cmocka_unit_test(another_device_goes_on_when_one_is_lost),
        cmocka_unit_test(a_stream_holds_until_the_hosts_word_comes),
        cmocka_unit_test(other_streams_go_on_while_one_holds),
        cmocka_unit_test(a_word_that_has_come_holds_nothing),
        cmocka_unit_test(a_device_that_closes_waits_for_no_word),
        cmocka_unit_test(a_lost_device_drops_its_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
