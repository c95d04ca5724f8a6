/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/heads.h"

#include <inttypes.h>

#include "base/memory.h"
#include "grad/tape.h"
#include "launch/prove.h"

/* ---- queries, keys and values out of one projection: three copies, and three back into one gradient */

/* Part `part` of x [batch, time, 3 width], seen as [batch, heads, time, width / heads]. */
static belay_tensor part_of(belay_context *context, belay_tensor x, int64_t heads, int part)
{
    belay_shape shape = belay_tensor_shape(x);
    int64_t width = shape.size[2] / 3;
    belay_shape parted = {5, {shape.size[0], shape.size[1], 3, heads, width / heads}};
    const int64_t axes[] = {0, 2, 1, 3};
    belay_tensor all = bl_launch_reshape(context, x, &parted);
    belay_tensor one = belay_tensor_is_nil(all) ? all : bl_view_select(context, all, 2, part);
    return belay_tensor_is_nil(one) ? one : bl_view_permute(context, one, axes);
}

static void split_forward(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                          int n_out)
{
    (void)n_in;
    belay_context *context = belay_function_context(call);
    for (int part = 0; part < n_out && (part == 0 || !belay_tensor_is_nil(out[part - 1])); part++) {
        belay_tensor seen = part_of(context, in[0], *(const int64_t *)state, part);
        out[part] = belay_tensor_is_nil(seen) ? seen : bl_launch_copy(context, seen);
    }
}

static void split_backward(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                           belay_tensor *grad_in, int n_in)
{
    (void)n_in;
    belay_context *context = belay_function_context(call);
    belay_tensor like = {0};
    for (int part = 0; part < n_out; part++)
        like = belay_tensor_is_nil(grad_out[part]) ? like : grad_out[part];
    belay_shape of = belay_tensor_shape(like);
    belay_shape shape = belay_shape3(of.size[0], of.size[2], 3 * of.size[1] * of.size[3]);
    belay_tensor whole = bl_launch_fill_like(context, like, belay_tensor_dtype(like), &shape, 0);
    bool done = !belay_tensor_is_nil(whole);
    for (int part = 0; part < n_out && done; part++)
        if (!belay_tensor_is_nil(grad_out[part]))
            done = bl_launch_move(context, part_of(context, whole, *(const int64_t *)state, part), grad_out[part]);
    grad_in[0] = done ? whole : (belay_tensor){0};
}

static const belay_function split = {"split_heads", split_forward, split_backward, bl_free};

bl_heads bl_heads_split(belay_tensor x, int64_t heads)
{
    belay_context *context = bl_tensor_context(x);
    belay_tensor out[3] = {{0}};
    if (context == NULL)
        return (bl_heads){0};
    int64_t *state = bl_alloc(1, sizeof *state);
    if (state == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to apply split_heads");
        return (bl_heads){0};
    }
    *state = heads;
    belay_function_apply(context, &split, state, &x, 1, 0, out, 3);
    return (bl_heads){out[0], out[1], out[2]};
}

/* ---- one projection */

belay_tensor bl_heads_of(belay_tensor x, int64_t heads)
{
    belay_shape s = belay_tensor_shape(x);
    return belay_tensor_is_nil(x)
               ? x
               : belay_transpose(belay_view(x, belay_shape4(s.size[0], s.size[1], heads, s.size[2] / heads)), 1, 2);
}

belay_tensor bl_heads_merge(belay_tensor x)
{
    belay_shape s = belay_tensor_shape(x);
    return belay_tensor_is_nil(x)
               ? x
               : belay_view(belay_transpose(x, 1, 2), belay_shape3(s.size[0], s.size[2], s.size[1] * s.size[3]));
}

/* ---- what is refused */

bool bl_heads_takes(const belay_module *module, belay_tensor x)
{
    int rank = belay_tensor_shape(x).rank;
    const bl_given given = {"x", x};
    if (rank == 3)
        return true;
    bl_prove_refuse(module->context, BELAY_SHAPE_RANK, module->kind->name, &given, 1,
                    "%s takes x [batch, time, width], not %d axes", module->kind->name, rank);
    return false;
}

bool bl_heads_divide(belay_context *context, const char *maker, const char *field, int64_t width, int64_t heads)
{
    if (!bl_module_needs(context, maker, "heads", heads))
        return false;
    if (width % heads == 0)
        return true;
    bl_context_raise(context, BELAY_CONF_VALUE, "heads of %s is %" PRId64 ", which does not divide %s, %" PRId64, maker,
                     heads, field, width);
    return false;
}
