/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's loops over bodies.  Threads split elements, rows or target rows; no two write the same place and no sum is
 * split, so bits do not depend on their number. */
#include <omp.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "device/cpu/kernel.h"

/* ---- maps ------------------------------------------------------------------------------------------------------------ */

/* Walks elements [begin, end) of the output as runs along the innermost axis. */
static void walk_map(const bl_launch *l, bl_cpu_map body, int64_t begin, int64_t end)
{
    const int n_operands = l->n_operands;
    int64_t element_size[4], inner = l->rank > 0 ? l->size[l->rank - 1] : 1;
    bl_cpu_run run = {.params = &l->params};
    for (int k = 0; k < n_operands; k++) {
        element_size[k] = belay_dtype_size(l->operand[k].dtype);
        run.stride[k] = l->rank > 0 ? l->operand[k].stride[l->rank - 1] : 0;
    }
    for (int64_t at = begin; at < end; at += run.n) {
        int64_t offset[4] = {0}, rest = at;
        for (int axis = l->rank - 1; axis >= 0; axis--) {
            int64_t index = rest % l->size[axis];
            rest /= l->size[axis];
            for (int k = 0; k < n_operands; k++)
                offset[k] += index * l->operand[k].stride[axis];
        }
        run.first = at;
        run.n = bl_min_i64(inner - at % inner, end - at);
        for (int k = 0; k < n_operands; k++)
            run.data[k] = (char *)l->operand[k].data + offset[k] * element_size[k];
        body(&run);
    }
}

static BL_CPU_THREADED void map_on_threads(const bl_launch *l, bl_cpu_map body, int n_threads)
{
#pragma omp parallel num_threads(n_threads)
    {
        int part = omp_get_thread_num(), parts = omp_get_num_threads();
        walk_map(l, body, bl_cpu_part_begin(l->n_items, part, parts), bl_cpu_part_begin(l->n_items, part + 1, parts));
    }
}

void bl_cpu_run_map(bl_cpu *cpu, const bl_launch *l, bl_cpu_map body)
{
    int n_threads = bl_cpu_threads_for(cpu, l->n_items);
    if (n_threads == 1)
        walk_map(l, body, 0, l->n_items);
    else
        map_on_threads(l, body, n_threads);
}

/* ---- copies by index ------------------------------------------------------------------------------------------------- */

/* Rows that lie far apart are asked for before the first is copied: one at a time they would be waited for. */
static inline __attribute__((always_inline)) void copy_rows_of(char *to, const char *from, const int64_t *rows,
                                                               int64_t n, int64_t n_bytes)
{
    enum { SHORT = 8 }; /* bytes: the processor has enough of these under way by itself */
    for (int64_t i = 0; i < n && n_bytes > SHORT; i++)
        __builtin_prefetch(from + rows[i] * n_bytes);
    BL_UNROLL_4 for (int64_t i = 0; i < n; i++) memcpy(to + i * n_bytes, from + rows[i] * n_bytes, (size_t)n_bytes);
}

/* The common short rows are copied without a call. */
static void copy_rows(char *to, const char *from, const int64_t *rows, int64_t n, int64_t n_bytes)
{
    switch (n_bytes) {
    case 4:
        copy_rows_of(to, from, rows, n, 4);
        break;
    case 8:
        copy_rows_of(to, from, rows, n, 8);
        break;
    case 16:
        copy_rows_of(to, from, rows, n, 16);
        break;
    case 32:
        copy_rows_of(to, from, rows, n, 32);
        break;
    case 64:
        copy_rows_of(to, from, rows, n, 64);
        break;
    default:
        copy_rows_of(to, from, rows, n, n_bytes);
    }
}

static void copy_or_zero_rows(char *to, const char *from, const int64_t *rows, int64_t n, int64_t n_bytes)
{
    for (int64_t i = 0; i < n; i++)
        if (rows[i] < 0)
            memset(to + i * n_bytes, 0, (size_t)n_bytes);
        else
            memcpy(to + i * n_bytes, from + rows[i] * n_bytes, (size_t)n_bytes);
}

/* A block's indices are tested before its rows are copied, and are in `rows` from then on: nobody changes them in between. */
static void take_rows(const bl_launch *l, bl_cpu_rows body, int64_t begin, int64_t end, bl_bad *bad)
{
    enum { BLOCK = 128 };
    int64_t rows[BLOCK], n, run = l->size[2] > 1 ? l->size[2] : l->size[1];
    int64_t n_bytes = l->size[3] * belay_dtype_size(l->dtype);
    char *to = l->operand[l->n_operands - 1].data;
    for (int64_t e = begin; e < end; e += n) {
        int64_t at[3] = {e / l->size[2] / l->size[1], e / l->size[2] % l->size[1], e % l->size[2]};
        n = bl_min_i64(bl_min_i64(BLOCK, end - e), run - e % run);
        if (BL_LIKELY(body(l, at, n, rows, bad)))
            copy_rows(to + e * n_bytes, l->operand[0].data, rows, n, n_bytes);
        else
            copy_or_zero_rows(to + e * n_bytes, l->operand[0].data, rows, n, n_bytes);
    }
}

/* ---- items ----------------------------------------------------------------------------------------------------------- */

/* Rows and reductions by their own loop; of a TAKE [size[0], size[1], size[2]] items, each a row of size[3] elements. */
static void run_part(const bl_launch *l, const bl_cpu_entry *entry, int64_t begin, int64_t end, bl_bad *bad)
{
    if (entry->rows != NULL)
        take_rows(l, entry->rows, begin, end, bad);
    else
        entry->items(l, begin, end, bad);
}

