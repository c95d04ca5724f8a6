/* SPDX-License-Identifier: Apache-2.0 */
/* Tries the patterns of the signals on one line and notes the events.  The word of a signal's name before the first
 * underscore is its group: of a group the first row that matches a line wins.  A failure that is only quoted (in a
 * hint, a test's expectation, a printed document) is none. */
#ifndef BL_TRIAGE_MATCH_H
#define BL_TRIAGE_MATCH_H

#include "base/error.h"
#include "triage/anchors.h"
#include "triage/events.h"

typedef struct bl_matcher bl_matcher;

BL_MUST_USE belay_code bl_matcher_new(bl_matcher **out, bl_error *error);
void bl_matcher_free(bl_matcher *matcher);

/* What the fast pass is to look for. */
const bl_anchors *bl_matcher_anchors(const bl_matcher *matcher);

/* Where a line stands among its neighbours. */
typedef struct bl_place {
    int64_t time; /* of the line or the nearest one before it; BL_NO_TIME */
    int segment;
    bool is_quoted;     /* within a printed document */
    bool is_whole_read; /* rows without an anchor are tried too */
} bl_place;

/* `anchors` are the numbers of those that the line holds; n_anchors < 0: not known, all are tried. */
void bl_matcher_line(bl_matcher *matcher, const bl_line *line, const int *anchors, int n_anchors, const bl_place *place,
                     bl_events *events);

#endif
