/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes in a line of text: "(190, 64, 64, 2933)", "torch.Size([28287780, 16])", "dimA = 4, 32, 224, 224, 192,". */
#ifndef BL_TRIAGE_SHAPES_H
#define BL_TRIAGE_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

enum { BL_SHAPE_DIMS = 8 };

typedef struct bl_text_shape {
    int n_dims;
    int64_t dims[BL_SHAPE_DIMS];
    int64_t numel;    /* INT64_MAX where the product passes it */
    const char *name; /* the word before it ("feat" of feat=torch.Size(..)), in the text; n_name 0: none */
    int64_t n_name;
} bl_text_shape;

/* The next shape at or behind *at, which moves behind it; false when there is none. */
bool bl_text_shape_next(const char *text, int64_t n_bytes, int64_t *at, bl_text_shape *out);

/* Bytes of an element by the dtype named in the text; 0 where none is. */
int bl_text_dtype_size(const char *text);

#endif
