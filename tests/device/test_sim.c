/* SPDX-License-Identifier: Apache-2.0 */
/* The software device: its memory, its copies, what it reads of the environment. */
#define _GNU_SOURCE /* process_vm_readv */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "device/sim/sim.h"
#include "device/trap.h"

static bl_fault_ring ring;

static bl_device *open_named(const char *name)
{
    bl_device *device;
    bl_error error = {0};
    bl_device_options options = {.threads = 1};
    if (bl_device_open(name, &options, &device, &error) != BELAY_OK)
        fail_msg("%s", error.what);
    return device;
}

static bl_error refusal(const char *name)
{
    bl_device *device;
    bl_error error = {0};
    bl_device_options options = {.threads = 1};
    belay_code code = bl_device_open(name, &options, &device, &error);
    assert_int_equal(code, error.code);
    assert_null(device);
    return error;
}

static int clear_environment(void **state)
{
    (void)state;
    unsetenv("BELAY_SIM_DEVICES");
    unsetenv("BELAY_SIM_BYTES");
    unsetenv("BELAY_SIM_SEED");
    return 0;
}

/* ---- addresses and copies -------------------------------------------------------------------------------------------- */

static void addresses_cannot_be_read_by_the_host(void **state)
{
    (void)state;
    bl_device *device = open_named("sim:0");
    void *block = device->api->take(device, 4096);
    char bytes[64] = "some";
    assert_int_equal(device->api->copy_in(device, 0, block, bytes, sizeof bytes), BELAY_OK);
    assert_int_equal(device->api->synchronise(device), BELAY_OK);
    struct iovec here = {bytes, sizeof bytes}, there = {block, sizeof bytes};
    assert_int_equal(process_vm_readv(getpid(), &here, 1, &there, 1, 0), -1);
    assert_int_equal(errno, EFAULT);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], block, 1), -1);
    assert_int_equal(errno, EFAULT);
    close(ends[0]);
    close(ends[1]);
    device->api->give(device, block, 4096);
    bl_device_close(device);
}

static void a_touch_by_the_host_returns_and_is_noted(void **state)
{
    (void)state;
    bl_trap_touch touch;
    bl_device *device = open_named("sim:0");
    unsigned char *block = device->api->take(device, 64), byte = 9;
    assert_int_equal(device->api->copy_in(device, 0, block, &byte, 1), BELAY_OK);
    assert_int_not_equal(((volatile unsigned char *)block)[3], 0);
    assert_true(bl_trap_take(((bl_sim *)device)->arena.device, &touch));
    assert_int_equal(touch.address, (uintptr_t)block + 3);
    assert_int_equal(device->api->copy_out(device, 0, &byte, block, 1), BELAY_OK);
    assert_int_equal(byte, 9);
    device->api->give(device, block, 64);
    bl_device_close(device);
}

static void a_forked_child_may_close_a_device(void **state)
{
    (void)state;
    bl_device *device = open_named("sim:0");
    pid_t child = fork();
    if (child == 0) {
        bl_device_close(device);
        _exit(7);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    bl_device_close(device);
}

static void fill(unsigned char *bytes, int64_t n, unsigned key)
{
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)((uint64_t)i * 31 + key);
}

/* Both ways in, both ways out, at sizes with and without a copy of ours. */
static void check_copies(bl_device *device, int64_t n)
{
    unsigned char *in = malloc((size_t)n + 1), *out = calloc(1, (size_t)n + 1), *expected = malloc((size_t)n + 1);
    void *block = device->api->take(device, n);
    for (unsigned way = 0; way < 4; way++) {
        fill(in, n, way);
        fill(expected, n, way);
        assert_int_equal((way & 1 ? device->api->copy_in_later : device->api->copy_in)(device, 0, block, in, n),
                         BELAY_OK);
        if ((way & 1) == 0)
            memset(in, 0xEE, (size_t)n);
        assert_int_equal((way & 2 ? device->api->copy_out_later : device->api->copy_out)(device, 0, out, block, n),
                         BELAY_OK);
        if (way & 2)
            assert_int_equal(device->api->stream_synchronise(device, 0, device->api->stream_put(device, 0)), BELAY_OK);
        assert_memory_equal(out, expected, n);
    }
    device->api->give(device, block, n);
    free(in);
    free(out);
    free(expected);
}

