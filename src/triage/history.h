/* SPDX-License-Identifier: Apache-2.0 */
/* What each GPU of this machine has done before: one small file a GPU, so that the second fault of a bad board is seen
 * as a second one.
 *
 *   <folder>/<identity>.tsv     one line an event, oldest first: time, mark, code, pid, gpc, tpc, program
 *
 * The folder is $XDG_STATE_HOME/belay/gpu, else ~/.local/state/belay/gpu.  At most BL_HISTORY_MOST lines a file: the
 * oldest go.  Lines that cannot be read are dropped and counted; a file that cannot be read is an empty history with a
 * note, never a failure of the run.  Nothing is written before bl_history_save.  The same event told twice (a log that
 * is explained again) is one event. */
#ifndef BL_TRIAGE_HISTORY_H
#define BL_TRIAGE_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attributes.h"
#include "base/error.h"

enum { BL_HISTORY_MOST = 256, BL_HISTORY_GPU = 80, BL_HISTORY_PROGRAM = 32 };

typedef struct bl_history_event {
    int64_t time;  /* seconds since 1970 */
    int64_t code;  /* Xid; 0: a reset or a repair, from which on counts begin anew */
    int64_t pid;   /* -1: not known */
    int gpc, tpc;  /* -1: not known */
    uint64_t mark; /* the same event has the same mark, whichever run tells it (bl_history_mark) */
    char program[BL_HISTORY_PROGRAM];
} bl_history_event;

typedef struct bl_history bl_history;

typedef struct bl_history_options {
    bool is_off;        /* neither read nor write: every history is empty */
    const char *folder; /* NULL: as above */
} bl_history_options;

/* Never fails for what is on disk.  mem.exhausted only. */
BL_MUST_USE belay_code bl_history_open(const bl_history_options *options, bl_history **out, bl_error *error);
void bl_history_close(bl_history *history);

/* Where the files are, "" when there is no place (off, or neither variable is set). */
const char *bl_history_folder(const bl_history *history);
/* One sentence about what could not be read or kept, "" when all is well. */
const char *bl_history_note(const bl_history *history);

/* Identity of a GPU: its UUID, else "<host>-<pci>".  Only letters, digits, '-', '_' and '.' are kept of either. */
void bl_history_identity(const char *uuid, const char *host, const char *pci, char identity[BL_HISTORY_GPU]);

/* A mark of an event from its bytes and its time. */
uint64_t bl_history_mark(const char *text, int64_t n_bytes, int64_t time);

/* The events of a GPU, oldest first; reads its file on the first call.  NULL and 0 when there are none. */
const bl_history_event *bl_history_get(bl_history *history, const char *identity, int *n_events);

/* Adds an event (in memory).  One whose mark is there already, and one that cannot be held (numbers out of their range,
 * no place, too many GPUs), changes nothing.  mem.exhausted. */
BL_MUST_USE belay_code bl_history_add(bl_history *history, const char *identity, const bl_history_event *event,
                                      bl_error *error);

typedef struct bl_history_count {
    int64_t n_events; /* of these codes */
    int64_t n_pids, n_programs;
    int64_t first, last; /* seconds since 1970; 0 without events */
} bl_history_count;

/* Events with `code` (0: any) at or after `since`, and after the last reset or repair. */
bl_history_count bl_history_count_get(bl_history *history, const char *identity, int64_t code, int64_t since);

/* Writes what changed; each file whole or not at all.  file.write when it cannot: nothing that was there is lost.  A file
 * that was there and could not be read is left as it is. */
BL_MUST_USE belay_code bl_history_save(bl_history *history, bl_error *error);

#endif
