/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallel: a group of ranks, collectives over it, and a reducer that averages a module's gradients.
 *
 * A *rank* is a process of the group, with a context of its own.  Each operation of a group is entered by every rank, in
 * the same order and with the same arguments.  Whether they did is compared before data move: a rank that calls something
 * else is named on all ranks (comm.mismatch).  Reductions of gradients are compared by the group's own thread, so that
 * backward does not wait for it.  One that does not come is named when the deadline is over
 * (comm.deadline); a rank that gave up is named at once (comm.peer).  After each of these the group is broken: what is
 * asked of it then is refused in silence, windows are not applied, and belay_close gives the status of the first of them; to
 * a rank that gave up by itself, that of its first fault, or 3.
 *
 * Nothing here aborts or exits, and nothing waits without end: an operation waits for a rank as long as the group's timeout
 * says, and ten times as long for one that belay_train has save or evaluate; where a call of the transport itself does not
 * return, a quarter of the timeout more. */
#ifndef BELAY_DIST_H
#define BELAY_DIST_H

#include <belay/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- groups ---------------------------------------------------------------------------------------------------------- */

typedef struct belay_group belay_group;

typedef struct belay_group_options {
    const char
        *maker; /* "self": this process alone; "mpi"; NULL: mpi in a process that mpirun or srun started, else self */
    double timeout; /* seconds that an operation waits for a rank (60) */
} belay_group_options;

/* Joins the group; all ranks call it.  Faults: comm.absent (no MPI here, or its plug-in is not found), comm.launch (RANK and
 * WORLD_SIZE are set, but nothing started ranks), comm.deadline, comm.failed, conf.value, conf.unknown, mem.exhausted.  One
 * MPI group in a process, and only one at a time. */
BELAY_API belay_group *belay_group_open(belay_context *ctx, const belay_group_options *options);
BELAY_API bool belay_group_is_nil(const belay_group *group);

/* This rank, and how many there are; the same among those of this host.  0 and 1 for a nil group. */
BELAY_API int belay_group_rank(const belay_group *group);
BELAY_API int belay_group_size(const belay_group *group);
BELAY_API int belay_group_local_rank(const belay_group *group);
BELAY_API int belay_group_local_size(const belay_group *group);

/* Makes the rank's device the current one, after all have said theirs: "cpu" is shared; of "sim" and "cuda" the one of the
 * local rank is taken, or the one that is named ("sim:1").  Devices of those kinds are exclusive: two ranks on one are
 * refused, with a table of all (place.shared).  So is a global rank where a device's number was meant.  Before this, the
 * group's operations are refused (conf.order): a collective would bind the wrong device. */
BELAY_API BELAY_MUST_USE belay_code belay_group_bind(belay_group *group, const char *device);

typedef enum belay_group_op {
    BELAY_GROUP_SUM = 0, /* of f32, f64, bf16, f16, i64, i32 */
    BELAY_GROUP_MAX = 1, /* of the same, and u16, u8, bool */
    BELAY_GROUP_OR = 2   /* of integers and bool, bit by bit */
} belay_group_op;

/* Operations over contiguous tensors of as many elements and of one dtype on all ranks; each waits for its end, which writes the tensor.
 * Sums are added in the order of the transport, the same on every run of as many ranks.  Faults: comm.mismatch,
 * comm.deadline, comm.peer, comm.failed, type.dtype, shape.contract, life.stale, conf.order, conf.value. */
BELAY_API BELAY_MUST_USE belay_code belay_group_all_reduce(belay_group *group, belay_tensor tensor, belay_group_op op);
BELAY_API BELAY_MUST_USE belay_code belay_group_broadcast(belay_group *group, belay_tensor tensor, int root);
/* `out` is [size, ...] of in's shape, in the order of ranks. */
BELAY_API BELAY_MUST_USE belay_code belay_group_all_gather(belay_group *group, belay_tensor in, belay_tensor out);
BELAY_API BELAY_MUST_USE belay_code belay_group_barrier(belay_group *group);

