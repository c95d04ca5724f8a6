/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are not finite: what is in a tensor, and which op was the first to make one. */
#ifndef BL_LAUNCH_NONFINITE_H
#define BL_LAUNCH_NONFINITE_H

#include "launch/launch.h"

/* What a tensor looks like to a person. */
typedef struct bl_survey {
    int64_t n_bad;
    int64_t first; /* lowest bad element */
    double first_value;
    int64_t n_good;
    double low, high; /* of the finite ones */
} bl_survey;

/* Of a contiguous float tensor; of any other nothing is bad.  Waits for what computes it. */
bl_survey bl_survey_of(belay_context *context, const bl_slot *slot);

/* "3 of 640 elements, first at [0, 2]: inf", and "[-1, 65504]" of the others. */
void bl_survey_describe(const bl_survey *survey, const belay_shape *shape, bl_text *out);
void bl_survey_range(const bl_survey *survey, bl_text *out);

/* Non-finite tracing, after a launch: an op whose inputs were finite and whose result is not is num.nonfinite; under a
 * loss scale it is no fault, and the first of a window is kept for what is told of its step: run.overflow, or num.traced
 * where that was applied. */
void bl_nonfinite_look(const bl_call *call);

#endif
