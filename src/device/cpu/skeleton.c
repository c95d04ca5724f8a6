/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's loops over bodies.  Threads split elements, rows or target rows; no two write the same place and no sum is
 * split, so bits do not depend on their number. */
#include <omp.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "device/cpu/kernel.h"

static int64_t part_begin(int64_t n, int part, int parts) { return n / parts * part + bl_min_i64(n % parts, part); }

/* ---- maps ------------------------------------------------------------------------------------------------------------ */

/* Walks elements [begin, end) of the output as runs along the innermost axis. */
static void walk_map(const bl_launch *l, bl_cpu_map body, int64_t begin, int64_t end)
{
    int64_t element_size[4], inner = l->rank > 0 ? l->size[l->rank - 1] : 1;
    bl_cpu_run run = {.params = &l->params};
    for (int k = 0; k < l->n_operands; k++) {
        element_size[k] = belay_dtype_size(l->operand[k].dtype);
        run.stride[k] = l->rank > 0 ? l->operand[k].stride[l->rank - 1] : 0;
    }
    for (int64_t at = begin; at < end; at += run.n) {
        int64_t offset[4] = {0}, rest = at;
        for (int axis = l->rank - 1; axis >= 0; axis--) {
            int64_t index = rest % l->size[axis];
            rest /= l->size[axis];
            for (int k = 0; k < l->n_operands; k++)
                offset[k] += index * l->operand[k].stride[axis];
        }
        run.first = at;
        run.n = bl_min_i64(inner - at % inner, end - at);
        for (int k = 0; k < l->n_operands; k++)
            run.data[k] = (char *)l->operand[k].data + offset[k] * element_size[k];
        body(&run);
    }
}

void bl_cpu_run_map(bl_cpu *cpu, const bl_launch *l, bl_cpu_map body)
{
    int n_threads = bl_cpu_threads_for(cpu, l->n_items);
    if (n_threads == 1) {
        walk_map(l, body, 0, l->n_items);
        return;
    }
#pragma omp parallel num_threads(n_threads)
    {
        int part = omp_get_thread_num(), parts = omp_get_num_threads();
        walk_map(l, body, part_begin(l->n_items, part, parts), part_begin(l->n_items, part + 1, parts));
    }
}

/* ---- rows and reductions --------------------------------------------------------------------------------------------- */

/* Element operations of one item, from the largest operand. */
static int64_t work_of(const bl_launch *l)
{
    int64_t work = l->n_items;
    for (int i = 0; i < 8; i++)
        if (l->dim[i] > 1 && !bl_checked_mul(work, l->dim[i] == l->n_items ? 1 : l->dim[i], &work))
            return INT64_MAX;
    return work;
}

void bl_cpu_run_items(bl_cpu *cpu, const bl_launch *l, bl_cpu_items body, bl_bad *bad)
{
    int n_threads = (int)bl_min_i64(bl_cpu_threads_for(cpu, work_of(l)), bl_max_i64(l->n_items, 1));
    if (n_threads == 1) {
        body(l, 0, l->n_items, bad);
        return;
    }
#pragma omp parallel num_threads(n_threads)
    {
        int part = omp_get_thread_num(), parts = omp_get_num_threads();
        bl_bad mine = {0};
        body(l, part_begin(l->n_items, part, parts), part_begin(l->n_items, part + 1, parts), &mine);
#pragma omp critical(bl_cpu_bad)
        bl_cpu_merge_bad(bad, &mine);
    }
}

/* ---- sums by index --------------------------------------------------------------------------------------------------- */

/* Orders sources by key, stably: start[k] .. start[k + 1] are the positions of key k in `order`. */
static void order_by_key(const int64_t *keys, int64_t n, int64_t n_keys, int64_t *start, int64_t *order)
{
    memset(start, 0, (size_t)(n_keys + 1) * sizeof *start);
    for (int64_t e = 0; e < n; e++)
        if (keys[e] >= 0)
            start[keys[e] + 1]++;
    for (int64_t k = 0; k < n_keys; k++)
        start[k + 1] += start[k];
    for (int64_t e = 0; e < n; e++)
        if (keys[e] >= 0)
            order[start[keys[e]]++] = e;
    for (int64_t k = n_keys; k > 0; k--)
        start[k] = start[k - 1];
    start[0] = 0;
}

static void gather_targets(const bl_launch *l, const bl_cpu_entry *entry, const int64_t *start, const int64_t *order,
                           int64_t begin, int64_t end, int64_t width)
{
    const bl_operand *out = &l->operand[l->n_operands - 1];
    int64_t row_bytes = width * belay_dtype_size(out->dtype);
    if (l->params.i[7] == 0)
        memset((char *)out->data + begin * row_bytes, 0, (size_t)((end - begin) * row_bytes));
    for (int64_t target = begin; target < end; target++)
        if (start[target + 1] > start[target])
            entry->gather(l, target, order + start[target], start[target + 1] - start[target], width);
}

/* size[0] source rows, size[1] target rows, size[2] elements a row.  params.i[7] nonzero: add to what is there. */
bool bl_cpu_run_sorted(bl_cpu *cpu, const bl_launch *l, const bl_cpu_entry *entry, bl_bad *bad)
{
    int64_t n = l->size[0], n_targets = l->size[1], width = l->size[2], cells, bytes;
    if (!bl_checked_add(n_targets, 1, &cells) || !bl_checked_add(cells, n, &cells) ||
        !bl_checked_add(cells, n, &cells) || !bl_checked_mul(cells, sizeof(int64_t), &bytes))
        return false;
    int64_t *start = bl_pool_take(cpu->pool, bytes);
    if (start == NULL)
        return false;
    int64_t *order = start + n_targets + 1, *keys = order + n;
    entry->keys(l, 0, n, keys, bad);
    order_by_key(keys, n, n_targets, start, order);
    int64_t work;
    if (!bl_checked_mul(n + n_targets, width, &work))
        work = INT64_MAX;
    int n_threads = bl_cpu_threads_for(cpu, work);
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
        int part = omp_get_thread_num(), parts = omp_get_num_threads();
        gather_targets(l, entry, start, order, part_begin(n_targets, part, parts),
                       part_begin(n_targets, part + 1, parts), width);
    }
    bl_pool_give(cpu->pool, start, bytes);
    return true;
}