/* The least of what the ranks give, for loops whose inputs are uneven: how many batches all of them have.  *agreed is that
 * number; a rank with more is warned that it leaves them out (comm.uneven).  A NULL `agreed` is conf.missing. */
BELAY_API BELAY_MUST_USE belay_code belay_group_agree(belay_group *group, int64_t n, int64_t *agreed);

/* This rank gives up: the others hear `why` (comm.peer) at their next operation, or in the one that they wait in.  Here
 * nothing is told; belay_close gives the status of this rank's first fault, 3 when it has none. */
BELAY_API void belay_group_abort(belay_group *group, const char *why);

/* Leaves the group; all ranks call it, after the reducers over it were freed.  The context's close does it otherwise. */
BELAY_API void belay_group_close(belay_group *group);

/* ---- gradients ------------------------------------------------------------------------------------------------------- */

/* Averages the gradients of a module over the ranks of a group, while backward still runs. */
typedef struct belay_reducer belay_reducer;

typedef struct belay_ddp_options {
    int64_t first_bucket_bytes;  /* of the bucket that is reduced first (1 MiB) */
    int64_t bucket_bytes;        /* of the others (25 MiB) */
    bool find_unused_parameters; /* a backward need not reach all parameters; else one that does not is comm.unused */
    bool broadcast_buffers;      /* rank 0's, at each belay_ddp_forward */
    bool no_overlap;             /* reduce after backward instead of during it: to measure what overlap is worth */
    int64_t batch;               /* samples of a micro-batch on this rank, to be the same on all (0: not compared) */
    int64_t digest_every;        /* steps between two comparisons of all parameters' bits (100; negative: never) */
} belay_ddp_options;

/* From now on gradients of the module's parameters lie in buckets, and each backward averages them over the group; each
 * step agrees over the group whether it is applied.  First of all the ranks compare what they are about to train: names,
 * order, shapes, dtypes, which want gradients, buffers, options, seed, build; then all take parameters and buffers of
 * rank 0.  All ranks call it.  The module's parameters must lie on one device.  A backward over a parameter that wants
 * a gradient only since then is refused (conf.order): make the reducer anew.  Faults: comm.mismatch (with the rank that
 * differs, and in what), those of a group's operations, conf.value, conf.order (a parameter that another reducer has),
 * place.device, mem.exhausted.  An optimizer that steps one of these parameters together with some that lie in no
 * reducer is warned once (comm.outside). */
BELAY_API belay_reducer *belay_ddp(belay_module *module, belay_group *group, const belay_ddp_options *options);
BELAY_API bool belay_reducer_is_nil(const belay_reducer *reducer);

/* The module's forward, after rank 0's buffers went to all where that was asked for; else the same as belay_forward. */
BELAY_API belay_tensor belay_ddp_forward(belay_reducer *reducer, belay_tensor x);

/* Whether the next backwards average (true at first); returns what it was.  While they do not, gradients add up on each
 * rank; the first backward that averages again takes all of it along. */
BELAY_API bool belay_ddp_sync_set(belay_reducer *reducer, bool syncs);

/* Questions.  Buckets, and which of them a parameter of the module lies in; how often gradients were averaged: at each
 * backward that averages, and once more at a step that none came before since the last one, as that of a second optimizer
 * over the same reducer (of what is the same on all ranks already). */
BELAY_API int64_t belay_reducer_n_buckets(const belay_reducer *reducer);
BELAY_API int64_t belay_reducer_bucket_of(const belay_reducer *reducer, int64_t parameter);
BELAY_API int64_t belay_reducer_n_reduced(const belay_reducer *reducer);

/* Gradients go their own ways again.  Refused (conf.order) inside of a backward; what is on its way is waited for. */
BELAY_API void belay_reducer_free(belay_reducer *reducer);

#ifdef __cplusplus
}
#endif
#endif
