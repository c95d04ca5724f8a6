/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: lists of commands and their counts. */
#include "base/memory.h"
#include "device/sim/sim.h"

static void queue_free(bl_sim_queue *queue)
{
    bl_pool_free(queue->cpu.scratch);
    bl_sim_scratch_fini(&queue->scratch);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    bl_free(queue);
}

bl_sim_queue *bl_sim_queue_new(bl_sim *sim, uint64_t counted)
{
    bl_sim_queue *queue = bl_alloc(1, sizeof *queue);
    if (queue == NULL)
        return NULL;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    bl_sim_scratch_init(&queue->scratch);
    bl_memory_source source = bl_sim_scratch_source(&queue->scratch);
    queue->cpu.scratch = bl_pool_new(&source, BL_MEMORY_POOL, false);
    if (queue->cpu.scratch == NULL) {
        queue_free(queue);
        return NULL;
    }
    queue->cpu.threads = 1;
    queue->cpu.is_serial = true;
    bl_cpu_fill_entries(&queue->cpu);
    queue->sim = sim;
    queue->put = queue->passed = counted;
    queue->holders = 1;
    return queue;
}

void bl_sim_queue_hold(bl_sim_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->holders++;
    pthread_mutex_unlock(&queue->lock);
}

void bl_sim_queue_release(bl_sim_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bool is_last = --queue->holders == 0;
    pthread_mutex_unlock(&queue->lock);
    if (is_last)
        queue_free(queue);
}

uint64_t bl_sim_queue_put(bl_sim_queue *queue, bl_sim_command *command)
{
    pthread_mutex_lock(&queue->lock);
    if (queue->first == NULL)
        queue->first = command;
    else
        queue->last->next = command;
    queue->last = command;
    uint64_t number = ++queue->put;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return number;
}

bl_sim_command *bl_sim_queue_first(bl_sim_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bl_sim_command *first = queue->first;
    pthread_mutex_unlock(&queue->lock);
    return first;
}

static void show(const bl_sim_queue *queue)
{
    if (queue->shown != NULL)
        __atomic_store_n(queue->shown, queue->passed, __ATOMIC_RELEASE);
}

void bl_sim_queue_show(bl_sim_queue *queue, uint64_t *shown)
{
    pthread_mutex_lock(&queue->lock);
    queue->shown = shown;
    show(queue);
    pthread_mutex_unlock(&queue->lock);
}

void bl_sim_queue_pass(bl_sim_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bl_sim_command *ended = queue->first;
    queue->first = ended->next;
    queue->passed++;
    show(queue);
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    bl_sim_command_free(ended);
}

uint64_t bl_sim_queue_n_put(bl_sim_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    uint64_t put = queue->put;
    pthread_mutex_unlock(&queue->lock);
    return put;
}

uint64_t bl_sim_queue_n_passed(bl_sim_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    uint64_t passed = queue->passed;
    pthread_mutex_unlock(&queue->lock);
    return passed;
}

void bl_sim_command_free(bl_sim_command *command)
{
    if (command->kind == BL_SIM_COPY_IN)
        bl_free(command->copy.staged);
    if (command->kind == BL_SIM_WAIT)
        bl_sim_queue_release(command->wait.of);
    bl_free(command);
}