static void what_is_copied_in_comes_out(void **state)
{
    (void)state;
    const int64_t sizes[] = {0, 1, 63, 4096, 65536, 65537, 300000, 5 << 20};
    for (int seeded = 0; seeded < 2; seeded++) {
        if (seeded)
            setenv("BELAY_SIM_SEED", "11", 1);
        bl_device *device = open_named("sim:1");
        for (int i = 0; i < BL_COUNT(sizes); i++)
            check_copies(device, sizes[i]);
        bl_device_close(device);
    }
}

static void copies_of_a_stream_keep_their_order(void **state)
{
    (void)state;
    bl_device *device = open_named("sim:0");
    int64_t *block = device->api->take(device, 8), out[500], in[500];
    for (int64_t i = 0; i < 500; i++) {
        in[i] = i;
        assert_int_equal((i % 3 == 0 ? device->api->copy_in : device->api->copy_in_later)(device, 0, block, &in[i], 8),
                         BELAY_OK);
        assert_int_equal(device->api->copy_out_later(device, 0, &out[i], block, 8), BELAY_OK);
    }
    assert_int_equal(device->api->stream_put(device, 0), 1000);
    assert_int_equal(device->api->synchronise(device), BELAY_OK);
    assert_int_equal(device->api->stream_passed(device, 0), 1000);
    assert_memory_equal(out, in, sizeof in);
    device->api->give(device, block, 8);
    bl_device_close(device);
}

/* ---- launches -------------------------------------------------------------------------------------------------------- */

static bl_launch sum_of(float *y, float *a, float *b, int64_t n)
{
    bl_launch l = {.op = BL_OP_add,
                   .dtype = BELAY_F32,
                   .n_operands = 3,
                   .rank = 1,
                   .size = {n},
                   .n_items = n,
                   .work = n,
                   .ring = &ring,
                   .serial = 7};
    float *data[] = {y, a, b};
    for (int k = 0; k < 3; k++)
        l.operand[k] = (bl_operand){.data = data[k], .dtype = BELAY_F32, .stride = {1}};
    return l;
}

static void a_launch_computes_on_the_devices_memory(void **state)
{
    (void)state;
    enum { N = 1000 };
    bl_device *device = open_named("sim:0");
    float *a = device->api->take(device, N * 4), *b = device->api->take(device, N * 4), host[N], twice[N];
    for (int i = 0; i < N; i++)
        host[i] = (float)i;
    assert_int_equal(device->api->copy_in(device, 0, a, host, N * 4), BELAY_OK);
    bl_launch l = sum_of(b, a, a, N);
    assert_int_equal(device->api->run(device, 0, &l), BELAY_OK);
    assert_int_equal(device->api->copy_out(device, 0, twice, b, N * 4), BELAY_OK);
    for (int i = 0; i < N; i++)
        assert_true(twice[i] == 2 * host[i]);
    l.dtype = BELAY_BOOL; /* no column of it */
    assert_int_equal(device->api->run(device, 0, &l), BELAY_TYPE_DTYPE);
    assert_int_equal(device->api->stream_put(device, 0), 3);
    assert_null(device->api->loss(device));
    device->api->give(device, a, N * 4);
    device->api->give(device, b, N * 4);
    bl_device_close(device);
}

/* y[n] = weight[ids[n]], and what is added to weight by it. */
static bl_launch row_launch(int op, void *first, void *ids, void *last, int64_t n)
{
    const int64_t width = 2, rows = 3;
    bl_launch l = {.op = op, .dtype = BELAY_F32, .n_operands = 3, .n_items = n, .work = n, .ring = &ring, .serial = 12};
    void *data[] = {first, ids, last};
    const bool is_forward = op == BL_OP_embedding;
    const int64_t forward[] = {rows, width, n}, backward[] = {n, width, rows};
    const int64_t taken[] = {1, n, 1, width}, sorted[] = {n, rows, width, 0};
    memcpy(l.dim, is_forward ? forward : backward, sizeof forward);
    memcpy(l.size, is_forward ? taken : sorted, sizeof taken);
    for (int k = 0; k < 3; k++)
        l.operand[k] = (bl_operand){.data = data[k], .dtype = k == 1 ? BELAY_I64 : BELAY_F32};
    return l;
}

