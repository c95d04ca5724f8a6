/* SPDX-License-Identifier: Apache-2.0 */
/* What single families of messages mean when all ranks are looked at: devices, environment, lists of parameters, loss
 * scales, results of NCCL, output that just ends.  Adds derived events, changes nothing else. */
#ifndef BL_TRIAGE_RANK_MESSAGES_H
#define BL_TRIAGE_RANK_MESSAGES_H

#include "triage/case.h"

void bl_derive_rank_messages(bl_case *c);
/* Tables of stalls, and the order of two communicators; before those, which take a stall for what it says alone. */
void bl_derive_rank_order(bl_case *c);

#endif
