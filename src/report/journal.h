/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: what the host writes before each launch, so that it can be read after kill -9.  Layout in base/record.h.
 * Writing costs a copy into mapped memory; it never fails and never waits.  When a table is full, what does not fit is
 * recorded as 0 ("unknown").  One thread writes. */
#ifndef BL_REPORT_JOURNAL_H
#define BL_REPORT_JOURNAL_H

#include <stdbool.h>

#include "base/error.h"
#include "base/record.h"

typedef struct bl_journal bl_journal;

/* A site is a return address, or with this bit (which no address of a program has) the number of a text: the label that
 * a caller from another language pushed. */
#define BL_SITE_LABEL ((uintptr_t)1 << 63)

/* Creates the journal at `path`, or in memory for NULL.  `op_names` are n_ops texts, copied into the file. */
BL_MUST_USE belay_code bl_journal_open(const char *path, const char *const *op_names, int n_ops, bl_journal **out,
                                       bl_error *error);
/* Marks it as closed in order and unmaps it; `keep` false removes the file. */
void bl_journal_close(bl_journal *journal, int keep);
/* As it was given; NULL: it is in memory. */
const char *bl_journal_path(const bl_journal *journal);

/* Numbers of a text and of a return address; the same one for the same, 0 for "" and when the table is full. */
uint32_t bl_journal_text(bl_journal *journal, const char *text);
uint32_t bl_journal_site(bl_journal *journal, uintptr_t address);
const char *bl_journal_text_get(const bl_journal *journal, uint32_t number);
uintptr_t bl_journal_site_get(const bl_journal *journal, uint32_t number);
/* Number among the ops of a kernel of the user's own; the same one for the same name, 0 when the table is full. */
uint16_t bl_journal_kernel(bl_journal *journal, const char *name);

/* The entry for the next launch, to be filled in but for its serial; then bl_journal_launched publishes it under
 * `serial`.  Entry and launch are found again by serial while the ring has not wrapped. */
bl_launch_record *bl_journal_launch(bl_journal *journal, uint64_t serial);
void bl_journal_launched(bl_journal *journal, bl_launch_record *record, uint64_t serial);

/* Birth or death of a storage; `record->serial` and `record->launch` are set here.  A birth gives *place, its place in the table of storages
 * alive (0: the table is full); a death gives the place back. */
void bl_journal_storage(bl_journal *journal, const bl_storage_record *record, uint32_t *place);
/* How many births and deaths there were; copies the one of that serial, false when the ring does not hold it any more. */
uint64_t bl_journal_n_storages(const bl_journal *journal);
bool bl_journal_storage_get(const bl_journal *journal, uint64_t serial, bl_storage_record *out);
/* The storage in that place has another name from now on. */
void bl_journal_storage_name(bl_journal *journal, uint32_t place, uint32_t name);

/* A stream takes a row of the table (below BL_TABLE_STREAMS).  The row that is given is its own until it is closed: who
 * ends its commands writes `passed`, who puts them `put`; both with one store. */
bl_stream_record *bl_journal_stream_open(bl_journal *journal, int row, const bl_stream_record *record);
void bl_journal_stream_close(bl_journal *journal, int row);
/* The launch of that serial, the last one, was refused: it is in no stream. */
void bl_journal_launch_refused(bl_journal *journal, uint64_t serial);

/* ---- reading, of any file that claims to be a journal ---------------------------------------------------------------- */

typedef struct bl_journal_reader bl_journal_reader;
BL_MUST_USE belay_code bl_journal_reader_open(const char *path, bl_journal_reader **out, bl_error *error);
/* The same of bytes on the heap, which are the reader's from now on, also when it refuses them; `path` is for the words
 * of an error. */
BL_MUST_USE belay_code bl_journal_reader_take(const char *path, char *bytes, int64_t n_bytes, bl_journal_reader **out,
                                              bl_error *error);
void bl_journal_reader_close(bl_journal_reader *reader);
const bl_journal_head *bl_journal_reader_head(const bl_journal_reader *reader);
/* Copies the launch of that serial; 0 asks for the last whole one.  False when the ring does not hold it. */
int bl_journal_reader_launch(const bl_journal_reader *reader, uint64_t serial, bl_launch_record *out);
int bl_journal_reader_storage(const bl_journal_reader *reader, uint64_t serial, bl_storage_record *out);
/* Storages that lived when the writing ended: places 0 .. n - 1, false for an empty one. */
int64_t bl_journal_reader_n_places(const bl_journal_reader *reader);
int bl_journal_reader_alive(const bl_journal_reader *reader, int64_t place, bl_storage_record *out);
/* Streams that were open: rows 0 .. n - 1, false for an empty one. */
int bl_journal_reader_n_streams(const bl_journal_reader *reader);
int bl_journal_reader_stream(const bl_journal_reader *reader, int row, bl_stream_record *out);
/* Texts by number; "?" for numbers outside of their table. */
const char *bl_journal_reader_op(const bl_journal_reader *reader, uint32_t op);
const char *bl_journal_reader_text(const bl_journal_reader *reader, uint32_t number);
uint64_t bl_journal_reader_site(const bl_journal_reader *reader, uint32_t site);
/* Words for a site: "train.c:88" when the module is still where it was and has debug information, else "module+0x1234"
 * (an offset in its file), a label, or "unknown". */
void bl_journal_reader_describe_site(const bl_journal_reader *reader, uint32_t site, char *out, size_t size);

#endif
