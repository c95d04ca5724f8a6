/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise ops: the calls of rows without options are stamped from the rows, in front of them those with options.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "op/op.h"

static belay_tensor map(int op, const belay_tensor *in, int n_in, const bl_params *params)
{
    bl_call call = {.context = bl_op_context(in, n_in), .op = op, .n_in = n_in};
    memcpy(call.in, in, (size_t)n_in * sizeof *in);
    if (params != NULL)
        call.params = *params;
    return bl_op_run(&call);
}

/* ---- stamped from rows ----------------------------------------------------------------------------------------------- */

#define CALL_MAP1(name)                                                                                                \
    belay_tensor belay_##name(belay_tensor x)                                                                          \
    {                                                                                                                  \
        BL_ENTER(bl_tensor_context(x));                                                                                \
        return map(BL_OP_##name, &x, 1, NULL);                                                                         \
    }
#define CALL_MAP2(name)                                                                                                \
    belay_tensor belay_##name(belay_tensor a, belay_tensor b)                                                          \
    {                                                                                                                  \
        const belay_tensor in[] = {a, b};                                                                              \
        BL_ENTER(bl_op_context(in, 2));                                                                                \
        return map(BL_OP_##name, in, 2, NULL);                                                                         \
    }
#define CALL_COMPARE(name) CALL_MAP2(name)
#define CALL_SELECT(name)                                                                                              \
    belay_tensor belay_##name(belay_tensor condition, belay_tensor a, belay_tensor b)                                  \
    {                                                                                                                  \
        const belay_tensor in[] = {condition, a, b};                                                                   \
        BL_ENTER(bl_op_context(in, 3));                                                                                \
        return map(BL_OP_##name, in, 3, NULL);                                                                         \
    }
/* Gradients, and what has options: no call of this form. */
#define CALL_MAP3(name)
#define CALL_MAP0P(name)
#define CALL_MAP0R(name)
#define CALL_MAP1P(name)
#define CALL_MAP1R(name)
#define CALL_MAP3P(name)
#define CALL_MASK(name)
#define CALL_LANE(name)
#define CALL_TAKE(name)
#define CALL_REDUCE(name)
#define CALL_SORTED(name)
#define CALL_DEVICE(name)
#define CALL_COPY(name)
#define CALL_MATMUL(name)

#define BL_ROWS
#define BL_ROW(skeleton, name, dtypes, ...) CALL_##skeleton(name)
#include "kernel/families.h"
#undef BL_ROW
#undef BL_ROWS

/* ---- with options ---------------------------------------------------------------------------------------------------- */

/* Whether an option that x is computed with has a value in x's arithmetic; what x is, others prove. */
static bool is_real(belay_context *context, const char *op, belay_tensor x, const char *option, double value)
{
    return context == NULL || bl_op_is_real(context, op, &(bl_given){"x", x}, 1, option, value);
}

belay_tensor belay_affine(belay_tensor x, double scale, double shift)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (!is_real(context, "affine", x, "scale", scale) || !is_real(context, "affine", x, "shift", shift))
        return (belay_tensor){0};
    bl_params params = {.f = {scale, shift}};
    return map(BL_OP_affine, &x, 1, &params);
}

belay_tensor belay_pow_number(belay_tensor x, double exponent)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (!is_real(context, "pow_number", x, "exponent", exponent))
        return (belay_tensor){0};
    bl_params params = {.f = {exponent}};
    return map(BL_OP_pow_number, &x, 1, &params);
}

belay_tensor belay_clamp(belay_tensor x, double low, double high)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context != NULL && !(low <= high)) {
        bl_context_raise(context, BELAY_CONF_VALUE, "clamp to [%g, %g]: the range is empty", bl_text_real(low),
                         bl_text_real(high));
        return (belay_tensor){0};
    }
    if (!is_real(context, "clamp", x, "low", low) || !is_real(context, "clamp", x, "high", high))
        return (belay_tensor){0};
    bl_params params = {.f = {low, high}};
    return map(BL_OP_clamp, &x, 1, &params);
}

/* Which element of the global batch a tensor's first one is: a draw gives each element the same, whatever ranks it is
 * split over.  A parameter is no batch, as long as it may be. */
static int64_t first_element(const belay_context *context, belay_tensor x)
{
    const bl_slot *slot = belay_tensor_is_alive(x) ? bl_slot_get(context, x) : NULL;
    if (slot == NULL || slot->rank == 0 || slot->is_registered)
        return 0;
    return bl_context_first_element(context, slot->size[0], belay_tensor_n_elements(x));
}

belay_tensor belay_dropout(belay_tensor x, double p, bool training)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context != NULL && !(p >= 0 && p <= 1)) {
        bl_context_raise(context, BELAY_CONF_VALUE, "dropout's p is %g, outside [0, 1]", bl_text_real(p));
        return (belay_tensor){0};
    }
    if (context == NULL || !training || p == 0)
        return x;
    bl_params params = {.f = {p, p < 1 ? 1 / (1 - p) : 0}, .rng = bl_context_key(context)};
    params.i[0] = first_element(context, x);
    return map(BL_OP_dropout, &x, 1, &params);
}

