/* SPDX-License-Identifier: Apache-2.0 */
/* The fast pass over a log of any size: which lines hold at least one of a few hundred short literals, the anchors.
 * All else that triage does is done on those lines alone.  Memory is flat, whatever the length of the file or of its
 * lines.  The pass reads each byte once, in order, so it works on pipes.
 *
 * Anchors are found by Hyperscan or Vectorscan where the build has it, from a database made at build time
 * (tools/anchors/) when the anchors are those of triage/anchors.h; else, and on a processor that does not fit, by a
 * search of our own that gives the same lines. */
#ifndef BL_TRIAGE_SCAN_H
#define BL_TRIAGE_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "file/input.h"
#include "triage/line.h"

/* Anchors are case-sensitive bytes, from 2 to 128 of them, without line feeds.  Longer ones are faster: from 6 bytes on
 * the scan runs at the speed of memory, a two-byte anchor that is frequent in healthy logs halves it. */
enum { bl_scan_anchor_min = 2, bl_scan_anchor_max = 128, bl_scan_anchors_max = 4096 };

/* A longer line is handed over cut: its first part, what stands around the first hit of each anchor (of seven at
 * most) and its last part, joined by carriage returns so that they read as segments, in at most this many bytes. */
#ifdef BELAY_SMALL
enum { bl_scan_line_max = 4096 };
#else
enum { bl_scan_line_max = 64 * 1024 };
#endif

/* Lines at each end of a file that are handed over even without an anchor; at the end as far as the last two blocks
 * (of 256 KiB) hold them.  A line that is longer than a block is handed over too, but not counted among the last. */
enum { bl_scan_n_ends = 64 };

typedef struct bl_scan_line {
    int64_t number;        /* from 1; lines end at a line feed, and the last one may lack it */
    int64_t offset;        /* of its first byte in the unpacked stream */
    const char *raw;       /* without the line feed; valid during the call */
    int64_t n_raw;         /* at most bl_scan_line_max */
    int64_t n_whole;       /* of the line in the file; larger than n_raw when it was cut */
    bool is_hit;           /* else it is handed over for its place alone */
    bool is_head, is_tail; /* among the first and the last of the file */
    const int *anchors;    /* numbers of the anchors that hit, ascending, each once */
    int n_anchors;
} bl_scan_line;

/* Each line is handed over once, in ascending order.  A code other than BELAY_OK ends the pass, which returns it. */
typedef struct bl_scan_sink {
    void *state;
    int64_t whole; /* every line that begins in front of this byte of the stream is handed over, anchors or not */
    belay_code (*line)(void *state, const bl_line_style *style, const bl_scan_line *line, bl_error *error);
} bl_scan_sink;

typedef struct bl_scan_total {
    int64_t n_lines, n_bytes; /* unpacked */
    int64_t n_hit_lines;
    bool has_last_feed;  /* false: the last line does not end in a line feed, it may be cut off */
    bl_line_style style; /* as it was settled after the first block */
    /* The first stamp among the first lines and the last among the last; one with a date is preferred. */
    int64_t first_time, last_time;
    bl_time_kind first_time_kind, last_time_kind;
} bl_scan_total;

typedef struct bl_scan bl_scan;

/* The anchors are copied.  One scan serves any number of inputs, one after the other.  Codes: conf.value for an anchor
 * that is too short or too long, mem.exhausted. */
BL_MUST_USE belay_code bl_scan_new(const char *const *anchors, int n_anchors, bl_scan **out, bl_error *error);
/* The same with the search of our own, for tests and measurements. */
BL_MUST_USE belay_code bl_scan_new_plain(const char *const *anchors, int n_anchors, bl_scan **out, bl_error *error);
void bl_scan_free(bl_scan *scan);

/* What does the search, for people: "libhs 5.4.9, its database from the build". */
const char *bl_scan_describe(const bl_scan *scan);

/* Reads the input to its end.  The style of its lines is learned from the first block, before any line is handed over.
 */
BL_MUST_USE belay_code bl_scan_run(bl_scan *scan, bl_input *input, const bl_scan_sink *sink, bl_scan_total *total,
                                   bl_error *error);

/* Line feeds in these bytes. */
int64_t bl_scan_count_feeds(const char *bytes, int64_t n_bytes);

#endif
