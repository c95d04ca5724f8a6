/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_products.h"

#include <cblas.h>
#include <omp.h>
#include <string.h>

#include "base/attributes.h"
#include "base/clock.h"
#include "base/memory.h"

/* batch, steps, width of the embedding, width of the hidden state and its gates, classes */
enum { B = 64, T = 20, E = 128, H = 256, G = 4 * H, C = 5 };

/* y [m, n] = a [m, k] b [k, n], `times` a micro-batch. */
typedef struct shape {
    int m, n, k, times;
} shape;

static const shape shapes[] = {
    {T * B, G, E, 1}, {B, G, H, T},    {T * B, G, H, 1}, {B, G, H, T},     /* forward: layer 0, layer 1 */
    {B, C, H, 1},     {B, H, C, 1},    {C, H, B, 1},                       /* the last linear layer and its gradients */
    {B, H, G, T},     {G, H, T *B, 1}, {G, H, T *B, 1},  {T * B, H, G, 1}, /* backward: layer 1 */
    {B, H, G, T},     {G, H, T *B, 1}, {G, E, T *B, 1},  {T * B, E, G, 1}, /* backward: layer 0 */
};

typedef struct form {
    bool a_transposed, b_transposed, by_rows;
    int threads;
} form;

struct bl_products {
    int threads;
    float *a, *b, *y;
    form best[BL_COUNT(shapes)];
};

enum { LARGEST = T * B * G };

static void multiply_part(const bl_products *p, const shape *s, const form *f, int part)
{
    int whole = f->by_rows ? s->m : s->n, begin = (int)((int64_t)whole * part / f->threads);
    int size = (int)((int64_t)whole * (part + 1) / f->threads) - begin;
    int lda = f->a_transposed ? s->m : s->k, ldb = f->b_transposed ? s->k : s->n;
    const float *a = p->a, *b = p->b;
    float *y = p->y;
    if (f->by_rows) {
        a += f->a_transposed ? begin : begin * lda;
        y += begin * s->n;
    } else {
        b += f->b_transposed ? begin * ldb : begin;
        y += begin;
    }
    if (size > 0)
        cblas_sgemm(CblasRowMajor, f->a_transposed ? CblasTrans : CblasNoTrans,
                    f->b_transposed ? CblasTrans : CblasNoTrans, f->by_rows ? size : s->m, f->by_rows ? s->n : size,
                    s->k, 1, a, lda, b, ldb, 0, y, s->n);
}

static void multiply(const bl_products *p, const shape *s, const form *f)
{
    if (f->threads == 1) {
        multiply_part(p, s, f, 0);
        return;
    }
#pragma omp parallel num_threads(f->threads)
    multiply_part(p, s, f, omp_get_thread_num());
}

static double seconds_of(const bl_products *p, const shape *s, const form *f)
{
    double best = 1e30;
    for (int i = 0; i < 7; i++) {
        int64_t start = bl_clock_now();
        for (int j = 0; j < s->times; j++)
            multiply(p, s, f);
        double seconds = (double)(bl_clock_now() - start) * 1e-9;
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void choose(bl_products *p, int number)
{
    double best = 1e30;
    for (int i = 0; i < 16; i++) {
        form f = {(i & 1) != 0, (i & 2) != 0, (i & 4) != 0, (i & 8) != 0 ? 1 : p->threads};
        double seconds = seconds_of(p, &shapes[number], &f);
        if (seconds < best) {
            best = seconds;
            p->best[number] = f;
        }
    }
}

bl_products *bl_products_new(int threads)
{
    bl_products *p = bl_alloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->threads = threads;
    p->a = bl_alloc(LARGEST, sizeof(float));
    p->b = bl_alloc(LARGEST, sizeof(float));
    p->y = bl_alloc(LARGEST, sizeof(float));
    if (p->a == NULL || p->b == NULL || p->y == NULL) {
        bl_products_free(p);
        return NULL;
    }
    for (int i = 0; i < LARGEST; i++) {
        p->a[i] = (float)(i % 7) * 0.1f;
        p->b[i] = (float)(i % 5) * 0.1f;
    }
    for (int i = 0; i < BL_COUNT(shapes); i++)
        choose(p, i);
    return p;
}

void bl_products_free(bl_products *p)
{
    if (p == NULL)
        return;
    bl_free(p->a);
    bl_free(p->b);
    bl_free(p->y);
    bl_free(p);
}

void bl_products_run(bl_products *p)
{
    for (int i = 0; i < BL_COUNT(shapes); i++)
        for (int j = 0; j < shapes[i].times; j++)
            multiply(p, &shapes[i], &p->best[i]);
}

double bl_products_flop(const bl_products *p)
{
    (void)p;
    double flop = 0;
    for (int i = 0; i < BL_COUNT(shapes); i++)
        flop += 2.0 * shapes[i].m * shapes[i].n * shapes[i].k * shapes[i].times;
    return flop;
}

double bl_products_square(int threads, int tries)
{
    enum { N = 2048 };
    float *a = bl_alloc(3 * (int64_t)N * N, sizeof(float));
    double best = 1e30;
    for (int i = 0; i < tries && a != NULL; i++) {
        int64_t start = bl_clock_now();
#pragma omp parallel num_threads(threads)
        {
            int part = omp_get_thread_num(), begin = N * part / threads, size = N * (part + 1) / threads - begin;
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size, N, N, 1, a + (int64_t)begin * N, N,
                        a + (int64_t)N * N, N, 0, a + 2 * (int64_t)N * N + (int64_t)begin * N, N);
        }
        double seconds = (double)(bl_clock_now() - start) * 1e-9;
        best = seconds < best ? seconds : best;
    }
    bl_free(a);
    return best;
}
