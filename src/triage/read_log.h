/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one log: every line that the fast pass hands over becomes a bl_line, gets its place (time, segment of a
 * recorded session, printed document or not), and is shown to the matcher and to the kernel-log parser. */
#ifndef BL_TRIAGE_READ_LOG_H
#define BL_TRIAGE_READ_LOG_H

#include "base/error.h"
#include "base/text.h"
#include "triage/case.h"
#include "triage/gpu.h"
#include "triage/journal_join.h"
#include "triage/match.h"
#include "triage/scan.h"

/* The first bytes of each file are looked at line by line, anchors or not. */
#define BL_READ_WHOLE INT64_C(1048576)

enum { BL_READ_PIDS = 1024 };

/* Compiled patterns and literals: what takes longest for small logs, and may serve any number of cases. */
typedef struct bl_log_tools {
    bl_matcher *matcher;
    bl_scan *scan;
} bl_log_tools;

BL_MUST_USE belay_code bl_log_tools_init(bl_log_tools *tools, bl_error *error);
void bl_log_tools_fini(bl_log_tools *tools);

/* What is shared by all logs of a case. */
typedef struct bl_log_reader {
    const bl_log_tools *tools; /* own, or those of the caller */
    bl_log_tools own;
    bl_events *events;
    bl_gpu_fold *gpus;
    bl_journals *journals;
    bl_text notes; /* a line for each file that could not be read to its end */
    int n_pids;    /* processes that told their rank */
    struct {
        int64_t pid;
        int rank;
    } pids[BL_READ_PIDS];
    bool lacks_memory;
} bl_log_reader;

/* NULL tools: it makes its own. */
BL_MUST_USE belay_code bl_log_reader_init(bl_log_reader *reader, const bl_log_tools *tools, bl_error *error);
void bl_log_reader_fini(bl_log_reader *reader);

/* Reads source->path, a log or a journal, which is number `file` of the case, and fills the rest of *source. */
BL_MUST_USE belay_code bl_log_read(bl_log_reader *reader, bl_source *source, int file, bl_error *error);

#endif
