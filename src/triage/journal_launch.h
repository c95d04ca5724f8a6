/* SPDX-License-Identifier: Apache-2.0 */
/* The launches of a journal in words, and how far each of the process's streams had got when the writing ended.  Every
 * number is the file's and may be any; every text of it is escaped. */
#ifndef BL_TRIAGE_JOURNAL_LAUNCH_H
#define BL_TRIAGE_JOURNAL_LAUNCH_H

#include <stdbool.h>

#include "base/text.h"
#include "report/journal.h"

/* "#123 embedding (backward) in classifier at train.c:88, epoch 1, batch 3, step 12". */
void bl_journal_launch_words(const bl_journal_reader *reader, const bl_launch_record *launch, bl_text *out);

enum { BL_JOURNAL_LAST = 3 };

typedef struct bl_journal_stream {
    bl_stream_record row;
    bl_launch_record first;                 /* that has not ended; serial 0: there is none */
    bl_launch_record last[BL_JOURNAL_LAST]; /* the newest first */
    int n_last;
    uint64_t n_launches; /* in flight, of those that the journal holds */
    uint64_t n_others;   /* commands in flight that are none of these */
} bl_journal_stream;

/* The stream of that row; false when it is not open, or nothing was launched on it and nothing is in flight. */
bool bl_journal_stream_read(const bl_journal_reader *reader, int row, bl_journal_stream *out);
/* "cpu", "sim:0, default stream", "sim:0, stream copy". */
void bl_journal_stream_words(const bl_journal_reader *reader, const bl_journal_stream *stream, bl_text *out);
/* "ended", "running", "queued", and what else is known of a launch of the stream. */
const char *bl_journal_launch_state(const bl_journal_stream *stream, const bl_launch_record *launch);

/* Adds a line for each stream and lines for its last launches. */
void bl_journal_streams_tell(const bl_journal_reader *reader, bl_text *lines);

#endif
