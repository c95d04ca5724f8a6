/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by blocks of rows and keys (Dao et al., "FlashAttention", 2022; the softmax as it goes along is of Milakov
 * and Gimelshein, 2018).  Promise: memory for a few blocks of scores a thread, however many rows and keys there are;
 * bits that do not depend on the number of threads.
 *
 * Forward: a block of rows goes over the blocks of keys in order.  The largest score and the sum so far are kept for
 * each row, and what was added up is scaled when the largest grows.  y and the logarithm of each row's sum are all that
 * the gradient needs beside q, k and v.
 *
 * Gradient: the scores of a block of rows and keys are computed again; the logarithm makes them probabilities.  The
 * gradient of q is owned by blocks of rows and adds up over the keys in order; those of k and v are owned by blocks of
 * keys and add up over the rows in order.  Where there are heads enough, a thread owns whole heads and computes each
 * block once; else rows and keys are owned apart and each block is computed twice.  Both ways call the BLAS with the
 * same blocks in the same order for every element, so that they give the same bits.
 *
 * What dropout drops of the probabilities is a function of their numbers alone: each block draws its own, in the gradient
 * again.
 *
 * With a causal mask, blocks above the diagonal are left out.  Each product is one single-threaded gemm of a block;
 * 16-bit operands pass through f32. */
#include "device/cpu/attention.h"

#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "device/cpu/wide.h"

#define BL_(name) BL_JOIN(BL_JOIN(name, _), BL_COLUMN)

#define BL_REAL        float
#define BL_COLUMN      f32
#define BL_GEMM        cblas_sgemm
#define BL_REAL_IS_F64 0
#include "device/cpu/attention_column.h"

#define BL_REAL        double
#define BL_COLUMN      f64
#define BL_GEMM        cblas_dgemm
#define BL_REAL_IS_F64 1
#include "device/cpu/attention_column.h"

/* ---- who does what --------------------------------------------------------------------------------------------------- */

/* Owns item `item` of a launch and computes it. */
typedef struct owner {
    const bl_attention *a;
    const bl_attention_code *code;
    int64_t size; /* bytes of an element */
    int64_t row_blocks, key_blocks;
    int64_t n_items;
    void (*compute)(const struct owner *o, int64_t item, void *scratch);
} owner;

static void compute_rows(const owner *o, int64_t item, void *scratch)
{
    o->code->forward(o->a, item / o->row_blocks, item % o->row_blocks * BL_ATTENTION_ROWS, scratch);
}

static void zero(void *matrix, int64_t first, int64_t n, int64_t row_bytes)
{
    if (n > 0 && row_bytes > 0)
        memset((char *)matrix + first * row_bytes, 0, (size_t)(n * row_bytes));
}

static void zero_rows(const owner *o, int64_t head, int64_t row, int64_t n)
{
    zero(o->a->g_q, head * o->a->rows + row, n, o->a->width * o->size);
}

static void zero_keys(const owner *o, int64_t head, int64_t key, int64_t n)
{
    zero(o->a->g_k, head * o->a->keys + key, n, o->a->width * o->size);
    zero(o->a->g_v, head * o->a->keys + key, n, o->a->value_width * o->size);
}

static void compute_head(const owner *o, int64_t head, void *scratch)
{
    const bl_attention *a = o->a;
    zero_rows(o, head, 0, a->rows);
    zero_keys(o, head, 0, a->keys);
    for (int64_t row = 0; row < a->rows; row += BL_ATTENTION_ROWS)
        for (int64_t key = 0; bl_attention_block_keys(a, row, key) > 0; key += BL_ATTENTION_KEYS)
            o->code->backward(a, head, row, key, BL_ATTENTION_OWNS_ROWS | BL_ATTENTION_OWNS_KEYS, scratch);
}

/* Of a head's items the first own its blocks of rows, the others its blocks of keys. */
static void compute_side(const owner *o, int64_t item, void *scratch)
{
    const bl_attention *a = o->a;
    int64_t sides = o->row_blocks + o->key_blocks, head = item / sides, side = item % sides;
    if (side < o->row_blocks) {
        int64_t row = side * BL_ATTENTION_ROWS;
        zero_rows(o, head, row, bl_attention_block_rows(a, row));
        for (int64_t key = 0; bl_attention_block_keys(a, row, key) > 0; key += BL_ATTENTION_KEYS)
            o->code->backward(a, head, row, key, BL_ATTENTION_OWNS_ROWS, scratch);
        return;
    }
    int64_t key = (side - o->row_blocks) * BL_ATTENTION_KEYS;
    zero_keys(o, head, key, bl_min_i64(BL_ATTENTION_KEYS, a->keys - key));
    for (int64_t row = 0; row < a->rows; row += BL_ATTENTION_ROWS)
        o->code->backward(a, head, row, key, BL_ATTENTION_OWNS_KEYS, scratch);
}

/* ---- threads --------------------------------------------------------------------------------------------------------- */

static int64_t scratch_bytes(const owner *o) { return 2 * (int64_t)BL_ATTENTION_ROWS * BL_ATTENTION_KEYS * o->size; }

/* Later rows see more keys under a mask: threads take items as they get to them. */
static BL_CPU_THREADED void compute_on_threads(const owner *o, char *scratch, int n_threads)
{
    int64_t bytes = scratch_bytes(o);
#pragma omp parallel for schedule(dynamic) num_threads(n_threads)
    for (int64_t item = 0; item < o->n_items; item++)
        o->compute(o, item, scratch + omp_get_thread_num() * bytes);
}

