/* SPDX-License-Identifier: Apache-2.0 */
/* Findings as words, as JSON and as a page.  Every text that comes from a log is escaped: no byte of a log reaches a
 * terminal or a browser as anything but text. */
#ifndef BL_TRIAGE_TELL_H
#define BL_TRIAGE_TELL_H

#include "base/text.h"
#include "file/json.h"
#include "triage/explain.h"

/* For a terminal or a file. */
void bl_tell_text(const bl_explain *explain, bl_text *out);

/* Members "verdicts", "echoes", "first_failures", "collectives", "questions", "files", "journals" and "notes", added to `into`.  False without memory. */
BL_MUST_USE bool bl_tell_json(const bl_explain *explain, json_t *into);

/* One page that needs nothing outside of itself. */
void bl_tell_html(const bl_explain *explain, bl_text *out);

/* The path of a file as it was given; "?" for an event that stands on no line. */
const char *bl_tell_file(const bl_explain *explain, const bl_event *event);

#endif
