/* SPDX-License-Identifier: Apache-2.0 */
/* A software device: what happens on a GPU, on the host.  Its addresses are none that the host can read, its streams run
 * by themselves, and an illegal access loses it for good.
 *
 * Every context that opens "sim:0" opens a device of its own, with its own memory.  Of the environment are read, at each
 * open: BELAY_SIM_DEVICES (how many there are), BELAY_SIM_BYTES (of memory), BELAY_SIM_SEED (set: the streams run at the
 * host's calls, as the seed says; not set: each in a thread).
 *
 * A kernel that finds no memory to work in leaves its output as it was and closes its window's gate; the next call that
 * waits answers mem.exhausted, once.  In a forked child a device does nothing, not even when it is closed. */
#include "device/sim/sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "device/cpu/blas.h"
#include "device/trap.h"

extern const bl_device_api bl_device_sim;

/* Copies up to this size do not wait: their bytes are kept with the command. */
enum { MOST_STAGED = 64 << 10 };
enum { MOST_DEVICES = 16 };

/* Commands of a stream that have not ended; with more, the host waits. */
#ifdef BELAY_SMALL
enum { MOST_WAITING = 64 };
#else
enum { MOST_WAITING = 1024 };
#endif

static bl_sim *of(bl_device *device) { return (bl_sim *)device; }

/* ---- the environment ------------------------------------------------------------------------------------------------- */

/* Not set, or empty: *out stays. */
static belay_code read_number(const char *name, uint64_t least, uint64_t most, uint64_t *out, bl_error *error)
{
    const char *text = getenv(name);
    if (text == NULL || text[0] == '\0')
        return BELAY_OK;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    bool is_number = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
    if (!is_number || value < least || value > most)
        return bl_error_set(error, BELAY_CONF_VALUE, "%s is \"%.40s\"; it may be %" PRIu64 " to %" PRIu64, name, text,
                            least, most);
    *out = value;
    return BELAY_OK;
}

static belay_code read_count(uint64_t *n_devices, bl_error *error)
{
    *n_devices = 2;
    return read_number("BELAY_SIM_DEVICES", 0, MOST_DEVICES, n_devices, error);
}

static int count(void)
{
    uint64_t n_devices;
    return read_count(&n_devices, NULL) == BELAY_OK ? (int)n_devices : 0;
}

static belay_code check_ordinal(int ordinal, bl_error *error)
{
    uint64_t n_devices;
    TRY(read_count(&n_devices, error));
    if ((uint64_t)ordinal < n_devices)
        return BELAY_OK;
    bl_error_set(error, BELAY_PLACE_ABSENT, "device sim:%d does not exist; software devices: %" PRIu64, ordinal,
                 n_devices);
    bl_error_fact(error, "BELAY_SIM_DEVICES sets how many there are: 2 if it is not set, at most %d", MOST_DEVICES);
    return BELAY_PLACE_ABSENT;
}

/* ---- open and close -------------------------------------------------------------------------------------------------- */

static belay_code add_queue(bl_sim *sim, int stream)
{
    bl_sim_queue *queue = bl_sim_queue_new(sim, sim->counted[stream]);
    if (queue == NULL)
        return BELAY_MEM_EXHAUSTED;
    queue->number = stream;
    queue->cpu.options = sim->options;
    if (!sim->engine->start(queue)) {
        bl_sim_queue_release(queue);
        return BELAY_MEM_EXHAUSTED;
    }
    sim->queue[stream] = queue;
    return BELAY_OK;
}

/* All that was put has ended then. */
static void end_queue(bl_sim *sim, int stream)
{
    bl_sim_queue *queue = sim->queue[stream];
    sim->counted[stream] = bl_sim_queue_n_put(queue);
    sim->engine->wait(queue, sim->counted[stream]);
    sim->engine->stop(queue);
    sim->queue[stream] = NULL;
    bl_sim_queue_release(queue);
}

