/* SPDX-License-Identifier: Apache-2.0 */
#include "triage/scan_cut.h"

#include <string.h>

#include "base/checked.h"

void bl_cut_begin(bl_cut *cut)
{
    cut->n_whole = cut->n_head = cut->n_tail = 0;
    cut->n_windows = 0;
}

void bl_cut_hit(bl_cut *cut, const char *piece, int64_t n_bytes, int64_t from, int64_t end)
{
    const struct bl_cut_span *last = cut->n_windows > 0 ? &cut->windows[cut->n_windows - 1] : NULL;
    bool is_held = from + end <= bl_cut_end || (last != NULL && from + end <= last->from + last->n);
    if (is_held || cut->n_windows == bl_cut_windows)
        return;
    int64_t begin = bl_max_i64(0, end - bl_cut_window * 3 / 4);
    int64_t n = bl_min_i64(n_bytes, begin + bl_cut_window) - begin;
    memcpy(cut->window[cut->n_windows], piece + begin, (size_t)n);
    cut->windows[cut->n_windows++] = (struct bl_cut_span){from + begin, n};
}

void bl_cut_add(bl_cut *cut, const char *bytes, int64_t n_bytes)
{
    int64_t n_head = bl_min_i64(bl_cut_end - cut->n_head, n_bytes);
    memcpy(cut->head + cut->n_head, bytes, (size_t)n_head);
    cut->n_head += n_head;
    cut->n_whole += n_bytes;
    int64_t n_new = bl_min_i64(n_bytes, bl_cut_end), n_kept = bl_min_i64(cut->n_tail, bl_cut_end - n_new);
    memmove(cut->tail, cut->tail + cut->n_tail - n_kept, (size_t)n_kept);
    memcpy(cut->tail + n_kept, bytes + n_bytes - n_new, (size_t)n_new);
    cut->n_tail = n_kept + n_new;
}

static void join(bl_cut *cut, int64_t *n, const char *bytes, int64_t n_bytes)
{
    if (*n > 0)
        cut->joined[(*n)++] = '\r';
    memcpy(cut->joined + *n, bytes, (size_t)n_bytes);
    *n += n_bytes;
}

const char *bl_cut_join(bl_cut *cut, int64_t *n_bytes)
{
    int64_t n = 0, tail_from = bl_max_i64(cut->n_head, cut->n_whole - cut->n_tail);
    join(cut, &n, cut->head, cut->n_head);
    for (int i = 0; i < cut->n_windows; i++)
        if (cut->windows[i].from < tail_from)
            join(cut, &n, cut->window[i], cut->windows[i].n);
    int64_t n_tail = cut->n_whole - tail_from;
    join(cut, &n, cut->tail + cut->n_tail - n_tail, n_tail);
    *n_bytes = n;
    return cut->joined;
}
