/* SPDX-License-Identifier: Apache-2.0 */
/* What modules with attention share: projections with weights [in, out], heads cut out of one projection and put
 * together again. */
#ifndef BL_NN_HEADS_H
#define BL_NN_HEADS_H

#include "nn/module.h"

typedef struct bl_heads {
    belay_tensor q, k, v; /* [batch, heads, time, width / heads], row-major */
} bl_heads;

/* x [batch, time, 3 width], queries first, then keys, then values, cut into heads; all nil after a fault. */
bl_heads bl_heads_split(belay_tensor x, int64_t heads);

/* One projection [batch, time, width] -> [batch, heads, time, width / heads], and back. */
belay_tensor bl_heads_of(belay_tensor x, int64_t heads);
belay_tensor bl_heads_merge(belay_tensor x);

/* False after shape.rank: `module` takes x [batch, time, width]. */
bool bl_heads_takes(const belay_module *module, belay_tensor x);

/* False after conf.value: heads is at least 1 and divides `field`. */
bool bl_heads_divide(belay_context *context, const char *maker, const char *field, int64_t width, int64_t heads);

#endif