static void a_bad_index_is_published_in_the_launchs_ring(void **state)
{
    (void)state;
    bl_device *device = open_named("sim:0");
    float *weight = device->api->take(device, 24), *y = device->api->take(device, 16), out[4];
    int64_t *ids = device->api->take(device, 16);
    assert_int_equal(device->api->copy_in(device, 0, weight, (float[]){1, 2, 3, 4, 5, 6}, 24), BELAY_OK);
    assert_int_equal(device->api->copy_in(device, 0, ids, (int64_t[]){3, 2}, 16), BELAY_OK);
    bl_launch l = row_launch(BL_OP_embedding, weight, ids, y, 2);
    ring = (bl_fault_ring){0};
    assert_int_equal(device->api->run(device, 0, &l), BELAY_OK);
    assert_int_equal(device->api->copy_out(device, 0, out, y, 16), BELAY_OK);
    assert_memory_equal(out, ((float[]){0, 0, 5, 6}), 16);
    assert_int_equal(ring.claimed, 1);
    assert_int_equal(ring.record[0].launch, 12);
    assert_int_equal(ring.record[0].code, BELAY_INDEX_RANGE);
    assert_int_equal(ring.record[0].got, 3);
    assert_null(device->api->loss(device));
    device->api->give(device, weight, 24);
    device->api->give(device, y, 16);
    device->api->give(device, ids, 16);
    bl_device_close(device);
}

/* Sums by index work in memory of the host. */
static void a_kernel_without_memory_closes_its_gate_and_is_told_once(void **state)
{
    (void)state;
    setenv("BELAY_SIM_SEED", "3", 1);
    bl_device *device = open_named("sim:0");
    float *g = device->api->take(device, 16), *weight = device->api->take(device, 24);
    int64_t *ids = device->api->take(device, 16);
    assert_int_equal(device->api->copy_in(device, 0, ids, (int64_t[]){1, 2}, 16), BELAY_OK);
    assert_int_equal(device->api->synchronise(device), BELAY_OK);
    bl_launch l = row_launch(BL_OP_embedding_grad, g, ids, weight, 2);
    l.gates = true;
    ring = (bl_fault_ring){0};
    bl_memory_fail_at(1); /* after the command's own */
    assert_int_equal(device->api->run(device, 0, &l), BELAY_OK);
    assert_int_equal(device->api->synchronise(device), BELAY_MEM_EXHAUSTED);
    bl_memory_fail_at(-1);
    assert_int_equal(ring.window[0].gate, BELAY_MEM_EXHAUSTED);
    assert_int_equal(device->api->synchronise(device), BELAY_OK);
    device->api->give(device, g, 16);
    device->api->give(device, weight, 24);
    device->api->give(device, ids, 16);
    bl_device_close(device);
}

/* The sanitizer's look for leaks is the second half of this test. */
static void a_kernel_that_is_ended_leaves_no_memory_behind(void **state)
{
    (void)state;
    bl_device *device;
    bl_device_options options = {.threads = 1, .memory = BL_MEMORY_EXACT};
    assert_int_equal(bl_device_open("sim:0", &options, &device, NULL), BELAY_OK);
    float *g = device->api->take(device, 8192), *weight = device->api->take(device, 24);
    int64_t *ids = device->api->take(device, 4096);
    bl_launch l = row_launch(BL_OP_embedding_grad, g, ids, weight, 513);
    assert_int_equal(device->api->run(device, 0, &l), BELAY_OK);
    assert_int_equal(device->api->synchronise(device), BELAY_PLACE_LOST);
    assert_int_equal(device->api->loss(device)->address, (uintptr_t)ids + 4096);
    device->api->give(device, g, 8192);
    device->api->give(device, weight, 24);
    device->api->give(device, ids, 4096);
    bl_device_close(device);
}

