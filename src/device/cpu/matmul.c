/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: y[b] = a[b] b[b], or y[b] += a[b] b[b].  The output is cut into panels whose borders depend on the
 * shape alone; each panel is one single-threaded gemm of the BLAS, so bits do not depend on the number of threads.
 * 16-bit operands pass through f32.
 *
 * size = batch, M, N, K.  params.i: 0, 1 = a, b stored transposed; 2 = add to y; 3, 4 = batch strides of a, b in
 * elements (0: the same matrix for every b). */
#include <cblas.h>
#include <omp.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "device/cpu/kernel.h"
#include "device/cpu/wide.h"

/* The largest panel, and what the sides of panels are multiples of. */
#ifdef BELAY_SMALL
enum { PANEL_ROWS = 5, PANEL_COLUMNS = 7, PANEL_STEP = 1 };
#else
enum { PANEL_ROWS = 640, PANEL_COLUMNS = 1024, PANEL_STEP = 16 };
#endif

typedef struct product {
    int dtype;
    int64_t m, n, k;
    bool a_transposed, b_transposed, add;
    const void *a, *b;
    void *y;
} product;

static bool narrow(const product *p, int sizes[3])
{
    return bl_checked_int(p->m, &sizes[0]) && bl_checked_int(p->n, &sizes[1]) && bl_checked_int(p->k, &sizes[2]);
}

/* Rows [m0, m0 + m) and columns [n0, n0 + n) of y. */
static void gemm_panel(const product *p, int64_t m0, int64_t m, int64_t n0, int64_t n)
{
    int lda = (int)(p->a_transposed ? p->m : p->k), ldb = (int)(p->b_transposed ? p->k : p->n);
    int64_t a0 = p->a_transposed ? m0 : m0 * p->k, b0 = p->b_transposed ? n0 * p->k : n0, y0 = m0 * p->n + n0;
    CBLAS_TRANSPOSE ta = p->a_transposed ? CblasTrans : CblasNoTrans;
    CBLAS_TRANSPOSE tb = p->b_transposed ? CblasTrans : CblasNoTrans;
    if (p->dtype == BELAY_F64)
        cblas_dgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)p->k, 1, (const double *)p->a + a0, lda,
                    (const double *)p->b + b0, ldb, p->add, (double *)p->y + y0, (int)p->n);
    else
        cblas_sgemm(CblasRowMajor, ta, tb, (int)m, (int)n, (int)p->k, 1, (const float *)p->a + a0, lda,
                    (const float *)p->b + b0, ldb, (float)p->add, (float *)p->y + y0, (int)p->n);
}

/* Length of the parts that a side is cut into: a power of two of equal parts, so that two, four, ... threads get the
 * same work. */
static int64_t part_of(int64_t n, int64_t limit, int64_t at_least)
{
    int64_t parts = at_least;
    while (n / parts > limit || (n / parts == limit && n % parts > 0))
        parts *= 2;
    return ((n + parts - 1) / parts + PANEL_STEP - 1) / PANEL_STEP * PANEL_STEP;
}

/* Few large panels: each packs its share of both factors again.  At least two where there is work for two. */
static void panel_shape(int64_t m, int64_t n, int64_t k, int64_t *rows, int64_t *columns)
{
    bool is_one = m <= PANEL_ROWS && n <= PANEL_COLUMNS, is_worth = m * n >= 4096 && k >= 16 && m * n * k >= 4 << 20;
    int64_t cut = is_one && is_worth ? 2 : 1;
    *rows = part_of(m, PANEL_ROWS, n < m ? cut : 1);
    *columns = part_of(n, PANEL_COLUMNS, n < m ? 1 : cut);
}

/* Panel number `panel`, counted along rows of `across`. */
static void numbered_panel(const product *p, int64_t panel, int64_t across, int64_t rows, int64_t columns)
{
    int64_t m0 = panel / across * rows, n0 = panel % across * columns;
    gemm_panel(p, m0, bl_min_i64(rows, p->m - m0), n0, bl_min_i64(columns, p->n - n0));
}

static BL_CPU_THREADED void panels_on_threads(const product *p, int64_t across, int64_t rows, int64_t columns,
                                              int n_threads)
{
    int64_t panels = (p->m + rows - 1) / rows * across;
#pragma omp parallel for schedule(static) num_threads(n_threads)
    for (int64_t panel = 0; panel < panels; panel++)
        numbered_panel(p, panel, across, rows, columns);
}

static bool multiply(const bl_cpu *cpu, const product *p)
{
    int sizes[3];
    if (p->m == 0 || p->n == 0)
        return true;
    if (!narrow(p, sizes))
        return false;
    if (p->k == 0) {
        if (!p->add)
            memset(p->y, 0, (size_t)(p->m * p->n * belay_dtype_size(p->dtype)));
        return true;
    }
    int64_t rows, columns;
    panel_shape(p->m, p->n, p->k, &rows, &columns);
    int64_t across = (p->n + columns - 1) / columns, panels = (p->m + rows - 1) / rows * across;
    int n_threads = (int)bl_min_i64(panels, bl_cpu_threads_for(cpu, p->m * p->n / 8 * bl_max_i64(p->k / 8, 1)));
    if (n_threads > 1) {
        panels_on_threads(p, across, rows, columns, n_threads);
        return true;
    }
    for (int64_t panel = 0; panel < panels; panel++)
        numbered_panel(p, panel, across, rows, columns);
    return true;
}

static bool multiply_batch(const bl_cpu *cpu, const bl_launch *l, int dtype, const void *a, const void *b, void *y)
{
    product p = {.dtype = dtype,
                 .m = l->size[1],
                 .n = l->size[2],
                 .k = l->size[3],
                 .a_transposed = l->params.i[0] != 0,
                 .b_transposed = l->params.i[1] != 0,
                 .add = l->params.i[2] != 0};
    int64_t bytes = belay_dtype_size(dtype);
    for (int64_t batch = 0; batch < l->size[0]; batch++) {
        p.a = (const char *)a + batch * l->params.i[3] * bytes;
        p.b = (const char *)b + batch * l->params.i[4] * bytes;
        p.y = (char *)y + batch * p.m * p.n * bytes;
        if (!multiply(cpu, &p))
            return false;
    }
    return true;
}

bool bl_cpu_run_matmul(bl_cpu *cpu, const bl_launch *l)
{
    const bl_operand *a = &l->operand[0], *b = &l->operand[1], *y = &l->operand[2];
    if (l->dtype == BELAY_F32 || l->dtype == BELAY_F64)
        return multiply_batch(cpu, l, l->dtype, a->data, b->data, y->data);
    int64_t batch = bl_max_i64(l->size[0], 1);
    int64_t na = (l->params.i[3] != 0 ? batch : 1) * l->size[1] * l->size[3];
    int64_t nb = (l->params.i[4] != 0 ? batch : 1) * l->size[2] * l->size[3], ny = l->size[0] * l->size[1] * l->size[2];
    float *wa = bl_cpu_wide_take(cpu, a, na), *wb = bl_cpu_wide_take(cpu, b, nb),
          *wy = bl_cpu_wide_take(cpu, l->params.i[2] != 0 ? y : NULL, ny);
    bool ok = wa != NULL && wb != NULL && wy != NULL && multiply_batch(cpu, l, BELAY_F32, wa, wb, wy);
    bl_cpu_wide_give(cpu, NULL, wa, na);
    bl_cpu_wide_give(cpu, NULL, wb, nb);
    bl_cpu_wide_give(cpu, ok ? y : NULL, wy, ny);
    return ok;
}
