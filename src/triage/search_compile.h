/* SPDX-License-Identifier: Apache-2.0 */
/* Literals -> a database of libhs: for search_hs.c at start, and for tools/anchors/ at build time. */
#ifndef BL_TRIAGE_SEARCH_COMPILE_H
#define BL_TRIAGE_SEARCH_COMPILE_H

#include <hs.h>

#include "base/memory.h"
#include "triage/search.h"

/* libhs looks at every k-th pair of bytes only, where k follows from the shortest literal.  With some hundred literals
 * that is so often in vain that looking at each pair is two or three times as fast; so two bytes that no text holds are
 * added, with the number of literals as their own. */
#define BL_SEARCH_SHORTEST "\xfe\xff"

/* For the processor at hand where `platform` is NULL.  NULL when it cannot be made. */
static inline hs_database_t *bl_search_compile(const bl_literals *literals, const hs_platform_info_t *platform)
{
    hs_database_t *database = NULL;
    hs_compile_error_t *error = NULL;
    int n = literals->n + 1;
    unsigned *ids = bl_alloc(n, sizeof *ids), *flags = bl_alloc(n, sizeof *flags);
    size_t *sizes = bl_alloc(n, sizeof *sizes);
    const char **list = bl_alloc(n, sizeof *list);
    if (ids != NULL && flags != NULL && sizes != NULL && list != NULL) {
        for (int i = 0; i < n; i++) {
            bool is_ours = i == literals->n;
            ids[i] = (unsigned)i;
            list[i] = is_ours ? BL_SEARCH_SHORTEST : literals->list[i];
            sizes[i] = is_ours ? sizeof BL_SEARCH_SHORTEST - 1 : (size_t)literals->n_bytes[i];
        }
        if (hs_compile_lit_multi(list, flags, ids, sizes, (unsigned)n, HS_MODE_BLOCK, platform, &database, &error) !=
            HS_SUCCESS)
            hs_free_compile_error(error);
    }
    bl_free(ids);
    bl_free(flags);
    bl_free(sizes);
    bl_free(list);
    return database;
}

#endif