static void a_matrix_product_runs_on_one_thread(void **state)
{
    (void)state;
    enum { SIDE = 70 };
    const int64_t n_bytes = (int64_t)SIDE * SIDE * 4;
    bl_device *device = open_named("sim:0");
    float *a = device->api->take(device, n_bytes), *y = device->api->take(device, n_bytes), host[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++)
        host[i] = i / SIDE == i % SIDE ? 3 : 0;
    assert_int_equal(device->api->copy_in(device, 0, a, host, n_bytes), BELAY_OK);
    bl_launch l = {
        .op = BL_OP_matmul, .dtype = BELAY_F32, .n_operands = 3, .size = {1, SIDE, SIDE, SIDE}, .ring = &ring};
    float *data[] = {a, a, y};
    for (int k = 0; k < 3; k++)
        l.operand[k] = (bl_operand){.data = data[k], .dtype = BELAY_F32};
    assert_int_equal(device->api->run(device, 0, &l), BELAY_OK);
    assert_int_equal(device->api->copy_out(device, 0, host, y, n_bytes), BELAY_OK);
    for (int i = 0; i < SIDE * SIDE; i++)
        assert_true(host[i] == (i / SIDE == i % SIDE ? 9 : 0));
    device->api->give(device, a, n_bytes);
    device->api->give(device, y, n_bytes);
    bl_device_close(device);
}

/* ---- the environment ------------------------------------------------------------------------------------------------- */

static void an_ordinal_past_the_last_is_absent(void **state)
{
    (void)state;
    bl_error error = refusal("sim:2");
    assert_int_equal(error.code, BELAY_PLACE_ABSENT);
    assert_string_equal(error.what, "device sim:2 does not exist; software devices: 2");
    assert_string_equal(error.facts, "BELAY_SIM_DEVICES sets how many there are: 2 if it is not set, at most 16\n");
    const bl_device_api *sim = bl_device_kind(1);
    assert_string_equal(sim->kind, "sim");
    assert_int_equal(sim->count(), 2);
    setenv("BELAY_SIM_DEVICES", "3", 1);
    bl_device_close(open_named("sim:2"));
    assert_int_equal(sim->count(), 3);
    setenv("BELAY_SIM_DEVICES", "0", 1);
    assert_int_equal(sim->count(), 0);
    assert_string_equal(refusal("sim:0").what, "device sim:0 does not exist; software devices: 0");
}

static void settings_that_are_no_number_are_refused(void **state)
{
    (void)state;
    const char *const cases[][4] = {
        {"BELAY_SIM_DEVICES", "17", "0", "16"},
        {"BELAY_SIM_DEVICES", "two", "0", "16"},
        {"BELAY_SIM_DEVICES", "-1", "0", "16"},
        {"BELAY_SIM_BYTES", "1G", "16777216", "8796093022208"},
        {"BELAY_SIM_BYTES", "4096", "16777216", "8796093022208"},
        {"BELAY_SIM_SEED", "18446744073709551616", "0", "18446744073709551614"},
        {"BELAY_SIM_SEED", " 1", "0", "18446744073709551614"},
    };
    for (int i = 0; i < BL_COUNT(cases); i++) {
        char expected[256];
        clear_environment(NULL);
        setenv(cases[i][0], cases[i][1], 1);
        bl_error error = refusal("sim:0");
        snprintf(expected, sizeof expected, "%s is \"%s\"; it may be %s to %s", cases[i][0], cases[i][1], cases[i][2],
                 cases[i][3]);
        assert_int_equal(error.code, BELAY_CONF_VALUE);
        assert_string_equal(error.what, expected);
    }
    clear_environment(NULL);
    setenv("BELAY_SIM_DEVICES", "many", 1);
    assert_int_equal(bl_device_kind(1)->count(), 0);
}

static int64_t mapped_bytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld", &pages), 1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void a_bounded_address_space_gives_less_or_a_named_error(void **state)
{
    (void)state;
    bl_device_close(open_named("sim:0"));
    struct rlimit before, bounded;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    bounded = before;
    bounded.rlim_cur = (rlim_t)mapped_bytes() + ((rlim_t)1 << 30);
    assert_int_equal(setrlimit(RLIMIT_AS, &bounded), 0);
    bl_device *device = open_named("sim:0");
    int64_t got = ((bl_sim *)device)->arena.n_bytes;
    bl_device_close(device);
    setenv("BELAY_SIM_BYTES", "8589934592", 1);
    bl_error error = refusal("sim:0");
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_in_range(got, 16 << 20, 256 << 20);
    assert_int_equal(error.code, BELAY_MEM_EXHAUSTED);
    assert_string_equal(error.what, "no address space for device sim:0: 2 x 8192 MiB");
    assert_string_equal(error.facts, "system: Cannot allocate memory\n");
    assert_string_equal(error.advice, "Raise the limit (ulimit -v), or set BELAY_SIM_BYTES to less.");
}

