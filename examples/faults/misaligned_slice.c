/* SPDX-License-Identifier: Apache-2.0 */
/* F19: a slice begins at an odd element, and a kernel loads four at a time: "misaligned address", or numbers that are
 * shifted.  Belay's kernels assume the alignment of one element, and a launch with operands that do not have even that is
 * refused.  The results are those of a copy. */
#include "gallery.h"

enum { N = 37 };

static void expect_same(gallery *g, belay_tensor a, belay_tensor b)
{
    gallery_expect(g, belay_tensor_item(belay_sum(belay_cast(belay_ne(a, b), BELAY_F32), NULL)) < 0.5);
}

/* Every offset of a vector, in f32 and in 16 bits. */
static void slice_oddly(gallery *g)
{
    const belay_dtype dtype = (belay_dtype)g->value;
    belay_tensor long_row = belay_cast(belay_arange(g->ctx, BELAY_F32, N + 9, -20, 1), dtype);
    long_row = belay_tensor_to(long_row, g->device);
    for (int64_t offset = 0; offset < 9; offset++) {
        belay_tensor odd = belay_slice(long_row, 0, offset, offset + N, 1);
        belay_tensor copy = belay_tensor_to(belay_tensor_to(odd, g->is_sim ? "cpu" : "sim:1"), g->device);
        expect_same(g, belay_relu(odd), belay_relu(copy));
        expect_same(g, belay_mul(odd, odd), belay_mul(copy, copy));
        expect_same(g, belay_softmax(odd, 0), belay_softmax(copy, 0));
        expect_same(g, belay_sum(odd, NULL), belay_sum(copy, NULL));
    }
}

static const injection injections[] = {
    {.what = "f32 at every offset", .run = slice_oddly, .value = BELAY_F32},
    {.what = "bf16 at every offset", .run = slice_oddly, .value = BELAY_BF16},
    {.what = "f32 at every offset, exact memory", .run = slice_oddly, .value = BELAY_F32, .memory = BELAY_MEMORY_EXACT},
};

GALLERY_MAIN("misaligned slice (F19)")
