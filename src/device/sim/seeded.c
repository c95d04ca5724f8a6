/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded mode: no threads.  The host's calls are the clock, and the seed says how many commands of which stream run at
 * each of them: the same calls with the same seed run in the same order, as long as no stream waits for a word that another
 * thread of the host writes. */
#include "device/sim/sim.h"

/* How many commands run at a call, one of eight: by how much a seed lets the device fall behind. */
static const uint8_t steps_at_call[3][8] = {
    {0, 0, 0, 0, 0, 0, 0, 1}, {0, 0, 0, 1, 1, 2, 2, 4}, {0, 1, 2, 3, 4, 6, 8, 16}};

static uint64_t draw(bl_sim *sim, uint64_t n)
{
    bl_rng_key key = {.seed = sim->seed, .position = (uint32_t)sim->device.ordinal};
    return bl_rng_below(&key, sim->n_draws++, n);
}

/* The same for all draws of a device. */
static uint64_t haste(const bl_sim *sim)
{
    bl_rng_key key = {.seed = sim->seed, .position = (uint32_t)sim->device.ordinal, .ordinal = 1};
    return bl_rng_below(&key, 0, 3);
}

/* Runs the next command of a stream, or the one that it waits for; false when there is none, or when that waits for a word
 * of the host.  What is waited for was put before what waits, so this ends. */
static bool step(bl_sim_queue *queue)
{
    bl_sim_command *command = bl_sim_queue_first(queue);
    while (command != NULL && command->kind == BL_SIM_WAIT && /* on a lost device too, as with threads */
           bl_sim_queue_n_passed(command->wait.of) < command->wait.number) {
        queue = command->wait.of;
        command = bl_sim_queue_first(queue);
    }
    if (command == NULL || bl_sim_is_held(queue->sim, command))
        return false;
    bl_sim_execute(queue, command);
    bl_sim_queue_pass(queue);
    return true;
}

static bl_sim_queue *draw_queue(bl_sim *sim)
{
    bl_sim_queue *waiting[BL_MAX_DEVICE_STREAMS] = {NULL};
    uint64_t n = 0;
    for (int i = 0; i < BL_MAX_DEVICE_STREAMS; i++) {
        const bl_sim_command *first = sim->queue[i] != NULL ? bl_sim_queue_first(sim->queue[i]) : NULL;
        if (first != NULL && !bl_sim_is_held(sim, first))
            waiting[n++] = sim->queue[i];
    }
    return n > 0 ? waiting[draw(sim, n)] : NULL;
}

static void tick(bl_sim *sim)
{
    int steps = steps_at_call[haste(sim)][draw(sim, 8)];
    for (bl_sim_queue *queue; steps > 0 && (queue = draw_queue(sim)) != NULL; steps--)
        step(queue);
}

/* Whoever writes the word may wait for another stream's work first. */
static bool step_another(bl_sim *sim)
{
    for (int i = 0; i < BL_MAX_DEVICE_STREAMS; i++)
        if (sim->queue[i] != NULL && step(sim->queue[i]))
            return true;
    return false;
}

static void wait_for(bl_sim_queue *queue, uint64_t number)
{
    for (int n = 0; bl_sim_queue_n_passed(queue) < number && bl_sim_queue_first(queue) != NULL;) {
        if (step(queue) || step_another(queue->sim))
            n = 0;
        else
            bl_sim_doze(n++);
    }
}

static bool start(bl_sim_queue *queue)
{
    (void)queue;
    return true;
}

static void stop(bl_sim_queue *queue) { (void)queue; }

const bl_sim_engine bl_sim_seeded_engine = {start, stop, tick, wait_for};
