/* SPDX-License-Identifier: Apache-2.0 */
/* Free mode: each stream has a thread, which does its commands as they come. */
#include <signal.h>

#include "device/sim/sim.h"

/* The first command, waited for; NULL when the stream ends. */
static bl_sim_command *next_command(bl_sim_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->first == NULL && !queue->is_ending)
        pthread_cond_wait(&queue->changed, &queue->lock);
    bl_sim_command *command = queue->first;
    pthread_mutex_unlock(&queue->lock);
    return command;
}

static void wait_for(bl_sim_queue *queue, uint64_t number)
{
    pthread_mutex_lock(&queue->lock);
    while (queue->passed < number && queue->passed < queue->put)
        pthread_cond_wait(&queue->changed, &queue->lock);
    pthread_mutex_unlock(&queue->lock);
}

static void wait_for_word(const bl_sim_queue *queue, const bl_sim_command *command)
{
    for (int n = 0; bl_sim_is_held(queue->sim, command); n++)
        bl_sim_doze(n);
}

static void *work(void *state)
{
    bl_sim_queue *queue = state;
    for (bl_sim_command *command = next_command(queue); command != NULL; command = next_command(queue)) {
        if (command->kind == BL_SIM_WAIT) /* on a lost device too: what waits for this stream counts on it */
            wait_for(command->wait.of, command->wait.number);
        else if (command->kind == BL_SIM_HOLD)
            wait_for_word(queue, command);
        else
            bl_sim_execute(queue, command);
        bl_sim_queue_pass(queue);
    }
    return NULL;
}

/* The program's signals are for the program's own threads; a kernel's illegal access is still its thread's. */
static bool start(bl_sim_queue *queue)
{
    sigset_t blocked, before;
    sigfillset(&blocked);
    const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    for (int i = 0; i < BL_COUNT(own); i++)
        sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    bool is_started = pthread_create(&queue->thread, NULL, work, queue) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

static void stop(bl_sim_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    queue->is_ending = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
}

static void tick(bl_sim *sim) { (void)sim; }

const bl_sim_engine bl_sim_free_engine = {start, stop, tick, wait_for};
