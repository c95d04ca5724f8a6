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
    uintptr_t site; /* where it was opened */
} bl_autocast_region;

/* What a gradient is made of. */
enum {
    BL_GRAD_SCALED = 1,   /* times a loss scale */
    BL_GRAD_PLAIN = 2,    /* as it is */
    BL_GRAD_UNSCALED = 4, /* of a leaf: divided by its loss scale since */
    BL_GRAD_LATE = 8,     /* of a leaf: more arrived after that */
    BL_GRAD_OTHER = 16,   /* times more than one loss scale, each a part of it */
    BL_GRAD_LOST = 32,    /* of a leaf without one: it went with a window that was another optimizer's */
    BL_GRAD_HELD = BL_GRAD_SCALED | BL_GRAD_UNSCALED
};

/* The same with the scale that it was multiplied by.  Goes with a gradient from node to node, and to its leaf. */
typedef struct bl_grad_scale {
    uintptr_t site; /* where the loss was scaled; of a leaf that was unscaled: where it was */
    uint64_t round; /* of the loss scale: between two updates of it; no other has the same */
    uint32_t scaler;
    uint8_t marks; /* BL_GRAD_*; 0: there is no gradient, nor was one lost */
} bl_grad_scale;

/* Another gradient is added to one. */
static inline void bl_grad_scale_join(bl_grad_scale *to, bl_grad_scale added)
{
    unsigned marks = to->marks | added.marks;
    bool is_held = (to->marks & BL_GRAD_HELD) != 0;
    if (is_held && (added.marks & BL_GRAD_HELD) != 0 && to->round != added.round)
        marks |= BL_GRAD_OTHER;
    if (!is_held)
        *to = added;
    to->marks = (uint8_t)marks;
}

/* What walks and windows have seen of loss scales. */
typedef struct bl_scaling {
    uintptr_t walked_at; /* the walk at work */
    bl_grad_scale now;   /* what it sends on */
    bool has_plain;      /* it brought a leaf what was multiplied by none */
    uintptr_t plain_at;  /* the last walk that did; 0: none yet */
    uint64_t n_lost;     /* windows that took the gradients of all optimizers with them */
    int lost_code;       /* the fault of the last of them; BELAY_OK: none */
} bl_scaling;

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
    uint64_t cast_window;        /* the last in which an op ran under autocast, plus 1; 0: none yet */
    uintptr_t cast_at;           /* where the region of that op was opened */
    struct bl_cast_cache *cache; /* op/; NULL: nothing was cast yet */
    int n_scalers;               /* alive */
    uint64_t scaler_serial;
    struct belay_grad_scaler *scalers;
    bl_scaling scaling;
    bl_first_bad first_bad;
} bl_mixed;

#endif
