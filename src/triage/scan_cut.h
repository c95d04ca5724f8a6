/* SPDX-License-Identifier: Apache-2.0 */
/* A line that is too long to be handed over whole: its first part, what stands around the first hit of each anchor, its last
 * part. */
#ifndef BL_TRIAGE_SCAN_CUT_H
#define BL_TRIAGE_SCAN_CUT_H

#include "triage/scan.h"

enum {
    bl_cut_end = bl_scan_line_max / 4, /* bytes at each end */
    bl_cut_window = bl_scan_line_max / 32,
    bl_cut_windows = 7
};

typedef struct bl_cut {
    int64_t n_whole; /* bytes of the line so far */
    int64_t n_head, n_tail;
    int n_windows;
    struct bl_cut_span {
        int64_t from, n; /* in the line */
    } windows[bl_cut_windows];
    char head[bl_cut_end], tail[bl_cut_end], window[bl_cut_windows][bl_cut_window];
    char joined[bl_scan_line_max];
} bl_cut;

void bl_cut_begin(bl_cut *cut);
/* Bytes around a hit: `piece` begins at byte `from` of the line, the hit ends in front of its byte `end`. */
void bl_cut_hit(bl_cut *cut, const char *piece, int64_t n_bytes, int64_t from, int64_t end);
/* The next bytes of the line. */
void bl_cut_add(bl_cut *cut, const char *bytes, int64_t n_bytes);
/* What is handed over; valid until the cut is begun again. */
const char *bl_cut_join(bl_cut *cut, int64_t *n_bytes);

#endif
