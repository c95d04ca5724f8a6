/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameter lies in which bucket: a pure function of the parameters, an order and two sizes, so that ranks which agree
 * on those have the same buckets.
 *
 * Parameters are walked in the order in which their gradients are expected; one bucket a dtype is open.  It closes when
 * it has reached its size: the first of all the small one, so that reduction begins early, the others the large one (Li
 * et al., "PyTorch Distributed", VLDB 2020).  Buckets are numbered as they close, and reduced in that order. */
#ifndef BL_DIST_PLAN_H
#define BL_DIST_PLAN_H

#include <belay/types.h>

#include "base/attributes.h"

enum { BL_PLAN_ALIGN = 64 }; /* bytes: where views begin in a bucket */

typedef struct bl_plan_parameter {
    int64_t n_elements;
    belay_dtype dtype;
} bl_plan_parameter;

typedef struct bl_plan_place {
    int64_t bucket, offset; /* elements */
} bl_plan_place;

typedef struct bl_plan_bucket {
    int64_t n_elements; /* with the gaps */
    int64_t n_parameters;
    belay_dtype dtype;
} bl_plan_bucket;

typedef struct bl_plan {
    int64_t n, n_buckets;
    bl_plan_place *place;   /* [n], by parameter */
    bl_plan_bucket *bucket; /* [n_buckets] */
} bl_plan;

/* order: [n] numbers of parameters, each once.  False when memory ends or a size overflows. */
BL_MUST_USE bool bl_plan_make(const bl_plan_parameter *parameter, const int64_t *order, int64_t n, int64_t first_bytes,
                              int64_t bytes, bl_plan *out);
void bl_plan_free(bl_plan *plan);

#endif
