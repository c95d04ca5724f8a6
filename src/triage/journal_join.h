/* SPDX-License-Identifier: Apache-2.0 */
/* Journals of Belay runs beside the logs: what each process did last and whether it ended in order, and which tensor a
 * faulting address of any log belongs to.  A journal is known by its first bytes, packed or not, whatever its name.  One
 * that is damaged or too large is told of and costs no verdict; every number in it is checked, every text in it is
 * shown escaped.  Of a process that still runs the journal is read as it stands. */
#ifndef BL_TRIAGE_JOURNAL_JOIN_H
#define BL_TRIAGE_JOURNAL_JOIN_H

#include "file/input.h"
#include "triage/case.h"

/* Most bytes of one journal, and of all that are kept. */
#define BL_JOURNAL_MOST  INT64_C(16777216)
#define BL_JOURNALS_MOST INT64_C(33554432)

typedef struct bl_journals bl_journals;

bl_journals *bl_journals_new(void);
void bl_journals_free(bl_journals *journals);

/* Whether the stream begins as a journal; nothing is taken from it. */
bool bl_journals_claim(bl_input *input);
/* Reads the input, number `file` of the case, to its end.  mem.exhausted only. */
BL_MUST_USE belay_code bl_journals_read(bl_journals *journals, bl_input *input, int file, bl_error *error);

/* Adds what the journals tell as events, once the other files derive_*.c have added theirs.  False without memory. */
BL_MUST_USE bool bl_journals_derive(bl_journals *journals, bl_case *c);

/* What they tell, for people: a line each for journals, addresses and launches, already escaped; "" for none. */
const char *bl_journals_lines(const bl_journals *journals);

#endif
