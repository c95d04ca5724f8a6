/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the user's own: the proof of a launch against its kernel's signature, and the words for what it met. */
#ifndef BL_LAUNCH_CUSTOM_H
#define BL_LAUNCH_CUSTOM_H

#include <belay/launch.h>

#include "kernel/custom.h"
#include "report/fault.h"

/* Gives the fault the kernel's name, and the tensors that are listed so far its roles. */
void bl_custom_describe(const bl_custom *custom, bl_report_fault *fault);

/* Words for what the kernel noted: headline, operand, facts.  The fault knows its tensors already. */
void bl_custom_tell(const bl_custom *custom, const bl_fault_record *record, bl_report_fault *fault);

#endif
