/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's blocks in one type of arithmetic.  Read by attention.c only, with BL_REAL, BL_COLUMN, BL_GEMM and, for
 * doubles, BL_REAL_IS_F64 set. */
#define BL_IS_FLOAT 1
#include "kernel/math.h"

/* y[m, n] (+)= alpha a b, rows of y `stride` apart; the factors are whole rows, each stored transposed or not. */
static void BL_(multiply)(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k, double alpha,
                          const BL_REAL *a, int64_t a_stride, const BL_REAL *b, int64_t b_stride, bool add, BL_REAL *y,
                          int64_t stride)
{
    if (m == 0 || n == 0)
        return;
    for (int64_t i = 0; i < m && k == 0 && !add; i++)
        memset(y + i * stride, 0, (size_t)n * sizeof *y);
    if (k > 0)
        BL_GEMM(CblasRowMajor, a_transposed ? CblasTrans : CblasNoTrans, b_transposed ? CblasTrans : CblasNoTrans,
                (int)m, (int)n, (int)k, (BL_REAL)alpha, a, (int)a_stride, b, (int)b_stride, add, y, (int)stride);
}

/* scores[rows, n] = scale q k^T. */
static void BL_(score)(const bl_attention *a, int64_t head, int64_t row, int64_t rows, int64_t key, int64_t n,
                       BL_REAL *scores)
{
    const BL_REAL *q = (const BL_REAL *)a->q + (head * a->rows + row) * a->width;
    const BL_REAL *k = (const BL_REAL *)a->k + (head * a->keys + key) * a->width;
    BL_(multiply)(false, true, rows, n, a->width, a->scale, q, a->width, k, a->width, false, scores, n);
}

/* What has been met of a row: its largest score and the sum of e^(score - top). */
typedef struct BL_(met) {
    BL_REAL top, sum;
} BL_(met);

/* n scores of a row, of which it sees the first `seen`, become e^(score - top); gives the factor for what was added up
 * with the largest score before. */
static BL_REAL BL_(weigh)(BL_REAL *BL_RESTRICT s, int64_t n, int64_t seen, BL_(met) * met)
{
    BL_REAL top, sum;
    BL_ROW_MAX(top, j, seen, s[j]);
    top = BL_(larger)(met->top, top);
    BL_REAL shift = top == BL_(lowest)() ? 0 : top; /* nothing but -Inf so far: weights of 0 */
    BL_EACH_APART(j, seen) s[j] = BL_(bl_exp)(s[j] - shift);
    for (int64_t j = seen; j < n; j++)
        s[j] = 0;
    BL_ROW_SUM(sum, j, seen, s[j]);
    BL_REAL factor = BL_(bl_exp)(met->top - shift);
    met->sum = met->sum * factor + sum;
    met->top = top;
    return factor;
}

/* Of a row's n weights from `key` on some are dropped; the sum that they are divided by has them all. */
static void BL_(drop)(const bl_attention *a, int64_t at, int64_t key, int64_t n, BL_REAL *BL_RESTRICT s)
{
    const int64_t first = a->first + at * a->keys + key;
    const BL_REAL keep = (BL_REAL)a->keep;
    BL_EACH_WORD(j, word, n, a->key, first, s[j] = bl_rng_uniform(word) < a->drop ? 0 : s[j] * keep);
}

/* y = y / sum, and the row's logarithm. */
static void BL_(finish)(const bl_attention *a, BL_REAL *BL_RESTRICT y, const BL_(met) * met, double *lse)
{
    *lse = (double)met->top + log((double)met->sum);
    if (a->keys > 0)
        BL_EACH_APART(j, a->value_width) y[j] /= met->sum;
}

static void BL_(forward_block)(const bl_attention *a, int64_t head, int64_t row, void *scratch)
{
    BL_REAL *scores = scratch;
    BL_(met) met[BL_ATTENTION_ROWS];
    const int64_t rows = bl_attention_block_rows(a, row), width = a->value_width;
    BL_REAL *y = (BL_REAL *)a->y + (head * a->rows + row) * width;
    memset(y, 0, (size_t)(rows * width) * sizeof *y);
    for (int64_t i = 0; i < rows; i++)
        met[i] = (BL_(met)){BL_(lowest)(), 0};
    for (int64_t key = 0, n; (n = bl_attention_block_keys(a, row, key)) > 0; key += BL_ATTENTION_KEYS) {
        BL_(score)(a, head, row, rows, key, n, scores);
        for (int64_t i = 0; i < rows; i++) {
            const int64_t seen = bl_attention_seen(a, row + i, key, n);
            BL_REAL factor = BL_(weigh)(scores + i * n, n, seen, &met[i]);
            if (a->drop > 0)
                BL_(drop)(a, head * a->rows + row + i, key, seen, scores + i * n);
            if (key > 0)
                BL_EACH_APART(j, width) y[i * width + j] *= factor;
        }
        BL_(multiply)
        (false, false, rows, width, n, 1, scores, n, (const BL_REAL *)a->v + (head * a->keys + key) * width, width,
         true, y, width);
    }
    for (int64_t i = 0; i < rows; i++)
        BL_(finish)(a, y + i * width, &met[i], &a->lse[head * a->rows + row + i]);
}

