/* SPDX-License-Identifier: Apache-2.0 */
/* A look at a tensor's values: launched like any op, read when the answer is wanted. */
#include <belay/debug.h>

#include <inttypes.h>
#include <math.h>

#include "base/memory.h"
#include "kernel/bounds.h"
#include "op/op.h"

enum { N_FOUND = 1 + BL_BOUNDS_FIRST };

/* The smallest whole number that is not below x. */
static int64_t ceiling(double x)
{
    double up = ceil(x);
    return up >= 0x1p63 ? INT64_MAX : up < -0x1p63 ? INT64_MIN : (int64_t)up;
}

static bl_params params_of(double low, double high)
{
    bl_params p = {.f = {low, high}, .i = {ceiling(low), ceiling(high)}};
    bool is_below_all = p.i[1] == INT64_MIN, is_above_all = high >= 0x1p63;
    if (low >= 0x1p63 || is_below_all) { /* no whole number is inside */
        p.i[0] = 1;
        p.i[1] = 0;
    } else if (!is_above_all) {
        p.i[1]--;
    }
    return p;
}

belay_bounds belay_check_bounds(belay_tensor tensor, double low, double high)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    if (context == NULL || bl_slot_use(context, tensor) == NULL)
        return (belay_bounds){0};
    if (isnan(low) || isnan(high)) {
        bl_context_raise(context, BELAY_CONF_VALUE, "a bound of belay_check_bounds is NaN");
        return (belay_bounds){0};
    }
    belay_shape shape = belay_tensor_shape(tensor), flat = belay_shape1(belay_tensor_n_elements(tensor));
    int64_t n_chunks = flat.size[0] / BL_BOUNDS_CHUNK + (flat.size[0] % BL_BOUNDS_CHUNK != 0);
    belay_shape edges = belay_shape2(n_chunks, 2), found = belay_shape2(n_chunks, N_FOUND);
    int place = bl_slot_get(context, tensor)->storage->place;
    bl_call call = {.context = context, .op = BL_OP_bounds, .n_in = 3, .params = params_of(low, high)};
    call.shown[0] = tensor;
    call.in[0] = bl_launch_reshape(context, tensor, &flat);
    call.in[1] = bl_tensor_new_on(context, place, BELAY_F64, &edges, "edges");
    call.in[2] = bl_tensor_new_on(context, place, BELAY_I64, &found, "found");
    if (!bl_launch_run(&call))
        return (belay_bounds){0};
    return (belay_bounds){call.in[1], call.in[2], shape};
}

/* ---- the answer ------------------------------------------------------------------------------------------------------ */

static void place_of(const belay_shape *shape, int64_t element, int64_t at[BELAY_MAX_RANK])
{
    for (int i = shape->rank - 1; i >= 0; i--) {
        at[i] = element % shape->size[i];
        element /= shape->size[i];
    }
}

static void join_chunk(const belay_shape *shape, const double edges[2], const int64_t *found, belay_bounds_answer *out)
{
    if (edges[0] <= edges[1]) {
        out->min = isnan(out->min) || edges[0] < out->min ? edges[0] : out->min;
        out->max = isnan(out->max) || edges[1] > out->max ? edges[1] : out->max;
    }
    for (int64_t k = 0; k < found[0] && k < BL_BOUNDS_FIRST && out->n_first < BELAY_MAX_OUTSIDE; k++) {
        out->element[out->n_first] = found[1 + k];
        place_of(shape, found[1 + k], out->at[out->n_first++]);
    }
    out->n_outside += found[0];
}

static belay_code read_chunks(const belay_bounds *b, int64_t n_chunks, double *edges, int64_t *found,
                              belay_bounds_answer *out)
{
    TRY(belay_tensor_read(b->edges, edges, n_chunks * 2 * (int64_t)sizeof *edges));
    TRY(belay_tensor_read(b->found, found, n_chunks * N_FOUND * (int64_t)sizeof *found));
    for (int64_t c = 0; c < n_chunks; c++)
        join_chunk(&b->shape, edges + 2 * c, found + N_FOUND * c, out);
    return BELAY_OK;
}

belay_code belay_bounds_get(belay_bounds bounds, belay_bounds_answer *out)
{
    static const belay_bounds_answer nothing = {.min = (double)NAN, .max = (double)NAN};
    belay_context *context = bl_tensor_context(bounds.found);
    BL_ENTER(context);
    if (out != NULL)
        *out = nothing;
    if (context == NULL)
        return bl_caller_code(BELAY_LIFE_STALE);
    if (bl_slot_use(context, bounds.edges) == NULL || bl_slot_use(context, bounds.found) == NULL)
        return BELAY_LIFE_STALE;
    if (out == NULL)
        return bl_context_raise(context, BELAY_CONF_MISSING, "belay_bounds_get needs room for its answer");
    int64_t n_chunks = belay_tensor_shape(bounds.found).size[0];
    belay_bounds_answer answer = nothing;
    answer.n = 1;
    for (int i = 0; i < bounds.shape.rank; i++)
        answer.n *= bounds.shape.size[i];
    double *edges = bl_alloc(n_chunks * 2, sizeof *edges);
    int64_t *found = bl_alloc(n_chunks * N_FOUND, sizeof *found);
    belay_code code = n_chunks > 0 && (edges == NULL || found == NULL)
                          ? bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for the bounds of a tensor")
                          : read_chunks(&bounds, n_chunks, edges, found, &answer);
    bl_free(edges);
    bl_free(found);
    if (code == BELAY_OK)
        *out = answer;
    return code;
}
