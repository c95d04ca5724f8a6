/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of the environment that a log shows to be set too late, or that have no effect where they are set. */
#ifndef BL_TRIAGE_VARIABLES_H
#define BL_TRIAGE_VARIABLES_H

#include "base/text.h"
#include "triage/case.h"

/* Adds a line for each to `notes`. */
void bl_variables_note(const bl_case *c, bl_text *notes);

#endif
