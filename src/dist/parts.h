/* SPDX-License-Identifier: Apache-2.0 */
/* A reducer inside.
 *
 *   ddp.c        made, freed, asked
 *   manifest.c   what the ranks are about to train, compared item by item
 *   plan.c       which parameter lies in which bucket
 *   bucket.c     buckets: their memory, their states, who may touch them
 *   rounds.c     what the ranks say before a reduction: whose it is
 *   reducer.c    follows backward: which gradients are whole, which bucket goes next
 *   agree.c      the end of a window: what the ranks tell each other, and what follows from it
 *   later.c      the same without waiting, on a device that waits instead
 *   same.c       whether their words fit together
 *
 * A round is one reduction of all buckets.  Buckets of a round go strictly in order, whatever the order in which they
 * fill, so that all ranks reduce the same. */
#ifndef BL_DIST_PARTS_H
#define BL_DIST_PARTS_H

#include <stddef.h>

#include "dist/plan.h"
#include "dist/reducer.h"
#include "dist/rounds.h"
#include "dist/stage.h"
#include "grad/tape.h"
#include "optim/optim.h"
#include "tensor/lease.h"

typedef enum bl_bucket_state {
    BL_BUCKET_FILLING,   /* gradients arrive, or rest */
    BL_BUCKET_SEALED,    /* all have arrived: nobody writes any more */
    BL_BUCKET_IN_FLIGHT, /* its turn came */
    BL_N_BUCKET_STATES
} bl_bucket_state;

typedef struct bl_bucket {
    bl_bucket_state state;
    int64_t number, pending, n_elements;
    belay_dtype dtype;
    belay_tensor flat;   /* [n_elements] */
    bl_lease gradients;  /* of `flat`, from sealed until reduced */
    bl_lease parameters; /* of the storages of its parameters: they may be read */
    bl_work work;
    bool is_awaited; /* the work may not be over; the device waits for it */
    uint32_t *gate;  /* of the window that it is reduced in */
    bl_stage stage;
    char words[96]; /* "bucket 2 of 3" */
} bl_bucket;

typedef struct bl_reduced {
    belay_tensor leaf;
    bl_grad_room room;
    int64_t last;  /* node of the tape after which nothing arrives any more; -1: nothing does */
    bool is_whole; /* in this round */
} bl_reduced;

/* A parameter that wanted no gradient when the reducer was made: it lies in no bucket. */
typedef struct bl_frozen {
    belay_tensor leaf;
    int64_t number; /* of the module */
} bl_frozen;

/* The end of a window that the device waits for.  The worker reads and writes what is below the line. */
typedef struct bl_later {
    bool is_on;     /* the main thread has not heard how it ended */
    bool has_scale; /* there is a loss scale */
    bl_stage words; /* holds the device until the work has ended */
    bl_stage scale; /* what the device has for the loss scale */
    bl_work work;
    /* ---- */
    belay_group *group;
    bl_device *device;
    uint32_t *gate;      /* of that window */
    bl_word *mine, *all; /* [1], [size] */
    uint64_t *value;     /* [size], to compare them */
} bl_later;

struct belay_reducer {
    bl_grave grave;         /* once it was freed */
    belay_context *context; /* NULL: the nil reducer */
    bool is_freed;
    belay_group *group;
    belay_module *module;
    belay_ddp_options options;
    int place;
    bl_stage_line line;
    bool syncs;
    int64_t n;
    bl_reduced *parameter;
    bl_frozen *frozen;
    int64_t n_frozen;
    bl_plan_parameter *sizes;
    int64_t *order; /* by `last`, the latest first */
    bl_plan plan;
    bl_bucket *bucket;
    int64_t *next_order; /* for another plan, from the next round on; NULL: none */
    bool has_learned;    /* the order of arrival */
    bool told_outside;   /* that an optimizer steps what no reducer averages */

