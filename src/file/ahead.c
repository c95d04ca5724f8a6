/* SPDX-License-Identifier: Apache-2.0 */
#include "file/ahead.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/checked.h"
#include "base/memory.h"

/* The consumer holds two buffers, so two are left to read into. */
enum { n_buffers = 4, n_held = 2 };
#ifdef BELAY_SMALL
enum { smallest_file = 1000 };
#else
enum { smallest_file = 1 << 20 };
#endif

struct bl_ahead {
    int64_t front_bytes, block_bytes;
    char *buffers[n_buffers];
    bl_input *input;
    bool has_thread;
    pthread_t thread;
    int64_t n_taken; /* blocks that were asked for */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: */
    int64_t n_read; /* blocks */
    int64_t n_bytes[n_buffers];
    int64_t n_free; /* blocks that the consumer has let go */
    bool is_stopping;
};

bl_ahead *bl_ahead_new(int64_t front_bytes, int64_t block_bytes)
{
    int64_t room;
    bl_ahead *ahead = bl_checked_add(front_bytes, block_bytes, &room) ? bl_alloc(1, sizeof *ahead) : NULL;
    if (ahead == NULL)
        return NULL;
    ahead->front_bytes = front_bytes;
    ahead->block_bytes = block_bytes;
    (void)pthread_mutex_init(&ahead->lock, NULL);
    (void)pthread_cond_init(&ahead->changed, NULL);
    bool has_all = true;
    for (int i = 0; i < n_buffers; i++) {
        ahead->buffers[i] = bl_alloc(room, 1);
        has_all = has_all && ahead->buffers[i] != NULL;
    }
    if (has_all)
        return ahead;
    bl_ahead_free(ahead);
    return NULL;
}

void bl_ahead_free(bl_ahead *ahead)
{
    if (ahead == NULL)
        return;
    for (int i = 0; i < n_buffers; i++)
        bl_free(ahead->buffers[i]);
    (void)pthread_cond_destroy(&ahead->changed);
    (void)pthread_mutex_destroy(&ahead->lock);
    bl_free(ahead);
}

static int64_t read_block(bl_ahead *ahead, int64_t block)
{
    return bl_input_read(ahead->input, ahead->buffers[block % n_buffers] + ahead->front_bytes, ahead->block_bytes);
}

static bool wait_for_room(bl_ahead *ahead, int64_t block)
{
    (void)pthread_mutex_lock(&ahead->lock);
    while (!ahead->is_stopping && block - ahead->n_free >= n_buffers)
        (void)pthread_cond_wait(&ahead->changed, &ahead->lock);
    bool has_room = !ahead->is_stopping;
    (void)pthread_mutex_unlock(&ahead->lock);
    return has_room;
}

static void *read_on(void *state)
{
    bl_ahead *ahead = state;
    int64_t n = ahead->block_bytes;
    for (int64_t block = 0; n == ahead->block_bytes && wait_for_room(ahead, block); block++) {
        n = read_block(ahead, block);
        (void)pthread_mutex_lock(&ahead->lock);
        ahead->n_bytes[block % n_buffers] = n;
        ahead->n_read = block + 1;
        (void)pthread_cond_signal(&ahead->changed);
        (void)pthread_mutex_unlock(&ahead->lock);
    }
    return NULL;
}

void bl_ahead_start(bl_ahead *ahead, bl_input *input)
{
    ahead->input = input;
    ahead->n_taken = ahead->n_read = ahead->n_free = 0;
    ahead->is_stopping = false;
    ahead->has_thread =
        bl_input_n_bytes(input) >= smallest_file && pthread_create(&ahead->thread, NULL, read_on, ahead) == 0;
}

char *bl_ahead_next(bl_ahead *ahead, int64_t *n_bytes)
{
    int64_t block = ahead->n_taken++;
    if (ahead->has_thread) {
        (void)pthread_mutex_lock(&ahead->lock);
        ahead->n_free = bl_max_i64(0, block + 1 - n_held);
        (void)pthread_cond_signal(&ahead->changed);
        while (ahead->n_read <= block)
            (void)pthread_cond_wait(&ahead->changed, &ahead->lock);
        *n_bytes = ahead->n_bytes[block % n_buffers];
        (void)pthread_mutex_unlock(&ahead->lock);
    } else {
        *n_bytes = read_block(ahead, block);
    }
    return ahead->buffers[block % n_buffers] + ahead->front_bytes;
}

void bl_ahead_stop(bl_ahead *ahead)
{
    if (!ahead->has_thread)
        return;
    (void)pthread_mutex_lock(&ahead->lock);
    ahead->is_stopping = true;
    (void)pthread_cond_signal(&ahead->changed);
    (void)pthread_mutex_unlock(&ahead->lock);
    (void)pthread_join(ahead->thread, NULL);
    ahead->has_thread = false;
}
