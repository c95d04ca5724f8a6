/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between layouts and dtypes: operand 0 is the output, operand 1 the input, each with any strides. */
#include <omp.h>
#include <string.h>

#include "base/checked.h"
#include "device/cpu/kernel.h"

/* Value of one element in the widest type of its kind. */
typedef struct wide {
    double real;
    int64_t whole;
    bool is_float;
} wide;

static wide load_wide(int dtype, const void *from)
{
    switch (dtype) {
    case BELAY_F32:
        return (wide){.real = (double)*(const float *)from, .is_float = true};
    case BELAY_F64:
        return (wide){.real = *(const double *)from, .is_float = true};
    case BELAY_BF16:
        return (wide){.real = (double)bl_from_bf16(*(const bl_bf16 *)from), .is_float = true};
    case BELAY_F16:
        return (wide){.real = (double)bl_from_f16(*(const bl_f16 *)from), .is_float = true};
    case BELAY_I64:
        return (wide){.whole = *(const int64_t *)from};
    case BELAY_I32:
        return (wide){.whole = *(const int32_t *)from};
    case BELAY_U16:
        return (wide){.whole = *(const uint16_t *)from};
    case BELAY_U8:
        return (wide){.whole = *(const uint8_t *)from};
    default:
        return (wide){.whole = *(const uint8_t *)from != 0};
    }
}

/* Cut towards zero, out of range to the nearest end, NaN to 0. */
static int64_t whole_of(wide v)
{
    if (!v.is_float)
        return v.whole;
    if (v.real != v.real)
        return 0;
    if (v.real >= 9223372036854775808.0)
        return INT64_MAX;
    if (v.real < -9223372036854775808.0)
        return INT64_MIN;
    return (int64_t)v.real;
}

static int64_t limit_to(int64_t v, int64_t low, int64_t high, bool is_float)
{
    return !is_float ? v : v < low ? low : v > high ? high : v;
}

static void store_wide(int dtype, void *to, wide v)
{
    switch (dtype) {
    case BELAY_F32:
        *(float *)to = v.is_float ? (float)v.real : (float)v.whole;
        break;
    case BELAY_F64:
        *(double *)to = v.is_float ? v.real : (double)v.whole;
        break;
    case BELAY_BF16:
        *(bl_bf16 *)to = bl_to_bf16(v.is_float ? (float)v.real : (float)v.whole);
        break;
    case BELAY_F16:
        *(bl_f16 *)to = bl_to_f16(v.is_float ? (float)v.real : (float)v.whole);
        break;
    case BELAY_I64:
        *(int64_t *)to = whole_of(v);
        break;
    case BELAY_I32:
        bl_store_i32((int32_t *)to, limit_to(whole_of(v), INT32_MIN, INT32_MAX, v.is_float));
        break;
    case BELAY_U16:
        bl_store_u16((uint16_t *)to, limit_to(whole_of(v), 0, UINT16_MAX, v.is_float));
        break;
    case BELAY_U8:
        bl_store_u8((uint8_t *)to, limit_to(whole_of(v), 0, UINT8_MAX, v.is_float));
        break;
    default:
        *(uint8_t *)to = v.is_float ? v.real != 0 : v.whole != 0;
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
    int64_t to_size = belay_dtype_size(to_dtype), from_size = belay_dtype_size(from_dtype);
    if (to_dtype == BELAY_F32 && from_dtype == BELAY_F64 && stride == 1 && apart == 1) {
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = (float)((const double *)from)[i];
        return;
    }
    for (int64_t i = 0; i < n; i++)
        store_wide(to_dtype, (char *)to + i * apart * to_size,
                   load_wide(from_dtype, (const char *)from + i * stride * from_size));
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

void bl_cpu_run_copy(bl_cpu *cpu, const bl_launch *l)
{
    int n_threads = bl_cpu_threads_for(cpu, l->n_items);
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
        int part = omp_get_thread_num(), parts = omp_get_num_threads();
        copy_range(l, l->n_items / parts * part, part == parts - 1 ? l->n_items : l->n_items / parts * (part + 1));
    }
}

/* g_x[o, k, i] = g_y[o, i] / divisor: the gradient of a sum. */
void bl_cpu_run_spread(bl_cpu *cpu, const bl_launch *l)
{
    (void)cpu;
    int64_t outer = l->dim[0], inner = l->dim[1], reduced = l->dim[2];
    const bl_operand *g = &l->operand[0], *x = &l->operand[1];
    int64_t size = belay_dtype_size(g->dtype);
    for (int64_t o = 0; o < outer; o++) {
        char *first = (char *)x->data + o * reduced * inner * size;
        for (int64_t i = 0; reduced > 0 && i < inner; i++) {
            wide v = load_wide(g->dtype, (const char *)g->data + (o * inner + i) * size);
            if (g->dtype == BELAY_F64)
                v.real /= l->params.f[0];
            else
                v.real = (double)((float)v.real / (float)l->params.f[0]);
            store_wide(g->dtype, first + i * size, v);
        }
        for (int64_t k = 1; k < reduced; k++)
            memcpy(first + k * inner * size, first, (size_t)(inner * size));
    }
}
