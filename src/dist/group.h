/* SPDX-License-Identifier: Apache-2.0 */
/* A group inside: the thread that owns the transport, what it is given to do, and the words that ranks exchange.
 *
 *   main thread                              worker thread
 *   posts a work into the queue       ->     starts it when its turn has come and `ready` is reached, asks until it ended
 *   waits for it (or goes on)         <-     marks it ended, or failed at the deadline; sends and reads heartbeats
 *
 * Works of a plane are started in the order in which they were posted.  Between two questions the worker sleeps, longer
 * the longer nothing happens.  A work that failed is abandoned: its memory is not freed, since the transport may still
 * write there.  Where the worker itself does not come back from the transport, the main thread fails all works in its place. */
#ifndef BL_DIST_GROUP_H
#define BL_DIST_GROUP_H

#include "dist/transport.h"
#include "tensor/context.h"

/* ---- words: what ranks tell each other before anything moves ---------------------------------------------------------- */

enum { BL_WORD_BYTES = 256, BL_WORD_SITE = 64 };

typedef enum bl_call_kind {
    BL_CALL_NONE,
    BL_CALL_BIND,
    BL_CALL_ALL_REDUCE,
    BL_CALL_BROADCAST,
    BL_CALL_ALL_GATHER,
    BL_CALL_BARRIER,
    BL_CALL_AGREE,
    BL_CALL_MANIFEST, /* of a reducer; `count` says which part of it */
    BL_CALL_ROUND,    /* of a reducer, whose number is `count` */
    BL_CALL_STEP,     /* a window's end */
    BL_CALL_CLOSE,
    BL_N_CALLS
} bl_call_kind;

/* The same on all ranks, or it is a mismatch: `kind` to `root`.  The rest is told. */
typedef struct bl_word {
    uint32_t kind; /* bl_call_kind */
    uint32_t dtype, op, root;
    uint64_t number;  /* how many calls of this plane came before */
    int64_t count;    /* elements */
    uint64_t step;    /* of the context */
    int64_t value;    /* BIND: ordinal; AGREE: n; others: the caller's */
    uint64_t hash;    /* of what was launched on the data plane since the group was opened */
    uint32_t flags;   /* BL_FLAG_... */
    uint32_t scale;   /* STEP: bits of the loss scale (f32), 0: none */
    uint64_t digest;  /* STEP: of all parameters, 0: not this time; MANIFEST: of the part */
    int64_t n_batch;  /* STEP: samples of the last micro-batch */
    double figure[3]; /* STEP: the trainer's */
    uint32_t epoch, position;
    char site[BL_WORD_SITE]; /* "train.c:88", cut */
    char more[80];           /* BIND: device and host; others: a name */
} bl_word;
_Static_assert(sizeof(bl_word) == BL_WORD_BYTES, "a word has a fixed size");

enum {
    BL_FLAG_FAULT = 1,    /* any call: a fault in the window, which must not be applied */
    BL_FLAG_OVERFLOW = 2, /* gradients that no bucket holds are not finite */
    BL_FLAG_ABSENT = 4,   /* the rank had no backward in the window */
    BL_FLAG_STOP = 8,     /* it was asked to stop */
    BL_FLAG_SCALED = 64,  /* its gradients are times a loss scale */
    BL_FLAG_REFUSED = 32, /* any call: refused on this rank, which told why; the same on all ranks as the kind is */
    BL_FLAG_FOLLOWS = 128 /* never sent: see bl_words_follow */
};

/* ---- works ------------------------------------------------------------------------------------------------------------ */

typedef enum bl_work_state {
    BL_WORK_IDLE,
    BL_WORK_POSTED,
    BL_WORK_UNDER_WAY,
    BL_WORK_ENDED,
    BL_WORK_FAILED
} bl_work_state;
typedef enum bl_work_kind { BL_WORK_ALL_REDUCE, BL_WORK_BROADCAST, BL_WORK_ALL_GATHER } bl_work_kind;

typedef struct bl_work {
    bl_work_kind kind;
    bl_plane plane;
    void *data;       /* all-gather: where all arrives */
    const void *mine; /* all-gather */
    int64_t n;        /* elements; broadcast, all-gather: bytes */
    belay_dtype dtype;
    belay_group_op op;
    int root;
    float factor;          /* floats are multiplied by it before they are summed; 0: they are not */
    uint64_t after;        /* the worker begins when so many words of the group are over, well */
    const uint64_t *ready; /* ... and when *ready >= ready_at (acquire); NULL: at once */
    uint64_t ready_at;
    /* Called by the worker, before the operation begins, and when it has ended (`failed`: it has not; by the main thread where
     * the worker does not come back from a call).  NULL: nobody is. */
    void (*begin)(void *state);
    void (*end)(void *state, bool failed);
    void *state_of;
    uint64_t *ended_word; /* gets ended_value (release) when it ended or failed; NULL: nobody waits on a device */
    uint64_t ended_value;
    const char *what; /* "bucket 3 of model", for reports; lives as long */
    uintptr_t site;   /* of the call that posted it */

    bl_work_state state; /* atomic; the worker's once it is posted */
    int64_t posted;      /* clock */
    uint64_t number;     /* of its plane */
    bool is_started;
    int request;
    struct bl_work *next;
} bl_work;

