/* SPDX-License-Identifier: Apache-2.0 */
/* Between a device whose memory the host cannot read and the group's worker, which can read nothing else.
 *
 *   producers ... kernels | event          (each stream that writes a part)
 *   line          waits for all events, copy to the host |               hold | copy back | event
 *   worker                                               reduces on the host
 *   consumer                                                                              waits, kernels ...
 *
 * The line is a stream of its own, so that copies go beside the kernels; the host puts all of it and waits for nothing.
 * The line waits for the events that it was told of and for nothing else: a part that another stream writes without one
 * is a race, and is told (life.stream).
 *
 * On a synchronous device a stage holds nothing and everything here is free: what is reduced is the tensor's own memory. */
#ifndef BL_DIST_STAGE_H
#define BL_DIST_STAGE_H

#include "dist/group.h"

/* The stream that copies go by, of all stages of one place. */
typedef struct bl_stage_line {
    int place;
    int stream; /* of the context; BL_STREAM_NONE: a synchronous device has none */
} bl_stage_line;

/* Memory of the host for one tensor.  Zeros are one that holds nothing. */
typedef struct bl_stage {
    const bl_stage_line *line;
    void *host; /* NULL: the tensor's own memory is the host's */
    int64_t n_bytes;
    bl_event
        filled[BL_MAX_STREAMS]; /* of each stream, the last event behind which its part is written; number 0: none */
    uint32_t filled_by[BL_MAX_STREAMS]; /* its generation */
    uint64_t ended, generation;         /* of the works, as the worker says and as they were given */
    uint64_t last;                      /* command of the line */
    bool is_out;                        /* else there is nothing to bring back */
} bl_stage;

/* False after a fault: size.overflow, mem.exhausted, place.lost. */
BL_MUST_USE bool bl_stage_line_open(belay_context *context, int place, bl_stage_line *line);
/* Waits for what was put there. */
void bl_stage_line_close(belay_context *context, bl_stage_line *line);

/* The line outlives its stages, and a stage never moves.  False after mem.exhausted. */
BL_MUST_USE bool bl_stage_init(belay_context *context, const bl_stage_line *line, int64_t n_bytes, bl_stage *stage);
/* No work of it is under way.  Waits for its copies; where works of the group have failed it keeps the memory. */
void bl_stage_fini(belay_context *context, bl_stage *stage, belay_group *group);

/* What the place's current stream was given so far has written its part. */
void bl_stage_filled(belay_context *context, bl_stage *stage);

/* Puts a copy of a contiguous tensor of at most n_bytes into the line, behind all parts, and fills in what of the work is
 * the stage's: data, ready, ready_at, ended_word, ended_value.  The work before is over.  After a fault (life.stream,
 * place.lost, mem.exhausted) the work is filled in all the same and reduces zeros, so that no other rank waits for it. */
belay_code bl_stage_out(belay_context *context, bl_stage *stage, belay_tensor tensor, bl_work *work);
/* Puts the copy back behind the work's end.  After it nothing but the line may touch the tensor; bl_stage_join orders
 * a stream behind it. */
belay_code bl_stage_back(belay_context *context, bl_stage *stage, belay_tensor tensor);
/* What is put into the line from now on runs behind the end of a work that has no data on the device, such as words: fills
 * in ended_word and ended_value.  The work before is over. */
belay_code bl_stage_hold(belay_context *context, bl_stage *stage, bl_work *work);
/* What is put into the place's current stream from now on runs behind all that is in the line. */
belay_code bl_stage_join(belay_context *context, const bl_stage_line *line);

/* The work may begin when all that was put into any stream of the place has ended: its `begin` reads words that kernels
 * write for the host, such as a window's gate. */
void bl_stage_behind(belay_context *context, int place, bl_work *work);

/* Before the host waits for a work: devices that go on at the host's calls only get to where it may begin. */
void bl_stage_reach(belay_context *context, const bl_work *work);

#endif
