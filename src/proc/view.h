/* SPDX-License-Identifier: Apache-2.0 */
/* The live view: what the ranks say, on two descriptors of ours.  For one program byte by byte as it came; for several
 * line by line behind "[rank3]: ".  Escape sequences pass as they are.
 *
 * Where ranks are started by another launcher, each has a supervisor of its own there, whose view goes through the launcher
 * into ours: its lines are *marked* with the rank, which bl_view_marked finds again.
 *
 * It never blocks: a view whose reader is slow has no room, and then its owner leaves the bytes in the pipes.  A view
 * that cannot be written to any more swallows all. */
#ifndef BL_PROC_VIEW_H
#define BL_PROC_VIEW_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { BL_VIEW_READ = 64 * 1024 }; /* the most bytes added at a time */

typedef struct bl_view bl_view;

/* Descriptors stay the caller's.  With `prefixed`, lines. */
BL_MUST_USE belay_code bl_view_open(int out, int err, int n_ranks, bool prefixed, bl_view **view, bl_error *error);
/* Of a view of one rank with lines: they are marked as rank `rank`'s. */
void bl_view_mark(bl_view *view, int rank);
/* The lines of a rank get no prefix. */
void bl_view_plain(bl_view *view, int rank);
void bl_view_close(bl_view *view);

/* Whether BL_VIEW_READ bytes of this stream (0: out, 1: err) find room. */
bool bl_view_has_room(const bl_view *view, int stream);
void bl_view_add(bl_view *view, int rank, int stream, const char *bytes, int64_t n_bytes);
/* Takes one line without its end: the rank that it is marked with, -1 when it is not marked.  *at: where its text begins. */
int bl_view_marked(const bl_view *view, const char *bytes, int64_t n_bytes, int64_t *at);

/* Writes what can be written without waiting. */
void bl_view_flush(bl_view *view);
/* What to wait for when bytes are left: fills at most two entries. */
int bl_view_poll(const bl_view *view, struct pollfd entries[2]);
/* Ends lines that have no end yet: of one rank's stream; of all that wait for longer than `age` nanoseconds. */
void bl_view_end_line(bl_view *view, int rank, int stream);
void bl_view_end_lines(bl_view *view, int64_t age);
/* When the oldest unfinished line came, by bl_clock_now; 0: there is none. */
int64_t bl_view_oldest(const bl_view *view);
/* errno of the write that ended a stream's view, 0 while it lives. */
int bl_view_failure(const bl_view *view, int stream);

#endif
