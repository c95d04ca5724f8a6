/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of workers: made, kept, and at the process's end asked to finish what they own. */
#define _GNU_SOURCE /* pthread_setname_np */
#include "dist/hand.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"

enum { FINISH_SECONDS = 5 };

struct bl_hand {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const bl_transport_api *api;
    bl_transport *transport; /* of the last group that was whole */
    bl_group_worker *job;
    bool is_taken, shall_quit, shall_finish, is_finished;
    const char *lost; /* why it is of no use any more; it stays taken */
    uint64_t n_jobs;
    pid_t process;
};

/* That of the transport which keeps one; it stays. */
static pthread_mutex_t lasting_lock = PTHREAD_MUTEX_INITIALIZER;
static bl_hand *lasting;

static void *work(void *state)
{
    bl_hand *hand = state;
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL); /* or each nap is 50 us longer */
    pthread_mutex_lock(&hand->lock);
    while (!hand->shall_quit) {
        if (hand->job != NULL) {
            bl_group_worker *job = hand->job;
            pthread_mutex_unlock(&hand->lock);
            bl_worker_run(job);
            pthread_mutex_lock(&hand->lock);
            hand->job = NULL;
            pthread_cond_broadcast(&hand->changed);
        } else if (hand->shall_finish && !hand->is_finished) {
            pthread_mutex_unlock(&hand->lock);
            hand->api->finish(hand->transport);
            pthread_mutex_lock(&hand->lock);
            hand->is_finished = true;
            pthread_cond_broadcast(&hand->changed);
        } else {
            pthread_cond_wait(&hand->changed, &hand->lock);
        }
    }
    pthread_mutex_unlock(&hand->lock);
    return NULL;
}

/* When the process ends in order, and no group was left open or had failed: the launcher is told that this rank is done.
 * It may wait for other ranks, so that it is waited for only so long. */
static void finish_at_exit(void)
{
    bl_hand *hand = lasting;
    if (hand == NULL || getpid() != hand->process)
        return;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FINISH_SECONDS;
    pthread_mutex_lock(&hand->lock);
    if (!hand->is_taken && hand->transport != NULL) {
        hand->shall_finish = true;
        pthread_cond_broadcast(&hand->changed);
        int late = 0;
        while (!hand->is_finished && late != ETIMEDOUT)
            late = pthread_cond_timedwait(&hand->changed, &hand->lock, &until);
    }
    pthread_mutex_unlock(&hand->lock);
}

static bool start_thread(bl_hand *hand)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool has_thread = pthread_create(&hand->thread, NULL, work, hand) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (has_thread)
        pthread_setname_np(hand->thread, "belay-group");
    return has_thread;
}

static bl_hand *hand_new(const bl_transport_api *api)
{
    bl_hand *hand = bl_alloc(1, sizeof *hand);
    if (hand == NULL)
        return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&hand->lock, NULL);
    pthread_cond_init(&hand->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    hand->api = api;
    hand->process = getpid();
    if (start_thread(hand))
        return hand;
    pthread_cond_destroy(&hand->changed);
    pthread_mutex_destroy(&hand->lock);
    bl_free(hand);
    return NULL;
}

/* The thread is not there, whatever its parent says of it. */
static belay_code refuse_forked(const bl_hand *hand, bl_error *error)
{
    bl_error_set(error, BELAY_COMM_FAILED, "process %d was forked from %d, which has used %s, and cannot use it itself",
                 (int)getpid(), (int)hand->process, hand->api->name);
    bl_error_advise(error, "Open groups in the process that the launcher started, and fork before that, if at all.");
    return BELAY_COMM_FAILED;
}

static belay_code refuse(const bl_hand *hand, bl_error *error)
{
    const char *name = hand->api->name;
    if (hand->lost == NULL) {
        bl_error_set(error, BELAY_CONF_ORDER, "a group over %s was opened while this process has one", name);
        bl_error_advise(error, "Close the first group, on all ranks, or use it.");
        return BELAY_CONF_ORDER;
    }
    bl_error_set(error, BELAY_COMM_FAILED, "%s cannot be used in this process again: %s", name, hand->lost);
    bl_error_advise(error, "Start the ranks anew.");
    return BELAY_COMM_FAILED;
}

static belay_code take_lasting(const bl_transport_api *api, bl_hand **out, bl_error *error)
{
    belay_code code = BELAY_OK;
    pthread_mutex_lock(&lasting_lock);
    if (lasting == NULL && (lasting = hand_new(api)) != NULL)
        atexit(finish_at_exit);
    if (lasting == NULL)
        code = bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the thread of a group");
    else if (lasting->process != getpid())
        code = refuse_forked(lasting, error);
    else if (lasting->is_taken)
        code = refuse(lasting, error);
    else
        lasting->is_taken = true;
    *out = lasting;
    pthread_mutex_unlock(&lasting_lock);
    return code;
}

belay_code bl_hand_take(const bl_transport_api *api, bl_hand **out, bl_error *error)
{
    if (api->is_lasting)
        return take_lasting(api, out, error);
    *out = hand_new(api);
    return *out != NULL ? BELAY_OK : bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the thread of a group");
}

void bl_hand_work(bl_hand *hand, bl_group_worker *worker, uint64_t *number)
{
    pthread_mutex_lock(&hand->lock);
    while (hand->job != NULL) /* it is about to let go of the one before */
        pthread_cond_wait(&hand->changed, &hand->lock);
    *number = ++hand->n_jobs;
    hand->job = worker;
    pthread_cond_broadcast(&hand->changed);
    pthread_mutex_unlock(&hand->lock);
}

static void quit(bl_hand *hand)
{
    pthread_mutex_lock(&hand->lock);
    hand->shall_quit = true;
    pthread_cond_broadcast(&hand->changed);
    pthread_mutex_unlock(&hand->lock);
    pthread_join(hand->thread, NULL);
    pthread_cond_destroy(&hand->changed);
    pthread_mutex_destroy(&hand->lock);
    bl_free(hand);
}

void bl_hand_leave(bl_hand *hand, bl_transport *whole, const char *lost)
{
    if (!hand->api->is_lasting) {
        if (lost == NULL)
            quit(hand);
        return;
    }
    pthread_mutex_lock(&lasting_lock);
    pthread_mutex_lock(&hand->lock);
    hand->is_taken = lost != NULL;
    hand->lost = lost;
    hand->transport = whole;
    pthread_mutex_unlock(&hand->lock);
    pthread_mutex_unlock(&lasting_lock);
}
