/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between layouts and dtypes: operand 0 is the output, operand 1 the input, each with any strides. */
#include <omp.h>
#include <string.h>

#include "base/checked.h"
#include "device/cpu/kernel.h"

/* Casts pass through a block of the widest type of the source's kind, so that each of the two loops vectorises. */
enum { BLOCK = 256 };
typedef union block {
    double real[BLOCK];
    int64_t whole[BLOCK];
} block;

#define LOAD_LOOP(type, member, expression)                                                                            \
    do {                                                                                                               \
        const type *x = from;                                                                                          \
        if (stride == 1)                                                                                               \
            for (int64_t i = 0; i < n; i++)                                                                            \
                out->member[i] = (expression(x[i]));                                                                   \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++)                                                                            \
                out->member[i] = (expression(x[i * stride]));                                                          \
    } while (0)

static double real_of_bf16(bl_bf16 x) { return (double)bl_from_bf16(x); }
static double real_of_f16(bl_f16 x) { return (double)bl_from_f16(x); }
static int64_t whole_of_bool(uint8_t x) { return x != 0; }

/* Floats as double, integers as int64. */
static void load_block(int dtype, const void *from, int64_t stride, int64_t n, block *out)
{
    switch (dtype) {
    case BELAY_F32:
        LOAD_LOOP(float, real, (double));
        break;
    case BELAY_F64:
        LOAD_LOOP(double, real, );
        break;
    case BELAY_BF16:
        LOAD_LOOP(bl_bf16, real, real_of_bf16);
        break;
    case BELAY_F16:
        LOAD_LOOP(bl_f16, real, real_of_f16);
        break;
    case BELAY_I64:
        LOAD_LOOP(int64_t, whole, );
        break;
    case BELAY_I32:
        LOAD_LOOP(int32_t, whole, );
        break;
    case BELAY_U16:
        LOAD_LOOP(uint16_t, whole, );
        break;
    case BELAY_U8:
        LOAD_LOOP(uint8_t, whole, );
        break;
    default:
        LOAD_LOOP(uint8_t, whole, whole_of_bool);
    }
}

/* Cut towards zero, out of [low, high] to the nearest end, NaN to 0. */
static int64_t cut(double v, int64_t low, int64_t high)
{
    if (v != v)
        return 0;
    if (v >= 9223372036854775808.0)
        return high;
    if (v < -9223372036854775808.0)
        return low;
    int64_t whole = (int64_t)v;
    return whole < low ? low : whole > high ? high : whole;
}

#define STORE_LOOP(type, expression)                                                                                   \
    do {                                                                                                               \
        type *y = to;                                                                                                  \
        for (int64_t i = 0; i < n; i++)                                                                                \
            y[i * apart] = (expression);                                                                               \
    } while (0)

/* double to f32 to the 16-bit type: what is rounded twice is what f32 arithmetic gives. */
static void store_reals(int dtype, void *to, int64_t apart, int64_t n, const double *v)
{
    switch (dtype) {
    case BELAY_F32:
        STORE_LOOP(float, (float)v[i]);
        break;
    case BELAY_F64:
        STORE_LOOP(double, v[i]);
        break;
    case BELAY_BF16:
        STORE_LOOP(bl_bf16, bl_to_bf16((float)v[i]));
        break;
    case BELAY_F16:
        STORE_LOOP(bl_f16, bl_to_f16((float)v[i]));
        break;
    case BELAY_I64:
        STORE_LOOP(int64_t, cut(v[i], INT64_MIN, INT64_MAX));
        break;
    case BELAY_I32:
        STORE_LOOP(int32_t, (int32_t)cut(v[i], INT32_MIN, INT32_MAX));
        break;
    case BELAY_U16:
        STORE_LOOP(uint16_t, (uint16_t)cut(v[i], 0, UINT16_MAX));
        break;
    case BELAY_U8:
        STORE_LOOP(uint8_t, (uint8_t)cut(v[i], 0, UINT8_MAX));
        break;
    default:
        STORE_LOOP(uint8_t, v[i] != 0);
    }
}

/* Integers to narrower ones wrap. */
static void store_wholes(int dtype, void *to, int64_t apart, int64_t n, const int64_t *v)
{
    switch (dtype) {
    case BELAY_F32:
        STORE_LOOP(float, (float)v[i]);
        break;
    case BELAY_F64:
        STORE_LOOP(double, (double)v[i]);
        break;
    case BELAY_BF16:
        STORE_LOOP(bl_bf16, bl_to_bf16((float)v[i]));
        break;
    case BELAY_F16:
        STORE_LOOP(bl_f16, bl_to_f16((float)v[i]));
        break;
    case BELAY_I64:
        STORE_LOOP(int64_t, v[i]);
        break;
    case BELAY_I32:
        STORE_LOOP(int32_t, (int32_t)(uint32_t)(uint64_t)v[i]);
        break;
    case BELAY_U16:
        STORE_LOOP(uint16_t, (uint16_t)(uint64_t)v[i]);
        break;
    case BELAY_U8:
        STORE_LOOP(uint8_t, (uint8_t)(uint64_t)v[i]);
        break;
    default:
        STORE_LOOP(uint8_t, v[i] != 0);
    }
}

#define COPY_LOOP(type)                                                                                                \
    do {                                                                                                               \
        type *y = to;                                                                                                  \
        const type *x = from;                                                                                          \
        for (int64_t i = 0; i < n; i++)                                                                                \
            y[i * apart] = x[i * stride];                                                                              \
    } while (0)