static void close_sim(bl_device *device)
{
    bl_sim *sim = of(device);
    if (sim->process != getpid())
        return;
    __atomic_store_n(&sim->is_closing, true, __ATOMIC_RELEASE);
    for (int i = 0; i < BL_MAX_DEVICE_STREAMS; i++)
        if (sim->queue[i] != NULL)
            sim->engine->wait(sim->queue[i], bl_sim_queue_n_put(sim->queue[i]));
    for (int i = 0; i < BL_MAX_DEVICE_STREAMS; i++)
        if (sim->queue[i] != NULL)
            end_queue(sim, i);
    bl_pool_free(sim->pool);
    if (sim->arena.n_bytes > 0)
        bl_trap_range_remove(sim->arena.device);
    bl_sim_arena_close(&sim->arena);
    pthread_mutex_destroy(&sim->loss_lock);
    bl_free(sim);
}

static belay_code open_memory(bl_sim *sim, const bl_device_options *options, bl_error *error)
{
    uint64_t n_bytes = 0;
    TRY(read_number("BELAY_SIM_BYTES", UINT64_C(16) << 20, UINT64_C(1) << 43, &n_bytes, error));
    int64_t wanted = n_bytes > 0 ? (int64_t)n_bytes : INT64_C(16) << 30;
    TRY(bl_sim_arena_open(&sim->arena, wanted, n_bytes > 0, sim->device.name, error));
    bl_memory_source source = bl_sim_arena_source(&sim->arena);
    sim->pool = bl_pool_new(&source, options->memory, options->poison);
    if (!bl_trap_range_add(sim->arena.device, (size_t)sim->arena.n_bytes)) {
        bl_error_set(error, BELAY_MEM_EXHAUSTED, "no place for device %s: this process has %d software devices open",
                     sim->device.name, BL_TRAP_RANGES);
        bl_error_advise(error, "Close the contexts that are done: each has software devices of its own.");
        return BELAY_MEM_EXHAUSTED;
    }
    sim->device.range = sim->arena.device;
    if (sim->pool == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to open device %s", sim->device.name);
    if (add_queue(sim, 0) != BELAY_OK) {
        bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory, or no thread, for the stream of device %s",
                     sim->device.name);
        bl_error_advise(error, "Raise the limit on threads (ulimit -u), or close contexts that are done.");
        return BELAY_MEM_EXHAUSTED;
    }
    return BELAY_OK;
}

