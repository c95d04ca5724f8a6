/* SPDX-License-Identifier: Apache-2.0 */
/* Logs of which each is one rank's, told by what they say of themselves. */
#ifndef BL_TRIAGE_FILE_RANKS_H
#define BL_TRIAGE_FILE_RANKS_H

#include "triage/case.h"

/* Several files that each name one rank throughout, all of them different, are logs of one rank each: their lines without
 * a label are that rank's.  Before the events are sealed. */
void bl_file_ranks_settle(bl_source *sources, int n, bl_events *events);

#endif