    /* the walk at work */
    bool is_reached, is_walking;
    int64_t at;   /* of `order`: the next to be whole */
    int64_t next; /* bucket whose turn it is; plan.n_buckets: all have gone */
    uintptr_t walk_site;

    /* the window at work */
    bl_round round;
    int64_t n_rounds; /* begun in it */
    bool is_agreed;   /* its end was, with this */
    bl_verdict verdict;
    uint8_t *used; /* [n] */
    bl_later later;

    int64_t n_reduced;
    uint64_t n_windows; /* agreed on */
    uint64_t n_dropped; /* of them, those that count as no step here and may as one elsewhere */
    bl_grad_watch watch;
    bl_commit_hook hook;
};

static inline int64_t bl_reduced_number(const belay_reducer *r, const bl_grad_room *room)
{
    return (const bl_reduced *)(const void *)((const char *)room - offsetof(bl_reduced, room)) - r->parameter;
}

/* ---- bucket.c */

/* The buckets of that order, in place of those that are there; gradients move along.  False after a fault: the old ones
 * stay. */
BL_MUST_USE bool bl_buckets_make(belay_reducer *r, const int64_t *order);
void bl_buckets_free(belay_reducer *r);
/* Something arrives at that room; see bl_grad_room. */
bool bl_bucket_enter(bl_grad_room *room);
/* The parameter's part of its bucket is whole: its gradient, or zeros. */
void bl_bucket_arrive(belay_reducer *r, int64_t i);
/* Its turn: passes the gate and is posted. */
void bl_bucket_launch(belay_reducer *r, bl_bucket *b);
/* Waits for all that are in flight.  False when one failed: it was told. */
bool bl_buckets_settle(belay_reducer *r);
/* What is in flight goes back to its device, in the line, behind the works' ends.  This is not put before the ranks' words
 * have gone, or can go: the host may wait for the device until then.  A fault was told. */
belay_code bl_buckets_bring_back(belay_reducer *r);
/* They are filled again by what the device does behind the line; the next bl_buckets_settle waits for the works. */
void bl_buckets_release(belay_reducer *r);

/* ---- reducer.c */

void bl_reducer_follow(belay_reducer *r);
void bl_reducer_unfollow(belay_reducer *r);
/* Begins and ends a round in which nothing arrives: what gradients there are, else zeros. */
void bl_reducer_run_round(belay_reducer *r);
/* The same of a round whose words have gone; takes a reducer. */
void bl_reducer_join_round(void *state);

/* ---- agree.c */

void bl_agree_hook(void *state, belay_optimizer *optimizer);
void bl_agree_drop(void *state, belay_optimizer *optimizer);
void bl_agree_settle(void *state, belay_optimizer *optimizer);
void bl_agree_spoil(void *state, belay_optimizer *optimizer);

/* ---- later.c */

BL_MUST_USE bool bl_later_open(belay_reducer *r);
void bl_later_close(belay_reducer *r);
/* Whether a step of that optimizer can go on now while the ranks agree: if not, whoever ends the window waits for them. */
bool bl_later_may(const belay_reducer *r, const belay_optimizer *optimizer);
/* Ends the window: what the place's current stream is given from now on runs behind the ranks' agreement and behind the
 * buckets; where that says so, or it fails, the window's gate is closed before.  `word` is this rank's, but for what its
 * device has to tell. */
void bl_later_post(belay_reducer *r, const bl_word *word);
/* Before the host waits for the device; takes a reducer. */
void bl_later_await(void *state);
/* Waits until the ranks have agreed on the window before, if they have not, and does what then is the host's to do; the
 * verdict is in the reducer.  False in a broken group. */
bool bl_later_settle(belay_reducer *r);

/* ---- manifest.c */

/* Compares what the ranks are about to train; false after comm.mismatch and what a group's operations raise. */
BL_MUST_USE bool bl_manifest_agree(belay_reducer *r);

#endif
