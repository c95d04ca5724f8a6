/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a fault's paragraph that its JSON holds too. */
#ifndef BL_REPORT_FAULT_WORDS_H
#define BL_REPORT_FAULT_WORDS_H

#include "report/fault.h"

/* "ids[3, 17] is 10007, outside [0, 10000) of embedding.weight" */
void bl_report_fault_headline(const bl_report_fault *fault, bl_text *out);
/* What to do: what the raiser says, else what fits the likely reason where the step was refused, else the code's own. */
const char *bl_report_fault_advice(const bl_report_fault *fault);
/* Its own name, else its operand's. */
const char *bl_report_tensor_name(const bl_report_tensor *tensor);
const char *bl_report_tensor_device(const bl_report_fault *fault, const bl_report_tensor *tensor);

#endif
