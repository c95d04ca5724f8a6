/* SPDX-License-Identifier: Apache-2.0 */
#include "data/feed.h"

#include <inttypes.h>
#include <signal.h>

#include "base/checked.h"
#include "base/memory.h"
#include "data/fill.h"
#include "data/order.h"
#include "data/words.h"
#include "tensor/caller.h"

typedef struct worker {
    struct bl_data_feed *feed;
    bl_data_hand hand;
    bl_caller_worker caller; /* what contexts know it by */
    pthread_t thread;
    bool is_running;
} worker;

struct bl_data_feed {
    const belay_dataset *dataset;
    bl_data_feed_options options;
    int64_t global; /* samples of a full global batch */
    int64_t n_batches, epoch;
    int64_t *order;    /* of the epoch, NULL when it is not shuffled */
    bl_data_hand hand; /* of the reading thread */
    bl_data_batch again;
    bl_data_batch *slots;
    int64_t n_slots, n_running;
    worker *workers;

    pthread_mutex_t mutex; /* guards what follows, and is_ready of every slot */
    pthread_cond_t has_room, has_batch;
    bool has_sync, is_stopping;
    int64_t next;         /* position that next gives next; the one before it is with the reader */
    int64_t given;        /* slots before this position may be refilled */
    int64_t next_to_fill; /* by a worker */
};

int64_t bl_data_feed_n_batches(const bl_data_feed *feed) { return feed->n_batches; }
int64_t bl_data_feed_n_workers(const bl_data_feed *feed) { return feed->n_running; }

/* This rank's part of the global batch; parts differ by one sample at most, the first ranks have the larger ones. */
static void fill(bl_data_feed *feed, bl_data_hand *hand, bl_data_batch *batch, int64_t position)
{
    const int64_t rank = feed->options.rank, ranks = feed->options.ranks;
    int64_t begin = position * feed->global; /* fits: position < n_batches */
    batch->epoch = feed->epoch;
    batch->position = position;
    batch->n_global = bl_min_i64(feed->global, feed->dataset->n_samples - begin);
    int64_t part = batch->n_global / ranks, rest = batch->n_global % ranks;
    batch->first = rank * part + bl_min_i64(rank, rest);
    bl_data_batch_fill(batch, hand, feed->order, begin + batch->first, part + (rank < rest));
}

static bool may_fill(const bl_data_feed *feed)
{
    return feed->next_to_fill < feed->n_batches && feed->next_to_fill < feed->given + feed->n_slots;
}

static void *work(void *argument)
{
    worker *me = argument;
    bl_data_feed *feed = me->feed;
    bl_caller_here = &me->caller;
    pthread_mutex_lock(&feed->mutex);
    while (!feed->is_stopping) {
        if (!may_fill(feed)) {
            pthread_cond_wait(&feed->has_room, &feed->mutex);
            continue;
        }
        int64_t position = feed->next_to_fill++;
        bl_data_batch *batch = &feed->slots[position % feed->n_slots];
        batch->is_ready = false;
        pthread_mutex_unlock(&feed->mutex);
        fill(feed, &me->hand, batch, position);
        pthread_mutex_lock(&feed->mutex);
        batch->is_ready = true;
        pthread_cond_signal(&feed->has_batch);
    }
    pthread_mutex_unlock(&feed->mutex);
    return NULL;
}

/* ---- the reader's side ------------------------------------------------------------------------------------------ */

void bl_data_feed_begin(bl_data_feed *feed, int64_t epoch, int64_t position)
{
    /* Workers wait until next_to_fill moves below, so the order is the reader's. */
    feed->epoch = epoch;
    if (feed->order != NULL)
        bl_data_order_shuffle(feed->order, feed->dataset->n_samples, feed->options.seed, (uint32_t)epoch);
    pthread_mutex_lock(&feed->mutex);
    feed->next = feed->given = feed->next_to_fill = bl_min_i64(position, feed->n_batches);
    pthread_cond_broadcast(&feed->has_room);
    pthread_mutex_unlock(&feed->mutex);
}

const bl_data_batch *bl_data_feed_next(bl_data_feed *feed)
{
    if (feed->next >= feed->n_batches)
        return NULL;
    int64_t position = feed->next++;
    bl_data_batch *batch = &feed->slots[position % feed->n_slots];
    if (feed->n_running == 0) {
        fill(feed, &feed->hand, batch, position);
        return batch;
    }
    pthread_mutex_lock(&feed->mutex);
    feed->given = position;
    pthread_cond_broadcast(&feed->has_room);
    while (feed->next_to_fill <= position || !batch->is_ready)
        pthread_cond_wait(&feed->has_batch, &feed->mutex);
    pthread_mutex_unlock(&feed->mutex);
    return batch;
}

const bl_data_batch *bl_data_feed_get(bl_data_feed *feed, int64_t position)
{
    if (position < 0 || position >= feed->n_batches)
        return NULL;
    fill(feed, &feed->hand, &feed->again, position);
    return &feed->again;
}

/* ---- opening and closing ---------------------------------------------------------------------------------------- */

