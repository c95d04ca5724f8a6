/* SPDX-License-Identifier: Apache-2.0 */
/* `belay explain` as a call: logs in, findings out.  Inputs are files of any size (the first bl_explain_whole bytes and
 * the last lines of each are looked at line by line, of the rest the lines that hold an anchor), folders, and "-" for
 * standard input.  Memory is bounded; nothing found in a log is executed, opened or followed. */
#ifndef BL_TRIAGE_EXPLAIN_H
#define BL_TRIAGE_EXPLAIN_H

#include "triage/collectives.h"
#include "triage/findings.h"
#include "triage/questions.h"
#include "triage/rank_failures.h"
#include "triage/read_log.h"

typedef struct bl_explain bl_explain;

typedef struct bl_explain_options {
    const char *const *paths;
    int n_paths;
    bool keeps_history;        /* the logs are of this machine: its GPUs' history is read and added to */
    const char *history;       /* its folder; NULL: the usual one (history.h) */
    const bl_log_tools *tools; /* made before, for many calls; NULL: made for this one */
} bl_explain_options;

/* What could not be read is a note, unless nothing could.  Codes: file.*, mem.exhausted. */
BL_MUST_USE belay_code bl_explain_run(const bl_explain_options *options, bl_explain **out, bl_error *error);
void bl_explain_free(bl_explain *explain);

const bl_findings *bl_explain_findings(const bl_explain *explain);
const bl_case *bl_explain_case(const bl_explain *explain);
/* The last collective of each rank; the first failure of each rank; whether it is special to data parallel. */
const bl_collectives *bl_explain_collectives(const bl_explain *explain);
const bl_rank_failures *bl_explain_failures(const bl_explain *explain);
/* NULL where the logs show one rank alone, so that the questions have no sense. */
const bl_questions *bl_explain_questions(const bl_explain *explain);
/* What the journals of Belay runs tell, a line each, escaped; lines that begin with blanks belong to the one before.  ""
 * where there are none. */
const char *bl_explain_journals(const bl_explain *explain);
/* Notes about the inputs, one a line; "" for none. */
const char *bl_explain_notes(const bl_explain *explain);

#endif
