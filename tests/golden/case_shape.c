/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that move elements, and products. */
#include <stdio.h>
#include <string.h>

#include "golden/golden.h"

static belay_shape shape_option(golden *g, const char *key)
{
    belay_shape shape = {0};
    shape.rank = golden_list(g, key, shape.size);
    return shape;
}

static belay_tensor permuted(golden *g, belay_tensor x)
{
    int64_t dims[BELAY_MAX_RANK];
    int axes[BELAY_MAX_RANK], n = golden_list(g, "dims", dims);
    for (int i = 0; i < n; i++)
        axes[i] = (int)dims[i];
    return belay_permute(x, axes, n);
}

static void run_view(golden *g) { golden_output(g, "y", belay_view(golden_input(g, "x"), shape_option(g, "shape"))); }

static void run_transpose(golden *g)
{
    int a = (int)golden_number(g, "dim0"), b = (int)golden_number(g, "dim1");
    golden_output(g, "y", belay_transpose(golden_input(g, "x"), a, b));
}

static void run_permute(golden *g) { golden_output(g, "y", permuted(g, golden_input(g, "x"))); }

static void run_permute_reshape(golden *g)
{
    golden_output(g, "y", belay_view(permuted(g, golden_input(g, "x")), shape_option(g, "shape")));
}

static void run_cat(golden *g)
{
    const belay_tensor parts[] = {golden_input(g, "a"), golden_input(g, "b"), golden_input(g, "c")};
    golden_output(g, "y", belay_cat(parts, 3, (int)golden_number(g, "dim")));
}

/* One number is the size of all parts but the last, as in torch.split. */
static void run_split(golden *g)
{
    enum { MOST = GOLDEN_OUTPUTS };
    int axis = (int)golden_number(g, "dim");
    belay_tensor x = golden_input(g, "x"), part[MOST];
    int64_t sizes[MOST], length = belay_tensor_shape(x).size[axis];
    int n = golden_list(g, "sizes", sizes);
    if (golden_text(g, "sizes")[0] != '[')
        for (n = 0; n < MOST && length > 0; length -= sizes[n++])
            sizes[n] = length < sizes[0] ? length : sizes[0];
    belay_split(x, axis, sizes, n, part);
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        golden_output(g, name, part[i]);
    }
}

static void run_slice(golden *g)
{
    int64_t start[BELAY_MAX_RANK], end[BELAY_MAX_RANK], step[BELAY_MAX_RANK];
    int n = golden_list(g, "start", start);
    golden_list(g, "end", end);
    golden_list(g, "step", step);
    belay_tensor y = golden_input(g, "x");
    for (int i = 0; i < n; i++)
        y = belay_slice(y, i, start[i], end[i], step[i]);
    golden_output(g, "y", y);
}

static void run_matmul(golden *g)
{
    belay_tensor a = golden_input(g, "a"), b = golden_input(g, "b");
    a = golden_flag(g, "trans_a") ? belay_transpose(a, -2, -1) : a;
    b = golden_flag(g, "trans_b") ? belay_transpose(b, -2, -1) : b;
    bool is_batch = strcmp(golden_text(g, "op"), "bmm") == 0;
    golden_output(g, "y", is_batch ? belay_bmm(a, b) : belay_matmul(a, b));
}

static void run_linear(golden *g)
{
    belay_tensor x = golden_input(g, "x"), weight = golden_input(g, "weight");
    belay_tensor bias = golden_flag(g, "bias") ? golden_input(g, "bias") : (belay_tensor){0};
    golden_output(g, "y", belay_linear(x, weight, bias));
}

const golden_op golden_shape_ops[] = {
    {"view", .run = run_view},
    {"transpose", .run = run_transpose},
    {"permute", .run = run_permute},
    {"permute_reshape", .run = run_permute_reshape},
    {"cat", .run = run_cat},
    {"split", .run = run_split},
    {"slice", .run = run_slice},
    {"matmul", .run = run_matmul},
    {"bmm", .run = run_matmul},
    {"linear", .run = run_linear},
    {0},
};
