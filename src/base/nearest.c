/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"

#include <string.h>

enum { LONGEST = 48 };

static int least(int a, int b) { return a < b ? a : b; }

/* Edits that turn a into b, a swap of neighbours counted once (optimal string alignment). */
static int distance(const char *a, int n_a, const char *b, int n_b)
{
    int before[LONGEST + 1] = {0}, above[LONGEST + 1], row[LONGEST + 1];
    for (int j = 0; j <= n_b; j++)
        above[j] = j;
    for (int i = 1; i <= n_a; i++) {
        row[0] = i;
        for (int j = 1; j <= n_b; j++) {
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        memcpy(before, above, sizeof before);
        memcpy(above, row, sizeof above);
    }
    return above[n_b];
}

void bl_nearest_offer(bl_nearest *best, const char *typed, const char *known)
{
    size_t n_typed = strlen(typed), n_known = strlen(known);
    if (n_typed == 0 || n_typed > LONGEST || n_known > LONGEST)
        return;
    int longer = (int)(n_typed > n_known ? n_typed : n_known);
    int edits = distance(typed, (int)n_typed, known, (int)n_known);
    if (n_typed > 1 && strncmp(typed, known, n_typed) == 0)
        edits = 1;
    if (edits * 3 <= longer && (best->name == NULL || edits < best->distance))
        *best = (bl_nearest){known, edits};
}