static belay_code open_sim(const bl_device_options *options, bl_device **out, bl_error *error)
{
    *out = NULL;
    TRY(check_ordinal(options->ordinal, error));
    TRY(bl_cpu_check_processor(error));
    TRY(bl_cpu_blas_open_beside(error));
    bl_sim *sim = bl_alloc(1, sizeof *sim);
    if (sim == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to open device sim:%d", options->ordinal);
    sim->options = *options;
    sim->device = (bl_device){.api = &bl_device_sim, .ordinal = options->ordinal};
    snprintf(sim->device.name, sizeof sim->device.name, "sim:%d", options->ordinal);
    sim->process = getpid();
    sim->seed = UINT64_MAX;
    pthread_mutex_init(&sim->loss_lock, NULL);
    bl_sim_watch_forks();
    belay_code code = read_number("BELAY_SIM_SEED", 0, UINT64_MAX - 1, &sim->seed, error);
    sim->engine = sim->seed == UINT64_MAX ? &bl_sim_free_engine : &bl_sim_seeded_engine;
    if (code == BELAY_OK)
        code = open_memory(sim, options, error);
    if (code == BELAY_OK)
        *out = &sim->device;
    else
        close_sim(&sim->device);
    return code;
}

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

static void *take(bl_device *device, int64_t n_bytes)
{
    of(device)->engine->tick(of(device));
    return bl_pool_take(of(device)->pool, n_bytes);
}

static void give(bl_device *device, void *block, int64_t n_bytes)
{
    bl_pool_give(of(device)->pool, block, n_bytes);
    of(device)->engine->tick(of(device));
}

static bl_pool *pool(bl_device *device) { return of(device)->pool; }

/* ---- commands -------------------------------------------------------------------------------------------------------- */

/* What a call that has waited says. */
static belay_code answer(bl_sim *sim)
{
    if (bl_sim_is_lost(sim))
        return BELAY_PLACE_LOST;
    return __atomic_exchange_n(&sim->is_out_of_memory, false, __ATOMIC_ACQ_REL) ? BELAY_MEM_EXHAUSTED : BELAY_OK;
}

static bl_sim_command *command_new(bl_sim_kind kind)
{
    bl_sim_command *command = bl_alloc(1, sizeof *command);
    if (command != NULL)
        command->kind = kind;
    return command;
}

static uint64_t put(bl_sim *sim, int stream, bl_sim_command *command)
{
    uint64_t number = bl_sim_queue_put(sim->queue[stream], command);
    if (number > MOST_WAITING)
        sim->engine->wait(sim->queue[stream], number - MOST_WAITING);
    sim->engine->tick(sim);
    return number;
}

static belay_code run(bl_device *device, int stream, const bl_launch *launch)
{
    bl_sim *sim = of(device);
    if (bl_sim_is_lost(sim))
        return BELAY_PLACE_LOST;
    if (!bl_cpu_has(&sim->queue[0]->cpu, launch))
        return BELAY_TYPE_DTYPE;
    bl_sim_command *command = command_new(BL_SIM_RUN);
    if (command == NULL)
        return BELAY_MEM_EXHAUSTED;
    command->launch = *launch;
    put(sim, stream, command);
    return BELAY_OK;
}

belay_code bl_sim_call(bl_device *device, int stream, void (*body)(void *state), void *state, uint64_t serial)
{
    bl_sim *sim = of(device);
    if (bl_sim_is_lost(sim))
        return BELAY_PLACE_LOST;
    bl_sim_command *command = command_new(BL_SIM_CALL);
    if (command == NULL)
        return BELAY_MEM_EXHAUSTED;
    command->call.body = body;
    command->call.state = state;
    command->call.serial = serial;
    put(sim, stream, command);
    return BELAY_OK;
}

/* number: the command's; 0 when there was none to put. */
static belay_code put_copy(bl_sim *sim, int stream, bl_sim_kind kind, void *on_device, void *host, void *staged,
                           int64_t n_bytes, uint64_t *number)
{
    bl_sim_command *command = bl_sim_is_lost(sim) ? NULL : command_new(kind);
    if (command == NULL) {
        bl_free(staged);
        return bl_sim_is_lost(sim) ? BELAY_PLACE_LOST : BELAY_MEM_EXHAUSTED;
    }
    command->copy.device = on_device;
    command->copy.host = host;
    command->copy.staged = staged;
    command->copy.n_bytes = n_bytes;
    *number = put(sim, stream, command);
    return BELAY_OK;
}

static void *stage(const void *host, int64_t n_bytes)
{
    void *staged = n_bytes <= MOST_STAGED ? bl_alloc_aligned(n_bytes, 64) : NULL;
    if (staged != NULL && n_bytes > 0)
        memcpy(staged, host, (size_t)n_bytes);
    return staged;
}

static belay_code copy_in(bl_device *device, int stream, void *to, const void *host, int64_t n_bytes)
{
    bl_sim *sim = of(device);
    uint64_t number;
    void *staged = stage(host, n_bytes);
    bool is_staged = staged != NULL;
    TRY(put_copy(sim, stream, BL_SIM_COPY_IN, to, (void *)(uintptr_t)host, staged, n_bytes, &number));
    if (is_staged)
        return BELAY_OK;
    sim->engine->wait(sim->queue[stream], number);
    return answer(sim);
}

static belay_code copy_out(bl_device *device, int stream, void *host, const void *from, int64_t n_bytes)
{
    bl_sim *sim = of(device);
    uint64_t number;
    TRY(put_copy(sim, stream, BL_SIM_COPY_OUT, (void *)(uintptr_t)from, host, NULL, n_bytes, &number));
    sim->engine->wait(sim->queue[stream], number);
    return answer(sim);
}

static belay_code copy_in_later(bl_device *device, int stream, void *to, const void *host, int64_t n_bytes)
{
    uint64_t number;
    return put_copy(of(device), stream, BL_SIM_COPY_IN, to, (void *)(uintptr_t)host, NULL, n_bytes, &number);
}

static belay_code copy_out_later(bl_device *device, int stream, void *host, const void *from, int64_t n_bytes)
{
    uint64_t number;
    return put_copy(of(device), stream, BL_SIM_COPY_OUT, (void *)(uintptr_t)from, host, NULL, n_bytes, &number);
}

/* ---- streams --------------------------------------------------------------------------------------------------------- */

/* A stream that takes the number of a closed one counts on where that one ended. */
static belay_code stream_open(bl_device *device, int *stream)
{
    bl_sim *sim = of(device);
    if (bl_sim_is_lost(sim))
        return BELAY_PLACE_LOST;
    sim->engine->tick(sim);
    for (int i = 1; i < BL_MAX_DEVICE_STREAMS; i++)
        if (sim->queue[i] == NULL) {
            TRY(add_queue(sim, i));
            *stream = i;
            return BELAY_OK;
        }
    return BELAY_SIZE_OVERFLOW;
}

static void stream_close(bl_device *device, int stream) { end_queue(of(device), stream); }

static uint64_t stream_put(const bl_device *device, int stream)
{
    const bl_sim *sim = (const bl_sim *)device;
    return sim->queue[stream] != NULL ? bl_sim_queue_n_put(sim->queue[stream]) : sim->counted[stream];
}

static uint64_t stream_passed(bl_device *device, int stream)
{
    bl_sim *sim = of(device);
    sim->engine->tick(sim);
    return sim->queue[stream] != NULL ? bl_sim_queue_n_passed(sim->queue[stream]) : sim->counted[stream];
}

static void stream_show(bl_device *device, int stream, uint64_t *shown)
{
    if (of(device)->queue[stream] != NULL && of(device)->process == getpid())
        bl_sim_queue_show(of(device)->queue[stream], shown);
}

/* Of a closed stream all has ended; a number that was not put yet is as good as the last one that was. */
static belay_code stream_wait(bl_device *device, int stream, bl_device *other, int number_of, uint64_t number)
{
    bl_sim *sim = of(device);
    bl_sim_queue *awaited = of(other)->queue[number_of];
    if (bl_sim_is_lost(sim))
        return BELAY_PLACE_LOST;
    if (awaited == NULL) {
        awaited = of(other)->queue[0];
        number = 0;
    }
    uint64_t last = bl_sim_queue_n_put(awaited);
    bl_sim_command *command = command_new(BL_SIM_WAIT);
    if (command == NULL)
        return BELAY_MEM_EXHAUSTED;
    bl_sim_queue_hold(awaited);
    command->wait.of = awaited;
    command->wait.number = number < last ? number : last;
    put(sim, stream, command);
    return BELAY_OK;
}

static belay_code stream_hold(bl_device *device, int stream, const uint64_t *word, uint64_t value)
{
    bl_sim *sim = of(device);
    if (bl_sim_is_lost(sim))
        return BELAY_PLACE_LOST;
    bl_sim_command *command = command_new(BL_SIM_HOLD);
    if (command == NULL)
        return BELAY_MEM_EXHAUSTED;
    command->hold.word = word;
    command->hold.value = value;
    put(sim, stream, command);
    return BELAY_OK;
}

static belay_code stream_synchronise(bl_device *device, int stream, uint64_t number)
{
    bl_sim *sim = of(device);
    sim->engine->tick(sim);
    if (sim->queue[stream] != NULL)
        sim->engine->wait(sim->queue[stream], number);
    return answer(sim);
}

static belay_code synchronise(bl_device *device)
{
    bl_sim *sim = of(device);
    sim->engine->tick(sim);
    for (int i = 0; i < BL_MAX_DEVICE_STREAMS; i++)
        if (sim->queue[i] != NULL)
            sim->engine->wait(sim->queue[i], bl_sim_queue_n_put(sim->queue[i]));
    return answer(sim);
}

static const bl_access *loss(const bl_device *device)
{
    const bl_sim *sim = (const bl_sim *)device;
    return bl_sim_is_lost(sim) ? &sim->access : NULL;
}

static int threads(const bl_device *device)
{
    (void)device;
    return 1;
}

const bl_device_api bl_device_sim = {
    .kind = "sim",
    .open = open_sim,
    .close = close_sim,
    .count = count,
    .take = take,
    .give = give,
    .pool = pool,
    .run = run,
    .copy_in = copy_in,
    .most_staged = MOST_STAGED,
    .copy_out = copy_out,
    .copy_in_later = copy_in_later,
    .copy_out_later = copy_out_later,
    .stream_open = stream_open,
    .stream_close = stream_close,
    .stream_wait = stream_wait,
    .stream_hold = stream_hold,
    .stream_put = stream_put,
    .stream_passed = stream_passed,
    .stream_show = stream_show,
    .stream_synchronise = stream_synchronise,
    .synchronise = synchronise,
    .loss = loss,
    .threads = threads,
};