static int threads_for(const bl_cpu *cpu, const bl_attention *a)
{
    double products = (double)a->heads * (double)a->rows * (double)a->keys * (double)(a->width + a->value_width);
    return bl_cpu_threads_for(cpu, products < 0x1p62 ? (int64_t)products / 64 : INT64_MAX);
}

static bool compute(const bl_cpu *cpu, const bl_attention *a, int dtype, bool is_backward)
{
    owner o = {.a = a,
               .code = dtype == BELAY_F64 ? &code_f64 : &code_f32,
               .size = dtype == BELAY_F64 ? (int64_t)sizeof(double) : (int64_t)sizeof(float),
               .row_blocks = (a->rows + BL_ATTENTION_ROWS - 1) / BL_ATTENTION_ROWS,
               .key_blocks = (a->keys + BL_ATTENTION_KEYS - 1) / BL_ATTENTION_KEYS,
               .compute = compute_rows};
    int n_threads = threads_for(cpu, a);
    o.n_items = a->heads * o.row_blocks;
    if (is_backward) {
        bool by_head = n_threads == 1 || a->heads >= 4 * (int64_t)n_threads;
        o.compute = by_head ? compute_head : compute_side;
        o.n_items = by_head ? a->heads : a->heads * (o.row_blocks + o.key_blocks);
    }
    n_threads = (int)bl_max_i64(1, bl_min_i64(n_threads, o.n_items));
    int64_t bytes = n_threads * scratch_bytes(&o);
    char *scratch = bl_pool_take(cpu->scratch, bytes);
    if (scratch == NULL)
        return false;
    if (n_threads > 1)
        compute_on_threads(&o, scratch, n_threads);
    else
        for (int64_t item = 0; item < o.n_items; item++)
            o.compute(&o, item, scratch);
    bl_pool_give(cpu->scratch, scratch, bytes);
    return true;
}

/* ---- launches -------------------------------------------------------------------------------------------------------- */

/* A launch's matrices by its operands' numbers, in the order of the fields below. */
enum { N_MATRICES = 8 };
typedef struct matrix {
    void **as; /* what the blocks see */
    int operand;
    int64_t n;
    bool is_written;
} matrix;

static int matrices_of(bl_attention *a, bool is_backward, matrix out[N_MATRICES])
{
    const int64_t q = a->heads * a->rows * a->width, k = a->heads * a->keys * a->width;
    const int64_t v = a->heads * a->keys * a->value_width, y = a->heads * a->rows * a->value_width;
    const matrix forward[] = {{&a->q, 0, q, false}, {&a->k, 1, k, false}, {&a->v, 2, v, false}, {&a->y, 3, y, true}};
    const matrix backward[] = {{&a->g, 0, y, false},  {&a->q, 1, q, false}, {&a->k, 2, k, false},
                               {&a->v, 3, v, false},  {&a->y, 4, y, false}, {&a->g_q, 6, q, true},
                               {&a->g_k, 7, k, true}, {&a->g_v, 8, v, true}};
    if (is_backward)
        memcpy(out, backward, sizeof backward);
    else
        memcpy(out, forward, sizeof forward);
    return is_backward ? BL_COUNT(backward) : BL_COUNT(forward);
}

/* 16-bit matrices in f32 while the blocks are at work. */
static bool compute_wide(bl_cpu *cpu, const bl_launch *l, bl_attention *a, const matrix *m, int n, bool is_backward)
{
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        *m[i].as = bl_cpu_wide_take(cpu, m[i].is_written ? NULL : &l->operand[m[i].operand], m[i].n);
        ok = *m[i].as != NULL;
    }
    ok = ok && compute(cpu, a, BELAY_F32, is_backward);
    for (int i = 0; i < n; i++)
        bl_cpu_wide_give(cpu, ok && m[i].is_written ? &l->operand[m[i].operand] : NULL, *m[i].as, m[i].n);
    return ok;
}

bool bl_cpu_run_attention(bl_cpu *cpu, const bl_launch *l)
{
    /* Symbols as the operands name them: q[BTD] k[BSD] v[BSE], and g_y[BTE] q[BTD] k[BSD]. */
    const bool is_backward = l->op == BL_OP_attention_grad;
    int narrow;
    matrix m[N_MATRICES];
    bl_attention a = {.heads = l->dim[0],
                      .rows = l->dim[1],
                      .keys = l->dim[is_backward ? 4 : 3],
                      .width = l->dim[is_backward ? 3 : 2],
                      .value_width = l->dim[is_backward ? 2 : 4],
                      .is_causal = l->params.i[0] != 0,
                      .scale = l->params.f[0],
                      .drop = (float)l->params.f[1],
                      .keep = 1 / (1 - l->params.f[1]),
                      .first = l->params.i[1],
                      .key = l->params.rng,
                      .lse = l->operand[is_backward ? 5 : 4].data};
    if (!bl_checked_int(a.width, &narrow) || !bl_checked_int(a.value_width, &narrow))
        return false;
    int n = matrices_of(&a, is_backward, m);
    if (l->dtype != BELAY_F32 && l->dtype != BELAY_F64)
        return compute_wide(cpu, l, &a, m, n, is_backward);
    for (int i = 0; i < n; i++)
        *m[i].as = l->operand[m[i].operand].data;
    return compute(cpu, &a, l->dtype, is_backward);
}