/* n elements of the same dtype, `apart` elements apart in the output and `stride` in the input. */
static void copy_run(void *to, int64_t apart, const void *from, int64_t n, int64_t stride, int64_t element_size)
{
    if (stride == 1 && apart == 1)
        memcpy(to, from, (size_t)(n * element_size));
    else if (element_size == 4)
        COPY_LOOP(uint32_t);
    else if (element_size == 8)
        COPY_LOOP(uint64_t);
    else if (element_size == 2)
        COPY_LOOP(uint16_t);
    else
        COPY_LOOP(uint8_t);
}

static void cast_run(int to_dtype, void *to, int64_t apart, int from_dtype, const void *from, int64_t n, int64_t stride)
{
    int64_t to_step = belay_dtype_size(to_dtype) * apart, from_step = belay_dtype_size(from_dtype) * stride;
    for (int64_t at = 0; at < n; at += BLOCK) {
        block values;
        int64_t m = bl_min_i64(BLOCK, n - at);
        load_block(from_dtype, (const char *)from + at * from_step, stride, m, &values);
        if (belay_dtype_is_float((belay_dtype)from_dtype))
            store_reals(to_dtype, (char *)to + at * to_step, apart, m, values.real);
        else
            store_wholes(to_dtype, (char *)to + at * to_step, apart, m, values.whole);
    }
}

static void copy_range(const bl_launch *l, int64_t begin, int64_t end)
{
    const bl_operand *out = &l->operand[0], *in = &l->operand[1];
    int64_t inner = l->rank > 0 ? l->size[l->rank - 1] : 1, stride = l->rank > 0 ? in->stride[l->rank - 1] : 1;
    int64_t apart = l->rank > 0 ? out->stride[l->rank - 1] : 1;
    int64_t out_size = belay_dtype_size(out->dtype), in_size = belay_dtype_size(in->dtype), n;
    for (int64_t at = begin; at < end; at += n) {
        int64_t offset = 0, place = 0, rest = at;
        for (int axis = l->rank - 1; axis >= 0; axis--) {
            offset += rest % l->size[axis] * in->stride[axis];
            place += rest % l->size[axis] * out->stride[axis];
            rest /= l->size[axis];
        }
        n = bl_min_i64(inner - at % inner, end - at);
        char *to = (char *)out->data + place * out_size;
        const char *from = (const char *)in->data + offset * in_size;
        if (out->dtype == in->dtype)
            copy_run(to, apart, from, n, stride, out_size);
        else
            cast_run(out->dtype, to, apart, in->dtype, from, n, stride);
    }
}

static BL_CPU_THREADED void copy_on_threads(const bl_launch *l, int n_threads)
{
#pragma omp parallel num_threads(n_threads)
    {
        int part = omp_get_thread_num(), parts = omp_get_num_threads();
        copy_range(l, l->n_items / parts * part, part == parts - 1 ? l->n_items : l->n_items / parts * (part + 1));
    }
}

void bl_cpu_run_copy(bl_cpu *cpu, const bl_launch *l)
{
    int n_threads = bl_cpu_threads_for(cpu, l->n_items);
    if (n_threads == 1)
        copy_range(l, 0, l->n_items);
    else
        copy_on_threads(l, n_threads);
}

/* g_x[o, k, i] = g_y[o, i] / divisor: the gradient of a sum.  The division is the column's: f32 for all but f64. */
static void spread_row(int dtype, char *first, const char *g, int64_t inner, double divisor)
{
    int64_t size = belay_dtype_size(dtype);
    for (int64_t at = 0; at < inner; at += BLOCK) {
        block values;
        int64_t m = bl_min_i64(BLOCK, inner - at);
        load_block(dtype, g + at * size, 1, m, &values);
        for (int64_t i = 0; i < m; i++)
            values.real[i] =
                dtype == BELAY_F64 ? values.real[i] / divisor : (double)((float)values.real[i] / (float)divisor);
        store_reals(dtype, first + at * size, 1, m, values.real);
    }
}

static void spread_outer(const bl_launch *l, int64_t o)
{
    int64_t inner = l->dim[1], reduced = l->dim[2];
    const bl_operand *g = &l->operand[0], *x = &l->operand[1];
    int64_t size = belay_dtype_size(g->dtype);
    char *first = (char *)x->data + o * reduced * inner * size;
    if (reduced > 0)
        spread_row(g->dtype, first, (const char *)g->data + o * inner * size, inner, l->params.f[0]);
    for (int64_t k = 1; k < reduced && inner > 1; k++)
        memcpy(first + k * inner * size, first, (size_t)(inner * size));
    for (int64_t done = 1, n; done < reduced && inner == 1; done += n) { /* doubled until it is whole */
        n = bl_min_i64(done, reduced - done);
        memcpy(first + done * size, first, (size_t)(n * size));
    }
}

static BL_CPU_THREADED void spread_on_threads(const bl_launch *l, int n_threads)
{
#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int64_t o = 0; o < l->dim[0]; o++)
        spread_outer(l, o);
}

void bl_cpu_run_spread(bl_cpu *cpu, const bl_launch *l)
{
    int64_t outer = l->dim[0];
    int n_threads = (int)bl_min_i64(bl_cpu_threads_for(cpu, l->work), bl_max_i64(outer, 1));
    if (n_threads > 1) {
        spread_on_threads(l, n_threads);
        return;
    }
    for (int64_t o = 0; o < outer; o++)
        spread_outer(l, o);
}
