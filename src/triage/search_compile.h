/* SPDX-License-Identifier: Apache-2.0 */
/* Literals -> a database of libhs: for search_hs.c at start, and for tools/anchors/ at build time. */
#ifndef BL_TRIAGE_SEARCH_COMPILE_H
#define BL_TRIAGE_SEARCH_COMPILE_H

#include <hs.h>

#include "base/memory.h"
#include "triage/search.h"

/* For the processor at hand where `platform` is NULL.  NULL when it cannot be made. */
static inline hs_database_t *bl_search_compile(const bl_literals *literals, const hs_platform_info_t *platform)
{
    hs_database_t *database = NULL;
    hs_compile_error_t *error = NULL;
    unsigned *ids = bl_alloc(literals->n, sizeof *ids), *flags = bl_alloc(literals->n, sizeof *flags);
    size_t *sizes = bl_alloc(literals->n, sizeof *sizes);
    if (ids != NULL && flags != NULL && sizes != NULL) {
        for (int i = 0; i < literals->n; i++) {
            ids[i] = (unsigned)i;
            sizes[i] = (size_t)literals->n_bytes[i];
        }
        if (hs_compile_lit_multi(literals->list, flags, ids, sizes, (unsigned)literals->n, HS_MODE_BLOCK, platform,
                                 &database, &error) != HS_SUCCESS)
            hs_free_compile_error(error);
    }
    bl_free(ids);
    bl_free(flags);
    bl_free(sizes);
    return database;
}

#endif