/* Signals are for the program's own threads. */
static bool start(worker *w)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    w->is_running = pthread_create(&w->thread, NULL, work, w) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return w->is_running;
}

static belay_code make_slots(bl_data_feed *feed, bl_error *error)
{
    int64_t n_samples = bl_min_i64(feed->options.batch, feed->dataset->n_samples);
    feed->n_slots = feed->options.n_workers > 0 ? feed->options.prefetch + 1 : 1;
    feed->n_slots = bl_max_i64(1, bl_min_i64(feed->n_slots, feed->n_batches));
    feed->slots = bl_alloc(feed->n_slots, sizeof *feed->slots);
    if (feed->slots == NULL)
        return bl_data_no_memory(error, "the loader's batches", 0);
    for (int64_t i = 0; i < feed->n_slots; i++)
        TRY(bl_data_batch_init(&feed->slots[i], n_samples, feed->dataset->seq, error));
    return bl_data_batch_init(&feed->again, n_samples, feed->dataset->seq, error);
}

static belay_code make_order(bl_data_feed *feed, bl_error *error)
{
    if (!feed->options.shuffle)
        return BELAY_OK;
    feed->order = bl_alloc(feed->dataset->n_samples, sizeof *feed->order);
    return feed->order != NULL ? BELAY_OK : bl_data_no_memory(error, "the order of an epoch", 0);
}

/* A system that gives fewer threads, or none, makes the loader slower and changes nothing else. */
static belay_code start_workers(bl_data_feed *feed, bl_error *error)
{
    feed->workers = bl_alloc(feed->options.n_workers, sizeof *feed->workers);
    if (feed->workers == NULL)
        return bl_data_no_memory(error, "the loader's workers", 0);
    for (int64_t i = 0; i < feed->options.n_workers; i++) {
        worker *w = &feed->workers[i];
        w->feed = feed;
        w->caller.number = i;
        TRY(bl_data_hand_init(&w->hand, feed->dataset, error));
        if (!start(w))
            break;
        feed->n_running++;
    }
    return BELAY_OK;
}

static bool init_sync(bl_data_feed *feed)
{
    if (pthread_mutex_init(&feed->mutex, NULL) != 0)
        return false;
    if (pthread_cond_init(&feed->has_room, NULL) != 0) {
        pthread_mutex_destroy(&feed->mutex);
        return false;
    }
    feed->has_sync = pthread_cond_init(&feed->has_batch, NULL) == 0;
    if (!feed->has_sync) {
        pthread_cond_destroy(&feed->has_room);
        pthread_mutex_destroy(&feed->mutex);
    }
    return feed->has_sync;
}

static belay_code set_up(bl_data_feed *feed, bl_error *error)
{
    int64_t n = feed->dataset->n_samples;
    feed->global = feed->options.batch * feed->options.ranks; /* fits: both are at most INT32_MAX */
    feed->n_batches = n / feed->global + (n % feed->global != 0 && !feed->options.drop_last);
    feed->next = feed->given = feed->next_to_fill = feed->n_batches;
    if (!init_sync(feed))
        return bl_data_no_memory(error, "the loader's locks", 0);
    TRY(make_slots(feed, error));
    TRY(make_order(feed, error));
    TRY(bl_data_hand_init(&feed->hand, feed->dataset, error));
    return start_workers(feed, error);
}

belay_code bl_data_feed_open(const belay_dataset *dataset, const bl_data_feed_options *options, bl_data_feed **out,
                             bl_error *error)
{
    bl_data_feed *feed = bl_alloc(1, sizeof *feed);
    *out = NULL;
    if (feed == NULL)
        return bl_data_no_memory(error, "the loader", 0);
    feed->dataset = dataset;
    feed->options = *options;
    feed->options.ranks = bl_max_i64(options->ranks, 1);
    belay_code code = set_up(feed, error);
    if (code == BELAY_OK)
        *out = feed;
    else
        bl_data_feed_close(feed);
    return code;
}

static void stop_workers(bl_data_feed *feed)
{
    if (feed->workers == NULL)
        return;
    pthread_mutex_lock(&feed->mutex);
    feed->is_stopping = true;
    pthread_cond_broadcast(&feed->has_room);
    pthread_mutex_unlock(&feed->mutex);
    for (int64_t i = 0; i < feed->options.n_workers; i++) {
        if (feed->workers[i].is_running)
            pthread_join(feed->workers[i].thread, NULL);
        bl_data_hand_fini(&feed->workers[i].hand);
    }
    bl_free(feed->workers);
}

void bl_data_feed_close(bl_data_feed *feed)
{
    if (feed == NULL)
        return;
    stop_workers(feed);
    for (int64_t i = 0; feed->slots != NULL && i < feed->n_slots; i++)
        bl_data_batch_fini(&feed->slots[i]);
    bl_data_batch_fini(&feed->again);
    bl_data_hand_fini(&feed->hand);
    if (feed->has_sync) {
        pthread_cond_destroy(&feed->has_batch);
        pthread_cond_destroy(&feed->has_room);
        pthread_mutex_destroy(&feed->mutex);
    }
    bl_free(feed->slots);
    bl_free(feed->order);
    bl_free(feed);
}
