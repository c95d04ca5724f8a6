/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision of a context: what autocast is at, the weights that it has cast, and what the window at work has seen
 * of a loss scale.  Rooms above write it: op/ the first half, optim/ and grad/ the second. */
#ifndef BL_TENSOR_MIXED_H
#define BL_TENSOR_MIXED_H

#include <stdbool.h>
#include <stdint.h>

enum { BL_MAX_AUTOCASTS = 32 };

/* An open region: what was before it. */
typedef struct bl_autocast_region {
    int before;
    uint32_t serial;
} bl_autocast_region;

/* Where losses were scaled and walked back last; 0: nowhere yet. */
typedef struct bl_scaling {
    uintptr_t scaled_at;
    uintptr_t plain_at; /* through no loss scale */
    bool is_scaled;     /* the walk at work came through one */
} bl_scaling;

/* What a leaf's gradient is made of. */
enum {
    BL_GRAD_SCALED = 1,   /* times a loss scale */
    BL_GRAD_PLAIN = 2,    /* as it is */
    BL_GRAD_UNSCALED = 4, /* divided by its loss scale since */
    BL_GRAD_LATE = 8      /* more arrived after that */
};

/* The first result of the window at work that was not finite, as non-finite tracing met it under a loss scale. */
typedef struct bl_first_bad {
    bool is_there;
    char op[192];
    char values[256];
} bl_first_bad;

typedef struct bl_mixed {
    int autocast; /* the 16-bit dtype, 0: off */
    int n_regions;
    uint32_t region_serial;
    bl_autocast_region regions[BL_MAX_AUTOCASTS];
    struct bl_cast_cache *cache; /* op/; NULL: nothing was cast yet */
    int n_scalers;               /* alive */
    uint64_t scaler_serial;
    struct belay_grad_scaler *scalers;
    bl_scaling scaling;
    bl_first_bad first_bad;
} bl_mixed;

#endif
