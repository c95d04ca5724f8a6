/* SPDX-License-Identifier: Apache-2.0 */
/* The likely reason of a bad index, by its value: the first row of reasons.def that holds. */
#ifndef BL_REPORT_REASON_H
#define BL_REPORT_REASON_H

#include "report/fault.h"

typedef struct bl_report_reason {
    const char *name; /* "bound": stays, for programs */
    const char *likely, *advice;
    bool is_for_ids, is_for_labels;
    bool (*holds)(int64_t v, int64_t n, belay_dtype t);
    /* A value for which it is the one that is told. */
    int64_t value, bound;
    belay_dtype dtype;
} bl_report_reason;

/* NULL for faults that are not about the value of one element. */
const bl_report_reason *bl_report_reason_find(const bl_report_fault *fault);

/* The rows in their order, NULL past the end. */
const bl_report_reason *bl_report_reason_row(int number);

#endif