static void a_bounded_file_size_is_no_signal(void **state)
{
    (void)state;
    struct rlimit before, bounded;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    bounded = before;
    bounded.rlim_cur = 100 << 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &bounded), 0);
    bl_device *device = open_named("sim:0");
    int64_t got = ((bl_sim *)device)->arena.n_bytes;
    bl_device_close(device);
    setenv("BELAY_SIM_BYTES", "8589934592", 1);
    bl_error error = refusal("sim:0");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(got, 100 << 20);
    assert_string_equal(error.what, "no file for the memory of device sim:0: 8192 MiB");
    assert_string_equal(error.facts, "system: File too large\n");
    assert_string_equal(error.advice, "Raise the limit on a file's size (ulimit -f), or set BELAY_SIM_BYTES to less.");
}

static void a_process_without_files_is_told_so(void **state)
{
    (void)state;
    bl_device_close(open_named("sim:0"));
    struct rlimit before, bounded;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    bounded = before;
    bounded.rlim_cur = 0;
    setenv("BELAY_SIM_BYTES", "16777216", 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &bounded), 0);
    bl_error error = refusal("sim:0");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_string_equal(error.what, "no file for the memory of device sim:0: 16 MiB");
    assert_string_equal(error.facts, "system: Too many open files\n");
    assert_string_equal(error.advice, "Raise the limit on open files (ulimit -n), or close files that are done.");
}

static void opening_without_memory_is_named_each_time(void **state)
{
    (void)state;
    bl_device_close(open_named("sim:0"));
    for (int64_t n = 0;; n++) {
        bl_device *device;
        bl_error error = {0};
        bl_device_options options = {.threads = 1};
        bl_memory_fail_at(n);
        belay_code code = bl_device_open("sim:0", &options, &device, &error);
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (!failed) {
            assert_int_equal(code, BELAY_OK);
            bl_device_close(device);
            return;
        }
        assert_int_equal(code, BELAY_MEM_EXHAUSTED);
        assert_null(device);
        assert_true(strstr(error.what, "sim:0") != NULL);
    }
}

/* ---- nothing is left ------------------------------------------------------------------------------------------------- */

/* Mappings of software devices, and mappings of a gigabyte and more. */
static void count_mappings(int *ours, int *large)
{
    char line[512];
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    *ours = *large = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long begin, end;
        assert_int_equal(sscanf(line, "%lx-%lx", &begin, &end), 2);
        *ours += strstr(line, "belay-sim") != NULL;
        *large += end - begin >= 1ul << 30;
    }
    fclose(file);
}

