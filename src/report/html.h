/* SPDX-License-Identifier: Apache-2.0 */
/* report.html: one page about a run, made of what lies in its folder (run.json, metrics.csv, faults.jsonl).  The page
 * needs nothing outside of itself, and every text from a file is escaped. */
#ifndef BL_REPORT_HTML_H
#define BL_REPORT_HTML_H

#include "base/error.h"
#include "base/text.h"

/* Faults that the page shows whole; those after them are counted. */
enum { BL_REPORT_HTML_FAULTS = 200 };

/* Writes FOLDER/report.html atomically.  Files that are not there are left out.  Codes: file.*, mem.exhausted. */
BL_MUST_USE belay_code bl_report_html(const char *folder, bl_error *error);

/* Text for HTML: markup characters as entities, control characters and bytes that are not UTF-8 as \xNN; ends of line
 * stay. */
void bl_report_html_escape(const char *text, bl_text *out);

#endif
