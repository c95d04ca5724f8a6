/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of workers.  A transport that wants one thread for all of its life keeps it: between groups it waits. */
#ifndef BL_DIST_HAND_H
#define BL_DIST_HAND_H

#include "dist/worker.h"

/* A thread for a group over that transport; conf.order when it has one that is in use, comm.failed when it has one that was
 * lost, mem.exhausted. */
BL_MUST_USE belay_code bl_hand_take(const bl_transport_api *api, bl_hand **out, bl_error *error);
/* Begins bl_worker_run in it; *number is that of the group among those of the thread, from 1. */
void bl_hand_work(bl_hand *hand, bl_group_worker *worker, uint64_t *number);
/* After the worker has closed.  `whole`: the transport of a group that did not fail, which may be finished one day.
 * `lost`: it has not closed, and may never, for the reason in these words; nobody waits for the thread any more. */
void bl_hand_leave(bl_hand *hand, bl_transport *whole, const char *lost);
/* worker_run.c: all that a group's thread does, from opening the transport to letting go of it. */
void bl_worker_run(bl_group_worker *worker);

#endif