static BL_CPU_THREADED void items_on_threads(const bl_launch *l, const bl_cpu_entry *entry, int n_threads, bl_bad *bad)
{
#pragma omp parallel num_threads(n_threads)
    {
        int part = omp_get_thread_num(), parts = omp_get_num_threads();
        bl_bad mine = {0};
        run_part(l, entry, bl_cpu_part_begin(l->n_items, part, parts), bl_cpu_part_begin(l->n_items, part + 1, parts),
                 &mine);
        if (mine.count > 0)
#pragma omp critical
            bl_cpu_merge_bad(bad, &mine);
    }
}

void bl_cpu_run_items(bl_cpu *cpu, const bl_launch *l, const bl_cpu_entry *entry, bl_bad *bad)
{
    int n_threads = (int)bl_min_i64(bl_cpu_threads_for(cpu, l->work), bl_max_i64(l->n_items, 1));
    if (n_threads == 1)
        run_part(l, entry, 0, l->n_items, bad);
    else
        items_on_threads(l, entry, n_threads, bad);
}

/* ---- sums by index --------------------------------------------------------------------------------------------------- */

/* Sources with a key, in the order of their numbers; how many. */
static int64_t keep_valid(int64_t *keys, int64_t *order, int64_t n)
{
    int64_t kept = 0;
    for (int64_t e = 0; e < n; e++) {
        keys[kept] = keys[e];
        order[kept] = e;
        kept += keys[e] >= 0;
    }
    return kept;
}

/* One stable pass by the byte of the key at `shift`. */
static void radix_pass(const int64_t *keys, const int64_t *order, int64_t *to_keys, int64_t *to_order, int64_t n,
                       int shift)
{
    int64_t start[257] = {0};
    for (int64_t e = 0; e < n; e++)
        start[(keys[e] >> shift & 0xFF) + 1]++;
    for (int b = 0; b < 256; b++)
        start[b + 1] += start[b];
    for (int64_t e = 0; e < n; e++) {
        int64_t at = start[keys[e] >> shift & 0xFF]++;
        to_keys[at] = keys[e];
        to_order[at] = order[e];
    }
}

/* Keys in rising order, equal ones in the order of their sources; the result is in *keys and *order. */
static void sort_by_key(int64_t **keys, int64_t **order, int64_t *spare_keys, int64_t *spare_order, int64_t n)
{
    uint64_t all = 0;
    for (int64_t e = 0; e < n; e++)
        all |= (uint64_t)(*keys)[e];
    for (int shift = 0; shift < 64 && all >> shift != 0; shift += 8) {
        int64_t *old_keys = *keys, *old_order = *order;
        radix_pass(old_keys, old_order, spare_keys, spare_order, n, shift);
        *keys = spare_keys;
        *order = spare_order;
        spare_keys = old_keys;
        spare_order = old_order;
    }
}

/* The groups of equal keys that begin in positions [begin, end): each is one target row's. */
static void gather_groups(const bl_launch *l, const bl_cpu_entry *entry, const int64_t *keys, const int64_t *order,
                          int64_t n, int64_t begin, int64_t end)
{
    int64_t at = begin;
    while (at > 0 && at < n && keys[at] == keys[at - 1])
        at++;
    while (at < end) {
        int64_t next = at + 1;
        while (next < n && keys[next] == keys[at])
            next++;
        entry->gather(l, keys[at], order + at, next - at, l->size[2]);
        at = next;
    }
}

static void zero_rows(const bl_launch *l, int64_t begin, int64_t end)
{
    const bl_operand *out = &l->operand[l->n_operands - 1];
    int64_t row_bytes = l->size[2] * belay_dtype_size(out->dtype);
    if (end > begin && row_bytes > 0)
        memset((char *)out->data + begin * row_bytes, 0, (size_t)((end - begin) * row_bytes));
}

static BL_CPU_THREADED void sums_on_threads(const bl_launch *l, const bl_cpu_entry *entry, const int64_t *keys,
                                            const int64_t *order, int64_t kept, int n_threads)
{
#pragma omp parallel num_threads(n_threads)
    {
        int part = omp_get_thread_num(), parts = omp_get_num_threads();
        if (l->params.i[7] == 0)
            zero_rows(l, bl_cpu_part_begin(l->size[1], part, parts), bl_cpu_part_begin(l->size[1], part + 1, parts));
#pragma omp barrier
        gather_groups(l, entry, keys, order, kept, bl_cpu_part_begin(kept, part, parts),
                      bl_cpu_part_begin(kept, part + 1, parts));
    }
}

/* size[0] source rows, size[1] target rows, size[2] elements a row.  params.i[7] nonzero: add to what is there. */
bool bl_cpu_run_sorted(bl_cpu *cpu, const bl_launch *l, const bl_cpu_entry *entry, bl_bad *bad)
{
    int64_t n = l->size[0], n_targets = l->size[1], width = l->size[2], bytes, work;
    if (!bl_checked_mul(n, 4 * (int64_t)sizeof(int64_t), &bytes))
        return false;
    int64_t *block = bl_pool_take(cpu->scratch, bytes);
    if (block == NULL)
        return false;
    int64_t *keys = block, *order = block + n;
    entry->keys(l, 0, n, keys, bad);
    int64_t kept = keep_valid(keys, order, n);
    sort_by_key(&keys, &order, block + 2 * n, block + 3 * n, kept);
    if (!bl_checked_mul(n + n_targets, width, &work))
        work = INT64_MAX;
    int n_threads = bl_cpu_threads_for(cpu, work);
    if (n_threads == 1) {
        if (l->params.i[7] == 0)
            zero_rows(l, 0, n_targets);
        gather_groups(l, entry, keys, order, kept, 0, kept);
    } else {
        sums_on_threads(l, entry, keys, order, kept, n_threads);
    }
    bl_pool_give(cpu->scratch, block, bytes);
    return true;
}
