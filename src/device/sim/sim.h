/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the software device share.  Outside of this folder it is for tests only. */
#ifndef BL_DEVICE_SIM_SIM_H
#define BL_DEVICE_SIM_SIM_H

#include <pthread.h>
#include <sys/types.h>

#include "device/cpu/kernel.h"
#include "device/device.h"
#include "device/sim/arena.h"
#include "device/sim/scratch.h"

typedef struct bl_sim bl_sim;
typedef struct bl_sim_queue bl_sim_queue;

typedef enum bl_sim_kind {
    BL_SIM_RUN,
    BL_SIM_CALL,
    BL_SIM_COPY_IN,
    BL_SIM_COPY_OUT,
    BL_SIM_WAIT,
    BL_SIM_HOLD
} bl_sim_kind;

/* One thing for a stream to do. */
typedef struct bl_sim_command {
    struct bl_sim_command *next;
    bl_sim_kind kind;
    union {
        bl_launch launch;
        struct {
            void (*body)(void *state);
            void *state;
            uint64_t serial;
        } call;
        struct {
            void *device;
            void *host;
            int64_t n_bytes;
            void *staged; /* COPY_IN: our copy of the host's bytes, or NULL */
        } copy;
        struct {
            bl_sim_queue *of; /* held */
            uint64_t number;
        } wait;
        struct {
            const uint64_t *word;
            uint64_t value;
        } hold;
    };
} bl_sim_command;

/* A stream.  Counts and list are under `lock`; the queue outlives its device while another one's command waits for it. */
struct bl_sim_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bl_sim_command *first, *last;
    uint64_t put, passed;
    uint64_t *shown; /* where `passed` stands for others, too; NULL: nowhere */
    int number;      /* of the stream */
    int holders;
    bool is_ending; /* its thread ends when it is empty */
    bl_sim *sim;
    pthread_t thread;
    bl_sim_scratch scratch;
    bl_cpu cpu; /* one thread */
};

/* Who runs the commands, and when. */
typedef struct bl_sim_engine {
    bool (*start)(bl_sim_queue *queue);
    /* The queue is empty. */
    void (*stop)(bl_sim_queue *queue);
    /* The host called. */
    void (*tick)(bl_sim *sim);
    /* Returns when `number` commands have ended. */
    void (*wait)(bl_sim_queue *queue, uint64_t number);
} bl_sim_engine;

extern const bl_sim_engine bl_sim_free_engine;   /* a thread a stream */
extern const bl_sim_engine bl_sim_seeded_engine; /* the host's own calls, as the seed says */

struct bl_sim {
    bl_device device;
    bl_sim_arena arena;
    bl_pool *pool;
    const bl_sim_engine *engine;
    pid_t process; /* that opened it */
    uint64_t seed, n_draws;
    bl_sim_queue *queue[BL_MAX_DEVICE_STREAMS]; /* NULL where there is no stream */
    bl_device_options options;
    uint64_t counted[BL_MAX_DEVICE_STREAMS]; /* commands of the streams that had that number before */
    /* Set once, by the thread whose kernel went astray; `access` is written before. */
    pthread_mutex_t loss_lock;
    bool is_lost;
    bl_access access;
    bool is_closing; /* nothing waits for words of the host any more */
    /* A kernel found no scratch memory: told by the next wait. */
    bool is_out_of_memory;
};

/* Puts body(state) into a stream; it runs as a kernel does. */
belay_code bl_sim_call(bl_device *device, int stream, void (*body)(void *state), void *state, uint64_t serial);

/* Whether the kernel of a user's own follows an address of the host that its parameters hold: then `out` is what it did
 * there.  Its operands are aliases already, and are as before. */
bool bl_sim_follows_host(const bl_cpu *cpu, const bl_launch *launch, bl_access *out);
/* Before the first command: a fork that is under way when a handler is registered does not run it. */
void bl_sim_watch_forks(void);
bool bl_sim_is_lost(const bl_sim *sim);
/* Whether the command waits for a word of the host that has not come. */
bool bl_sim_is_held(const bl_sim *sim, const bl_sim_command *command);
/* Until that word is looked at again: nobody tells when it comes.  `n`: how often it was. */
void bl_sim_doze(int n);
/* Runs one command, which was taken from the queue; nothing when the device is lost. */
void bl_sim_execute(bl_sim_queue *queue, bl_sim_command *command);

/* A queue that counts on from `counted`; NULL when there is no memory. */
bl_sim_queue *bl_sim_queue_new(bl_sim *sim, uint64_t counted);
void bl_sim_queue_hold(bl_sim_queue *queue);
void bl_sim_queue_release(bl_sim_queue *queue);
/* Returns the command's number. */
uint64_t bl_sim_queue_put(bl_sim_queue *queue, bl_sim_command *command);
bl_sim_command *bl_sim_queue_first(bl_sim_queue *queue);
/* Its first command has ended. */
void bl_sim_queue_pass(bl_sim_queue *queue);
/* Its count of ended commands stands there, too; NULL: nowhere. */
void bl_sim_queue_show(bl_sim_queue *queue, uint64_t *shown);
uint64_t bl_sim_queue_n_put(bl_sim_queue *queue);
uint64_t bl_sim_queue_n_passed(bl_sim_queue *queue);
void bl_sim_command_free(bl_sim_command *command);

#endif
