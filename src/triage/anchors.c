/* SPDX-License-Identifier: Apache-2.0 */
#include "triage/anchors.h"

#include <string.h>

#include "base/memory.h"
#include "triage/signal.h"

static const char *anchors_of(int row, bool of_weak_rows)
{
    const char *all = bl_signals[row].anchors;
    bool is_weak = all[0] == '~';
    return is_weak != of_weak_rows ? "" : is_weak ? all + 1 : all;
}

/* A row holds its anchors one a line; false behind the last. */
static bool next_anchor(const char **rest, const char **bytes, size_t *n_bytes)
{
    *rest += strspn(*rest, "\n");
    *bytes = *rest;
    *n_bytes = strcspn(*rest, "\n");
    *rest += *n_bytes;
    return *n_bytes > 0;
}

/* Its number; anchors->n when it is new. */
static int find(const bl_anchors *anchors, const char *bytes, size_t n_bytes)
{
    int i = 0;
    while (i < anchors->n && (strncmp(anchors->list[i], bytes, n_bytes) != 0 || anchors->list[i][n_bytes] != '\0'))
        i++;
    return i;
}

/* How many anchors the rows have, repeated ones too, and the bytes that they take. */
static void measure(bool of_weak_rows, int64_t *n, int64_t *n_bytes)
{
    *n = *n_bytes = 0;
    for (int row = 0; row < BL_N_SIGNALS; row++) {
        const char *rest = anchors_of(row, of_weak_rows), *bytes;
        for (size_t length; next_anchor(&rest, &bytes, &length); *n_bytes += (int64_t)length + 1)
            (*n)++;
    }
}

static void list_all(bl_anchors *anchors, bool of_weak_rows)
{
    char *to = anchors->bytes;
    for (int row = 0; row < BL_N_SIGNALS; row++) {
        const char *rest = anchors_of(row, of_weak_rows), *bytes;
        for (size_t n; next_anchor(&rest, &bytes, &n);) {
            int number = find(anchors, bytes, n);
            if (number == anchors->n) {
                memcpy(to, bytes, n);
                anchors->list[anchors->n++] = to;
                to += n + 1;
            }
            anchors->first[number + 1]++;
        }
    }
}

/* The counts in `first` become the places behind each anchor's last signal, then signals fill them from behind. */
static void list_signals(bl_anchors *anchors, bool of_weak_rows)
{
    for (int i = 0; i < anchors->n; i++)
        anchors->first[i + 1] += anchors->first[i];
    for (int row = BL_N_SIGNALS - 1; row >= 0; row--) {
        const char *rest = anchors_of(row, of_weak_rows), *bytes;
        for (size_t n; next_anchor(&rest, &bytes, &n);)
            anchors->signals[--anchors->first[find(anchors, bytes, n) + 1]] = row;
    }
    memmove(anchors->first, anchors->first + 1, (size_t)anchors->n * sizeof *anchors->first);
}

bool bl_anchors_init(bl_anchors *anchors, bool of_weak_rows)
{
    int64_t n, n_bytes;
    measure(of_weak_rows, &n, &n_bytes);
    *anchors = (bl_anchors){.list = bl_alloc(n, sizeof *anchors->list),
                            .first = bl_alloc(n + 1, sizeof *anchors->first),
                            .signals = bl_alloc(n, sizeof *anchors->signals),
                            .bytes = bl_alloc(n_bytes, 1)};
    if (anchors->list == NULL || anchors->first == NULL || anchors->signals == NULL || anchors->bytes == NULL)
        return false;
    list_all(anchors, of_weak_rows);
    list_signals(anchors, of_weak_rows);
    anchors->first[anchors->n] = (int)n;
    return true;
}

void bl_anchors_fini(bl_anchors *anchors)
{
    bl_free(anchors->list);
    bl_free(anchors->first);
    bl_free(anchors->signals);
    bl_free(anchors->bytes);
    *anchors = (bl_anchors){0};
}
