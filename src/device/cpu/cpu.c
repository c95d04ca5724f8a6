/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu device: synchronous, the embedded default.  A launch runs on OpenMP threads; which thread does what never
 * changes a bit of the result. */
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/gate.h"
#include "base/memory.h"
#include "device/cpu/blas.h"
#include "device/cpu/kernel.h"
#include "kernel/custom.h"

extern const bl_device_api bl_device_cpu;

/* Below this many element operations a second thread costs more than it gives. */
enum { WORK_PER_THREAD = 32768 };

int bl_cpu_threads_for(const bl_cpu *cpu, int64_t work)
{
    int64_t useful = work / WORK_PER_THREAD;
    if (useful < 2 || cpu->threads < 2)
        return 1;
    return useful < cpu->threads ? (int)useful : cpu->threads;
}

void bl_cpu_merge_bad(bl_bad *into, const bl_bad *from)
{
    if (from->count == 0)
        return;
    uint64_t count = into->count + from->count;
    if (into->count == 0 || from->element < into->element)
        *into = *from;
    into->count = count;
}

/* The lowest free slot of the ring; -1: all are taken. */
static int claim_slot(bl_fault_ring *ring)
{
    uint64_t claimed = __atomic_load_n(&ring->claimed, __ATOMIC_ACQUIRE), free;
    do {
        free = ~claimed & BL_RING_FULL;
        if (free == 0)
            return -1;
    } while (!__atomic_compare_exchange_n(&ring->claimed, &claimed, claimed | (free & (~free + 1)), true,
                                          __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return __builtin_ctzll(free);
}

/* Takes a slot of the ring and publishes: claim, fill, publish last. */
static void publish_bad(const bl_launch *l, const bl_bad *bad)
{
    bl_fault_ring *ring = l->ring;
    bool is_corrected = l->policy != BELAY_INDEX_RAISE && bad->code == BELAY_INDEX_RANGE; /* labels always raise */
    if (l->gates && !is_corrected)
        bl_gate_close(&ring->window[l->window].gate, bad->code);
    int slot = claim_slot(ring);
    if (slot < 0) {
        __atomic_fetch_add(&ring->dropped, 1, __ATOMIC_RELAXED);
        return;
    }
    bl_fault_record *r = &ring->record[slot];
    r->launch = l->serial;
    r->element = bad->element;
    r->got = bad->got;
    r->limit = bad->limit;
    r->count = bad->count;
    r->step = l->step;
    r->site = l->site;
    r->code = bad->code;
    r->op = (uint16_t)l->op;
    r->operand = bad->operand;
    r->axis = bad->axis;
    r->policy = is_corrected ? (uint8_t)l->policy : BELAY_INDEX_RAISE;
    __atomic_store_n(&r->published, (uint64_t)slot + 1, __ATOMIC_RELEASE);
}

bool bl_cpu_has(const bl_cpu *cpu, const bl_launch *launch)
{
    int op = launch->op;
    return cpu->entry[op][launch->dtype] != NULL || op == BL_OP_copy || op == BL_OP_sum_grad || bl_cpu_is_product(op) ||
           launch->custom != NULL;
}

belay_code bl_cpu_dispatch(bl_cpu *cpu, const bl_launch *launch)
{
    const bl_cpu_entry *entry = cpu->entry[launch->op][launch->dtype];
    bl_bad bad = {0};
    bool ran = true;
    if (launch->op == BL_OP_copy)
        bl_cpu_run_copy(cpu, launch);
    else if (launch->op == BL_OP_sum_grad)
        bl_cpu_run_spread(cpu, launch);
    else if (launch->op == BL_OP_matmul)
        ran = bl_cpu_run_matmul(cpu, launch);
    else if (bl_cpu_is_attention(launch->op))
        ran = bl_cpu_run_attention(cpu, launch);
    else if (launch->custom != NULL)
        bl_cpu_run_custom(cpu, launch, &bad);
    else if (entry == NULL)
        return BELAY_TYPE_DTYPE;
    else if (entry->map != NULL)
        bl_cpu_run_map(cpu, launch, entry->map);
    else if (entry->keys != NULL)
        ran = bl_cpu_run_sorted(cpu, launch, entry, &bad);
    else
        bl_cpu_run_items(cpu, launch, entry, &bad);
    if (BL_UNLIKELY(bad.count > 0))
        publish_bad(launch, &bad);
    return ran ? BELAY_OK : BELAY_MEM_EXHAUSTED;
}

void bl_cpu_tell_ran(const bl_cpu *cpu, int stream, const bl_launch *launch, int64_t start)
{
    cpu->options.ran(
        cpu->options.ran_state,
        &(bl_device_ran){.place = cpu->options.place,
                         .stream = stream,
                         .name = launch->custom != NULL ? launch->custom->name : bl_kernel_rows[launch->op].name,
                         .launch = launch->serial,
                         .start = start,
                         .end = bl_clock_now()});
}

static belay_code run(bl_device *device, int stream, const bl_launch *launch)
{
    bl_cpu *cpu = (bl_cpu *)device;
    if (BL_LIKELY(cpu->options.ran == NULL))
        return bl_cpu_dispatch(cpu, launch);
    int64_t start = bl_clock_now();
    belay_code code = bl_cpu_dispatch(cpu, launch);
    bl_cpu_tell_ran(cpu, stream, launch, start);
    return code;
}

static void *take(bl_device *device, int64_t n_bytes) { return bl_pool_take(((bl_cpu *)device)->pool, n_bytes); }

static void give(bl_device *device, void *block, int64_t n_bytes)
{
    bl_pool_give(((bl_cpu *)device)->pool, block, n_bytes);
}

static bl_pool *pool(bl_device *device) { return ((bl_cpu *)device)->pool; }

static void copy_bytes(void *to, const void *from, int64_t n_bytes)
{
    if (n_bytes > 0)
        memcpy(to, from, (size_t)n_bytes);
}

static belay_code copy_in(bl_device *device, int stream, void *to, const void *host, int64_t n_bytes)
{
    (void)device, (void)stream;
    copy_bytes(to, host, n_bytes);
    return BELAY_OK;
}

static belay_code copy_out(bl_device *device, int stream, void *host, const void *from, int64_t n_bytes)
{
    (void)device, (void)stream;
    copy_bytes(host, from, n_bytes);
    return BELAY_OK;
}

/* ---- streams: all work has ended when it was asked for ---------------------------------------------------------------- */

static belay_code stream_open(bl_device *device, int *stream)
{
    (void)device;
    *stream = 0;
    return BELAY_OK;
}

static void stream_close(bl_device *device, int stream) { (void)device, (void)stream; }

static belay_code stream_wait(bl_device *device, int stream, bl_device *other, int of, uint64_t number)
{
    (void)device, (void)stream, (void)other, (void)of, (void)number;
    return BELAY_OK;
}

static uint64_t stream_put(const bl_device *device, int stream)
{
    (void)device, (void)stream;
    return 0;
}

static uint64_t stream_passed(bl_device *device, int stream)
{
    (void)device, (void)stream;
    return UINT64_MAX;
}

static belay_code stream_synchronise(bl_device *device, int stream, uint64_t number)
{
    (void)device, (void)stream, (void)number;
    return BELAY_OK;
}

static belay_code synchronise(bl_device *device)
{
    (void)device;
    return BELAY_OK;
}

static const bl_access *loss(const bl_device *device)
{
    (void)device;
    return NULL;
}

static int threads(const bl_device *device) { return ((const bl_cpu *)device)->threads; }

static int count(void) { return 1; }

static void close_cpu(bl_device *device)
{
    bl_cpu *cpu = (bl_cpu *)device;
    bl_pool_free(cpu->pool);
    bl_pool_free(cpu->scratch);
    bl_free(cpu);
}

/* Processors that this process may run on. */
static int allowed_processors(void)
{
#ifdef CPU_COUNT
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
#endif
    return omp_get_num_procs();
}

belay_code bl_cpu_check_processor(bl_error *error)
{
#if defined __x86_64__ && defined __AVX2__
    static const char *const names[] = {"avx2", "fma", "bmi2"};
    const bool has[] = {__builtin_cpu_supports("avx2") != 0, __builtin_cpu_supports("fma") != 0,
                        __builtin_cpu_supports("bmi2") != 0};
    for (int i = 0; i < BL_COUNT(has); i++)
        if (!has[i]) {
            bl_error_set(error, BELAY_PLACE_CPU, "this processor has no %s", names[i]);
            bl_error_fact(error, "this build needs x86-64-v3");
            return BELAY_PLACE_CPU;
        }
#endif
    (void)error;
    return BELAY_OK;
}

void bl_cpu_fill_entries(bl_cpu *cpu)
{
    for (const bl_cpu_family *const *family = bl_cpu_families; *family != NULL; family++)
        for (const bl_cpu_family *column = *family; column->entry != NULL; column++)
            for (int i = 0; i < column->n; i++)
                cpu->entry[column->entry[i].op][column->entry[i].dtype] = &column->entry[i];
}

static belay_code open_cpu(const bl_device_options *options, bl_device **out, bl_error *error)
{
    *out = NULL;
    if (options->ordinal != 0)
        return bl_error_set(error, BELAY_PLACE_ABSENT, "device cpu:%d does not exist; there is one cpu",
                            options->ordinal);
    int n_threads = options->threads > 0 ? options->threads : allowed_processors();
    TRY(bl_cpu_check_processor(error));
    TRY(bl_cpu_blas_open(n_threads, error));
    bl_cpu *cpu = bl_alloc(1, sizeof *cpu);
    if (cpu != NULL) {
        cpu->pool = bl_pool_new(&bl_memory_source_host, options->memory, options->poison);
        cpu->scratch = bl_pool_new(&bl_memory_source_host, BL_MEMORY_POOL, false);
    }
    if (cpu == NULL || cpu->pool == NULL || cpu->scratch == NULL) {
        if (cpu != NULL)
            close_cpu(&cpu->device);
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to open device cpu");
    }
    cpu->device = (bl_device){.api = &bl_device_cpu, .ordinal = 0};
    snprintf(cpu->device.name, sizeof cpu->device.name, "cpu");
    cpu->threads = n_threads;
    cpu->options = *options;
    cpu->traps = true;
    cpu->is_serial = options->memory == BL_MEMORY_EXACT || options->memory == BL_MEMORY_EXACT_LEFT;
    bl_cpu_fill_entries(cpu);
    *out = &cpu->device;
    return BELAY_OK;
}

const bl_device_api bl_device_cpu = {
    .kind = "cpu",
    .synchronous = true,
    .open = open_cpu,
    .close = close_cpu,
    .count = count,
    .take = take,
    .give = give,
    .pool = pool,
    .run = run,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .copy_in_later = copy_in,
    .copy_out_later = copy_out,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .stream_wait = stream_wait,
    .stream_put = stream_put,
    .stream_passed = stream_passed,
    .stream_synchronise = stream_synchronise,
    .synchronise = synchronise,
    .loss = loss,
    .threads = threads,
};