/* Scores become probabilities as v met them, what arrives there becomes the gradient of the scores before their scale. */
static void BL_(slope)(const bl_attention *a, int64_t at, int64_t key, int64_t n, int64_t seen, BL_REAL *BL_RESTRICT p,
                       BL_REAL *BL_RESTRICT d)
{
    const BL_REAL *g = (const BL_REAL *)a->g + at * a->value_width, *y = (const BL_REAL *)a->y + at * a->value_width;
    BL_REAL high = (BL_REAL)a->lse[at], low = (BL_REAL)(a->lse[at] - (double)high), mean;
    const BL_REAL scale = (BL_REAL)a->scale;
    low = low == low ? low : 0; /* an infinite logarithm */
    BL_ROW_SUM(mean, j, a->value_width, g[j] * y[j]);
    if (a->drop > 0) {
        const int64_t first = a->first + at * a->keys + key;
        const BL_REAL keep = (BL_REAL)a->keep;
        BL_EACH_WORD(j, word, seen, a->key, first, {
            BL_REAL weight = BL_(bl_exp)((p[j] - high) - low);
            bool is_dropped = bl_rng_uniform(word) < a->drop;
            p[j] = is_dropped ? 0 : weight * keep;
            d[j] = weight * ((is_dropped ? 0 : d[j] * keep) - mean) * scale;
        });
    } else {
        BL_EACH_APART(j, seen)
        {
            BL_REAL weight = BL_(bl_exp)((p[j] - high) - low);
            p[j] = weight;
            d[j] = weight * (d[j] - mean) * scale;
        }
    }
    for (int64_t j = seen; j < n; j++)
        p[j] = d[j] = 0;
}

static void BL_(backward_block)(const bl_attention *a, int64_t head, int64_t row, int64_t key, int owned, void *scratch)
{
    const int64_t rows = bl_attention_block_rows(a, row), n = bl_attention_block_keys(a, row, key);
    const int64_t at = head * a->rows + row, from = head * a->keys + key, width = a->width, out = a->value_width;
    BL_REAL *p = scratch, *d = p + BL_ATTENTION_ROWS * BL_ATTENTION_KEYS;
    const BL_REAL *g = (const BL_REAL *)a->g + at * out, *v = (const BL_REAL *)a->v + from * out;
    const BL_REAL *q = (const BL_REAL *)a->q + at * width, *k = (const BL_REAL *)a->k + from * width;
    BL_REAL *g_q = (BL_REAL *)a->g_q + at * width, *g_k = (BL_REAL *)a->g_k + from * width;
    BL_REAL *g_v = (BL_REAL *)a->g_v + from * out;
    if (n <= 0)
        return;
    BL_(score)(a, head, row, rows, key, n, p);
    BL_(multiply)(false, true, rows, n, out, 1, g, out, v, out, false, d, n);
    for (int64_t i = 0; i < rows; i++)
        BL_(slope)(a, at + i, key, n, bl_attention_seen(a, row + i, key, n), p + i * n, d + i * n);
    if (owned & BL_ATTENTION_OWNS_ROWS)
        BL_(multiply)(false, false, rows, width, n, 1, d, n, k, width, true, g_q, width);
    if (owned & BL_ATTENTION_OWNS_KEYS) {
        BL_(multiply)(true, false, n, width, rows, 1, d, n, q, width, true, g_k, width);
        BL_(multiply)(true, false, n, out, rows, 1, p, n, g, out, true, g_v, out);
    }
}

static const bl_attention_code BL_(code) = {BL_(forward_block), BL_(backward_block)};

#undef BL_IS_FLOAT
#undef BL_REAL
#undef BL_COLUMN
#undef BL_GEMM
#undef BL_REAL_IS_F64
