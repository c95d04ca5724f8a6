/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one command: the CPU's bodies on the aliases of the operands.  What a kernel or a copy does to an address that is
 * not its own ends it and loses the device. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/gate.h"
#include "device/sim/sim.h"
#include "device/trap.h"

/* Matrix products of all software devices, one at a time: to the BLAS they are one more caller. */
static pthread_mutex_t blas_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t watched = PTHREAD_ONCE_INIT;

/* The product that held it at the fork is the parent's. */
static void free_in_child(void) { (void)pthread_mutex_init(&blas_lock, NULL); }

static void watch(void) { (void)pthread_atfork(NULL, NULL, free_in_child); }

void bl_sim_watch_forks(void) { (void)pthread_once(&watched, watch); }

bool bl_sim_is_lost(const bl_sim *sim) { return __atomic_load_n(&sim->is_lost, __ATOMIC_ACQUIRE); }

bool bl_sim_is_held(const bl_sim *sim, const bl_sim_command *command)
{
    return command->kind == BL_SIM_HOLD && !bl_sim_is_lost(sim) &&
           !__atomic_load_n(&sim->is_closing, __ATOMIC_ACQUIRE) &&
           __atomic_load_n(command->hold.word, __ATOMIC_ACQUIRE) < command->hold.value;
}

void bl_sim_doze(int n)
{
    const int64_t least = 20000, doublings = n / 8;
    struct timespec nap = {.tv_nsec = least << (doublings < 5 ? doublings : 5)};
    (void)nanosleep(&nap, NULL);
}

/* The first cause stays. */
static void lose(bl_sim *sim, const bl_access *access)
{
    pthread_mutex_lock(&sim->loss_lock);
    if (!sim->is_lost) {
        sim->access = *access;
        __atomic_store_n(&sim->is_lost, true, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&sim->loss_lock);
}

/* Under the trap; a kernel that is ended in the middle never comes back here. */
static bool run_trapped(bl_sim *sim, uint64_t serial, void (*body)(void *state), void *state)
{
    bl_trap_access trapped = {0};
    if (bl_trap_run(body, state, &trapped))
        return true;
    bl_access access = {.launch = serial,
                        .address = bl_sim_arena_device(&sim->arena, trapped.address),
                        .is_write = trapped.is_write,
                        .is_write_known = trapped.is_write_known};
    lose(sim, &access);
    return false;
}

/* ---- launches -------------------------------------------------------------------------------------------------------- */

typedef struct launch_run {
    bl_cpu *cpu;
    bl_launch launch;
    belay_code code;
} launch_run;

static void run_launch(void *state)
{
    launch_run *run = state;
    run->code = bl_cpu_dispatch(run->cpu, &run->launch);
}

/* Operands as kernels see them; false when one is not this device's. */
static bool alias_operands(bl_sim *sim, bl_launch *launch)
{
    for (int i = 0; i < launch->n_operands; i++) {
        bl_operand *operand = &launch->operand[i];
        if (operand->data == NULL)
            continue;
        if (!bl_sim_arena_holds(&sim->arena, operand->data, 0)) {
            bl_access access = {.launch = launch->serial, .address = (uint64_t)(uintptr_t)operand->data};
            lose(sim, &access);
            return false;
        }
        operand->data = bl_sim_arena_alias(&sim->arena, operand->data);
    }
    return true;
}

static void execute_launch(bl_sim_queue *queue, const bl_launch *launch)
{
    launch_run run = {.cpu = &queue->cpu, .launch = *launch};
    bool is_product = bl_cpu_is_product(launch->op);
    bl_access access;
    if (!alias_operands(queue->sim, &run.launch))
        return;
    if (launch->custom != NULL && bl_sim_follows_host(&queue->cpu, &run.launch, &access)) {
        lose(queue->sim, &access);
        return;
    }
    if (is_product)
        pthread_mutex_lock(&blas_lock);
    int64_t start = queue->cpu.options.ran != NULL ? bl_clock_now() : 0;
    bool ended = run_trapped(queue->sim, launch->serial, run_launch, &run);
    if (start != 0)
        bl_cpu_tell_ran(&queue->cpu, queue->number, launch, start);
    if (is_product)
        pthread_mutex_unlock(&blas_lock);
    if (!ended || run.code == BELAY_OK)
        return;
    /* The output was not written: no update may use it. */
    if (launch->gates)
        bl_gate_close(&launch->ring->window[launch->window].gate, BELAY_MEM_EXHAUSTED);
    __atomic_store_n(&queue->sim->is_out_of_memory, true, __ATOMIC_RELEASE);
}

/* ---- copies ---------------------------------------------------------------------------------------------------------- */

typedef struct copy_run {
    void *to;
    const void *from;
    size_t n_bytes;
} copy_run;

static void run_copy(void *state)
{
    const copy_run *run = state;
    if (run->n_bytes > 0)
        memcpy(run->to, run->from, run->n_bytes);
}

static void execute_copy(bl_sim *sim, const bl_sim_command *command)
{
    bool is_in = command->kind == BL_SIM_COPY_IN;
    void *host = command->copy.staged != NULL ? command->copy.staged : command->copy.host;
    if (!bl_sim_arena_holds(&sim->arena, command->copy.device, command->copy.n_bytes)) {
        bl_access access = {
            .address = (uint64_t)(uintptr_t)command->copy.device, .is_write = is_in, .is_write_known = true};
        lose(sim, &access);
        return;
    }
    void *alias = bl_sim_arena_alias(&sim->arena, command->copy.device);
    copy_run run = {is_in ? alias : host, is_in ? host : alias, (size_t)command->copy.n_bytes};
    run_trapped(sim, 0, run_copy, &run);
}

void bl_sim_execute(bl_sim_queue *queue, bl_sim_command *command)
{
    if (bl_sim_is_lost(queue->sim))
        return;
    switch (command->kind) {
    case BL_SIM_RUN:
        execute_launch(queue, &command->launch);
        break;
    case BL_SIM_CALL:
        run_trapped(queue->sim, command->call.serial, command->call.body, command->call.state);
        break;
    case BL_SIM_COPY_IN:
    case BL_SIM_COPY_OUT:
        execute_copy(queue->sim, command);
        break;
    case BL_SIM_WAIT: /* has been waited for */
    case BL_SIM_HOLD:
        break;
    }
}