static int count_files(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

static void more_devices_than_the_trap_watches_are_refused(void **state)
{
    (void)state;
    bl_device *device[BL_TRAP_RANGES];
    setenv("BELAY_SIM_BYTES", "16777216", 1);
    for (int i = 0; i < BL_TRAP_RANGES; i++)
        device[i] = open_named("sim:0");
    bl_error error = refusal("sim:1");
    for (int i = 0; i < BL_TRAP_RANGES; i++)
        bl_device_close(device[i]);
    assert_int_equal(error.code, BELAY_MEM_EXHAUSTED);
    assert_string_equal(error.what, "no place for device sim:1: this process has 64 software devices open");
    assert_string_equal(error.advice, "Close the contexts that are done: each has software devices of its own.");
}

static void devices_that_were_closed_leave_nothing_mapped(void **state)
{
    (void)state;
    int ours, large, large_before, files = count_files();
    setenv("BELAY_SIM_BYTES", "4294967296", 1);
    bl_device_close(open_named("sim:0"));
    count_mappings(&ours, &large_before);
    for (int i = 0; i < 60; i++) {
        int stream;
        bl_device *a = open_named("sim:0"), *b = open_named("sim:1");
        void *block = a->api->take(a, 3 << 20);
        assert_int_equal(b->api->stream_open(b, &stream), BELAY_OK);
        count_mappings(&ours, &large);
        assert_true(ours >= 2);
        a->api->give(a, block, 3 << 20);
        bl_device_close(a);
        bl_device_close(b);
    }
    count_mappings(&ours, &large);
    assert_int_equal(ours, 0);
    assert_int_equal(large, large_before);
    assert_int_equal(count_files(), files);
}

/* ---- the arena ------------------------------------------------------------------------------------------------------- */

enum { ARENA = 256 << 20 };

static bl_sim_arena open_arena(void)
{
    bl_sim_arena arena;
    assert_int_equal(bl_sim_arena_open(&arena, ARENA, true, "sim:0", NULL), BELAY_OK);
    return arena;
}

static void neighbours_in_the_arena_are_one_mapping(void **state)
{
    (void)state;
    int ours, large;
    void *block[100];
    bl_sim_arena arena = open_arena();
    bl_memory_source source = bl_sim_arena_source(&arena);
    for (int i = 0; i < 100; i++) {
        block[i] = source.take(&arena, i % 2 ? 300000 : 2000000);
        assert_non_null(block[i]);
        assert_int_equal((uintptr_t)block[i] % 64, 0);
    }
    count_mappings(&ours, &large);
    assert_in_range(ours, 1, 3);
    for (int i = 0; i < 100; i++)
        source.give(&arena, block[i], i % 2 ? 300000 : 2000000);
    assert_int_equal(arena.pages.n, 1);
    bl_sim_arena_close(&arena);
}

static void memory_given_back_is_zero_when_it_comes_again(void **state)
{
    (void)state;
    bl_sim_arena arena = open_arena();
    bl_memory_source source = bl_sim_arena_source(&arena);
    char *block = source.take(&arena, 1 << 20);
    memset(source.host(&arena, block), 1, 1 << 20);
    source.give(&arena, block, 1 << 20);
    assert_ptr_equal(source.take(&arena, 1 << 20), block);
    const char *bytes = source.host(&arena, block);
    for (int i = 0; i < 1 << 20; i++)
        assert_int_equal(bytes[i], 0);
    source.give(&arena, block, 1 << 20);
    bl_sim_arena_close(&arena);
}

/* Whether the host can touch the byte behind a device's address. */
static bool is_open(bl_sim_arena *arena, char *address)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {bl_sim_arena_alias(arena, address), 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

static void pages_of_their_own_lie_between_closed_ones(void **state)
{
    (void)state;
    bl_sim_arena arena = open_arena();
    bl_memory_source source = bl_sim_arena_source(&arena);
    char *small = source.take(&arena, 64), *pages[50];
    for (int i = 0; i < 50; i++) {
        pages[i] = source.take_pages(&arena, 8192);
        assert_true(is_open(&arena, pages[i]) && is_open(&arena, pages[i] + 8191));
    }
    for (int i = 0; i < 50; i++)
        assert_false(is_open(&arena, pages[i] - 1) || is_open(&arena, pages[i] + 8192));
    source.give_pages(&arena, pages[7], 8192);
    assert_false(is_open(&arena, pages[7]));
    char *next = source.take_pages(&arena, 8192); /* not at once the same address again */
    assert_ptr_not_equal(next, pages[7]);
    pages[7] = next;
    for (int i = 0; i < 50; i++)
        source.give_pages(&arena, pages[i], 8192);
    source.give(&arena, small, 64);
    assert_int_equal(arena.pages.n, 1);
    assert_int_equal(arena.small.n, 0);
    bl_sim_arena_close(&arena);
}

static void blocks_of_the_arena_never_overlap(void **state)
{
    (void)state;
    enum { MOST = 200, ROUNDS = 4000 };
    bl_rng_key key = {.seed = 5};
    bl_sim_arena arena = open_arena();
    bl_memory_source source = bl_sim_arena_source(&arena);
    unsigned char *block[MOST] = {NULL};
    int64_t size[MOST];
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t i = bl_rng_below(&key, 3 * round, MOST);
        if (block[i] == NULL) {
            size[i] =
                1 + (int64_t)bl_rng_below(&key, 3 * round + 1, UINT64_C(64) << bl_rng_below(&key, 3 * round + 2, 14));
            block[i] = source.take(&arena, size[i]);
            assert_non_null(block[i]);
            memset(source.host(&arena, block[i]), (int)i, (size_t)size[i]);
            continue;
        }
        const unsigned char *bytes = source.host(&arena, block[i]);
        assert_true(bytes[0] == i && bytes[size[i] / 2] == i && bytes[size[i] - 1] == i);
        source.give(&arena, block[i], size[i]);
        block[i] = NULL;
    }
    for (int i = 0; i < MOST; i++)
        if (block[i] != NULL)
            source.give(&arena, block[i], size[i]);
    assert_int_equal(arena.pages.n, 1);
    assert_int_equal(arena.small.n, 0);
    bl_sim_arena_close(&arena);
}

static void a_full_arena_gives_nothing(void **state)
{
    (void)state;
    bl_sim_arena arena = open_arena();
    bl_memory_source source = bl_sim_arena_source(&arena);
    assert_null(source.take(&arena, ARENA));
    assert_null(source.take(&arena, INT64_MAX));
    assert_null(source.take(&arena, -1));
    assert_null(source.take_pages(&arena, ARENA));
    assert_null(source.take_pages(&arena, INT64_MAX));
    void *most = source.take(&arena, ARENA - (2 << 20));
    assert_non_null(most);
    assert_null(source.take(&arena, 1));
    assert_null(source.take_pages(&arena, 1));
    source.give(&arena, most, ARENA - (2 << 20));
    bl_memory_fail_at(0);
    void *small = source.take(&arena, 1);
    bl_memory_fail_at(-1);
    if (small != NULL)
        source.give(&arena, small, 1);
    assert_int_equal(arena.pages.n, 1);
    bl_sim_arena_close(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(addresses_cannot_be_read_by_the_host, clear_environment),
        cmocka_unit_test_teardown(what_is_copied_in_comes_out, clear_environment),
        cmocka_unit_test_teardown(copies_of_a_stream_keep_their_order, clear_environment),
        cmocka_unit_test_teardown(a_launch_computes_on_the_devices_memory, clear_environment),
        cmocka_unit_test_teardown(a_touch_by_the_host_returns_and_is_noted, clear_environment),
        cmocka_unit_test_teardown(a_forked_child_may_close_a_device, clear_environment),
        cmocka_unit_test_teardown(a_bad_index_is_published_in_the_launchs_ring, clear_environment),
        cmocka_unit_test_teardown(a_kernel_without_memory_closes_its_gate_and_is_told_once, clear_environment),
        cmocka_unit_test_teardown(a_kernel_that_is_ended_leaves_no_memory_behind, clear_environment),
        cmocka_unit_test_teardown(a_matrix_product_runs_on_one_thread, clear_environment),
        cmocka_unit_test_teardown(an_ordinal_past_the_last_is_absent, clear_environment),
        cmocka_unit_test_teardown(settings_that_are_no_number_are_refused, clear_environment),
        cmocka_unit_test_teardown(a_bounded_address_space_gives_less_or_a_named_error, clear_environment),
        cmocka_unit_test_teardown(a_bounded_file_size_is_no_signal, clear_environment),
        cmocka_unit_test_teardown(a_process_without_files_is_told_so, clear_environment),
        cmocka_unit_test_teardown(opening_without_memory_is_named_each_time, clear_environment),
        cmocka_unit_test_teardown(more_devices_than_the_trap_watches_are_refused, clear_environment),
        cmocka_unit_test_teardown(devices_that_were_closed_leave_nothing_mapped, clear_environment),
        cmocka_unit_test(neighbours_in_the_arena_are_one_mapping),
        cmocka_unit_test(memory_given_back_is_zero_when_it_comes_again),
        cmocka_unit_test(pages_of_their_own_lie_between_closed_ones),
        cmocka_unit_test(blocks_of_the_arena_never_overlap),
        cmocka_unit_test(a_full_arena_gives_nothing),
    };
    clear_environment(NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