belay_tensor belay_cast(belay_tensor x, belay_dtype dtype)
{
    belay_context *context = bl_tensor_context(x);
    BL_ENTER(context);
    if (context == NULL || (belay_tensor_is_alive(x) && belay_tensor_dtype(x) == dtype))
        return x;
    return bl_op_record_view(context, x, bl_launch_cast(context, x, dtype), bl_grad_cast, NULL);
}

/* ---- makers ---------------------------------------------------------------------------------------------------------- */

static belay_tensor make(belay_context *context, int op, belay_dtype dtype, const belay_shape *shape,
                         const bl_params *params)
{
    bl_call call = {.context = context, .op = op, .dtype = dtype, .shape = *shape, .params = *params};
    return bl_launch_run(&call) ? call.out[0] : (belay_tensor){0};
}

/* Whether a dtype has the value: an infinity or NaN is one of floats, a fraction is cut.  Of an integer of 64 bits the
 * largest is not a double: the next one below is. */
static bool holds(belay_context *context, const char *op, const char *option, belay_dtype dtype, double value)
{
    static const double edges[][2] = {[BELAY_F32] = {-(double)FLT_MAX, (double)FLT_MAX},
                                      [BELAY_F64] = {-DBL_MAX, DBL_MAX},
                                      [BELAY_BF16] = {-0x1.FEp127, 0x1.FEp127},
                                      [BELAY_F16] = {-65504, 65504},
                                      [BELAY_I64] = {-0x1p63, 0x1.FFFFFFFFFFFFFp62},
                                      [BELAY_I32] = {INT32_MIN, INT32_MAX},
                                      [BELAY_U16] = {0, UINT16_MAX},
                                      [BELAY_U8] = {0, UINT8_MAX},
                                      [BELAY_BOOL] = {0, 1}};
    bool is_known = (int)dtype >= 0 && dtype < BL_COUNT(edges) && edges[dtype][1] > 0;
    if (!is_known || (belay_dtype_is_float(dtype) && !isfinite(value)) || !belay_is_open(context))
        return true; /* others say what is wrong */
    if (value >= edges[dtype][0] && value <= edges[dtype][1])
        return true;
    bl_context_raise(context, BELAY_CONF_VALUE, "%s of %s is %g, outside [%g, %g], what %s holds", option, op,
                     bl_text_real(value), edges[dtype][0], edges[dtype][1], belay_dtype_name(dtype));
    return false;
}

belay_tensor belay_full(belay_context *context, belay_dtype dtype, belay_shape shape, double value)
{
    BL_ENTER(context);
    if (!holds(context, "full", "value", dtype, value))
        return (belay_tensor){0};
    return bl_launch_fill(context, dtype, &shape, value);
}

belay_tensor belay_zeros(belay_context *context, belay_dtype dtype, belay_shape shape)
{
    BL_ENTER(context);
    return bl_launch_fill(context, dtype, &shape, 0);
}

belay_tensor belay_ones(belay_context *context, belay_dtype dtype, belay_shape shape)
{
    BL_ENTER(context);
    return bl_launch_fill(context, dtype, &shape, 1);
}

belay_tensor belay_arange(belay_context *context, belay_dtype dtype, int64_t n, double start, double step)
{
    BL_ENTER(context);
    if (!holds(context, "arange", "start", dtype, start) || !holds(context, "arange", "step", dtype, step))
        return (belay_tensor){0};
    bool is_float = belay_dtype_is_float(dtype);
    if (belay_is_open(context) && (is_float ? !isfinite(start) || !isfinite(step) : floor(step) != step)) {
        bl_context_raise(context, BELAY_CONF_VALUE,
                         is_float ? "arange from %g by %g: both must be finite"
                                  : "arange from %g by %g: steps of integers are whole",
                         bl_text_real(start), bl_text_real(step));
        return (belay_tensor){0};
    }
    belay_shape shape = belay_shape1(n);
    bl_params params = {.f = {start, step}, .i = {(int64_t)start, (int64_t)step}};
    return make(context, BL_OP_arange, dtype, &shape, &params);
}

static belay_tensor draw(belay_context *context, int op, belay_dtype dtype, const belay_shape *shape, double a,
                         double b)
{
    if (!belay_is_open(context))
        return (belay_tensor){0};
    bl_params params = {.f = {a, b}, .rng = bl_context_key(context)};
    return make(context, op, dtype, shape, &params);
}

belay_tensor belay_uniform(belay_context *context, belay_dtype dtype, belay_shape shape, double low, double high)
{
    BL_ENTER(context);
    const double most = bl_op_largest(dtype); /* of the range's width, too */
    if (belay_is_open(context) &&
        (!bl_op_is_number(context, "uniform", NULL, 0, "low", low, -most, most) ||
         !bl_op_is_number(context, "uniform", NULL, 0, "high", high, low, low > 0 ? most : low + most)))
        return (belay_tensor){0};
    return draw(context, BL_OP_uniform, dtype, &shape, low, high);
}

belay_tensor belay_normal(belay_context *context, belay_dtype dtype, belay_shape shape, double mean, double deviation)
{
    BL_ENTER(context);
    const double most = bl_op_largest(dtype);
    if (belay_is_open(context) && (!bl_op_is_number(context, "normal", NULL, 0, "mean", mean, -most, most) ||
                                   !bl_op_is_number(context, "normal", NULL, 0, "deviation", deviation, 0, most)))
        return (belay_tensor){0};
    return draw(context, BL_OP_normal, dtype, &shape, mean, deviation);
}