/* What the main thread is at, as peers are told by heartbeats. */
typedef enum bl_phase {
    BL_PHASE_OUTSIDE,
    BL_PHASE_DATA,
    BL_PHASE_FORWARD,
    BL_PHASE_BACKWARD,
    BL_PHASE_AGREE,  /* waits for the word of a window's end */
    BL_PHASE_REDUCE, /* waits for buckets */
    BL_PHASE_UPDATE,
    BL_PHASE_EVALUATE,
    BL_PHASE_SAVE,
    BL_N_PHASES
} bl_phase;
extern const char *const bl_phase_names[BL_N_PHASES];

typedef struct bl_group_worker bl_group_worker;

struct belay_group {
    bl_grave grave;         /* once it was closed */
    belay_context *context; /* NULL: the nil group */
    bool is_closed, is_bound;
    bool gave_up, has_ended; /* this rank said so; the ranks' last call was made */
    bl_transport_place place;
    int64_t timeout;   /* ns */
    uint64_t n_calls;  /* on the plane of words */
    uint64_t hash;     /* of the plane of data */
    belay_code broken; /* why nothing is asked of it any more; BELAY_OK: it is whole */
    int n_reducers;
    struct bl_round *rounds; /* of its reducers; see dist/rounds.h */
    int64_t n_rounds_opened;
    struct belay_reducer *later; /* whose word the ranks have yet to agree on; NULL: nobody's */
    bl_word *all;                /* [size], of the last exchange */
    bl_word *mine;
    bl_group_worker *worker;
    struct bl_group_sites *sites; /* words of the sites that called last */
};

/* At the beginning of a call: whether the group may be used; told when it may not (life.stale, conf.order before it is
 * bound, silent when it is broken or nil). */
bool bl_group_use(belay_group *group);

/* Fills in kind, number, hash, step, position, whether the window has faulted, and the site of the call at work, or that
 * site; the rest is zero. */
bl_word bl_group_word(belay_group *group, bl_call_kind kind);
bl_word bl_group_word_at(belay_group *group, bl_call_kind kind, uintptr_t site);

/* Tells every rank this rank's word and waits for all of theirs, which are in group->all then.  Where the others average
 * first, and this rank's window is lost, it takes part in that before.  Raises comm.mismatch where words do not fit together,
 * comm.deadline, comm.peer. */
BL_MUST_USE belay_code bl_group_exchange(belay_group *group, const bl_word *mine);

/* The same as a work, for whoever may not wait: fill in `begin`, `end`; `all` is group-sized room for words.  Then
 * bl_group_settle_words is for `end` (any thread): who follows whom, and whether the rest fits together; where it does not
 * the group is broken, and the main thread tells. */
void bl_group_exchange_work(bl_word *mine, bl_word *all, bl_work *work);
bool bl_group_settle_words(belay_group *group, bl_word *all);

/* Posts a work; folds it into the group's hash when it is of the plane of data.  In a broken group it has failed when this
 * returns, and its `end` was called by this thread. */
void bl_group_post(belay_group *group, bl_work *work);
/* Waits until it has ended or failed.  False when it failed: what for is told by the main thread here, once for the group. */
BL_MUST_USE bool bl_group_wait(belay_group *group, bl_work *work);
/* The same, and tells nothing: the next call does. */
void bl_group_await(belay_group *group, bl_work *work);
static inline bool bl_work_is_over(const bl_work *work)
{
    bl_work_state state = __atomic_load_n(&work->state, __ATOMIC_ACQUIRE);
    return state != BL_WORK_POSTED && state != BL_WORK_UNDER_WAY;
}
/* Tells what the worker met since; waits for nothing.  The group is broken then. */
void bl_group_look(belay_group *group);
/* Why works of the group fail, for their `end` (any thread). */
belay_code bl_group_failure(const belay_group *group);
/* Memory of a work that failed, from base/memory.h: kept, since the transport may still write there.  NULL is fine. */
void bl_group_keep(belay_group *group, void *memory);
/* Breaks the group for what a caller found: any thread, a work's `end` too.  `culprits`: ranks whose fault it is, NULL and
 * 0 where it is nobody's.  Works that are not over fail; the main thread tells at its next call.  The first one counts. */
void bl_group_break(belay_group *group, const bl_report_fault *fault, const int *culprits, int n_culprits);

/* This rank cannot go on: the others are told by the words of its first fault.  False when it has none. */
bool bl_group_give_up_by_fault(belay_group *group);

/* Host memory from one rank to all, or of all, or joined, for rooms above; `what` as of a work.  Words are compared first. */
BL_MUST_USE belay_code bl_group_host_broadcast(belay_group *group, void *data, int64_t n_bytes, int root,
                                               const char *what);
BL_MUST_USE belay_code bl_group_host_all_reduce(belay_group *group, void *data, int64_t n, belay_dtype dtype,
                                                belay_group_op op, const char *what);
BL_MUST_USE belay_code bl_group_host_all_gather(belay_group *group, const void *mine, void *all, int64_t n_bytes,
                                                const char *what);

/* From now on heartbeats say that this rank is there; returns what it said before. */
bl_phase bl_group_phase(belay_group *group, bl_phase phase);

/* After comm.deadline or comm.peer: the lowest rank that is still heard of, this one included. */
int bl_group_lowest_survivor(const belay_group *group);

#endif
