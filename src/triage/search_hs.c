/* SPDX-License-Identifier: Apache-2.0 */
/* The search by libhs: Vectorscan, or Hyperscan.  The database comes from the build when the literals are the same and
 * the processor and the library are what it was made for; else it is compiled here, which takes some milliseconds. */
#include "triage/search.h"

#if BL_HAVE_HS
#include <hs.h>
#include <stdio.h>

#include "base/memory.h"
#include "triage/search_compile.h"

struct bl_search_hs {
    hs_database_t *database;
    hs_scratch_t *scratch;
    int n_literals;
    char words[96];
};

/* True when this database can be used here. */
static bool take_database(bl_search_hs *search, hs_database_t *database)
{
    search->database = database;
    if (hs_alloc_scratch(database, &search->scratch) == HS_SUCCESS)
        return true;
    hs_free_database(database);
    search->database = NULL;
    return false;
}

static bool take_built(bl_search_hs *search, const bl_literals *literals)
{
    const bl_search_database *built = &bl_search_built;
    hs_database_t *database = NULL;
    return built->n_bytes > 0 && built->key == bl_search_key(literals) &&
           hs_deserialize_database((const char *)built->bytes, (size_t)built->n_bytes, &database) == HS_SUCCESS &&
           take_database(search, database);
}

static bool take_compiled(bl_search_hs *search, const bl_literals *literals)
{
    hs_database_t *database = bl_search_compile(literals, NULL);
    return database != NULL && take_database(search, database);
}

bl_search_hs *bl_search_hs_new(const bl_literals *literals)
{
    bl_search_hs *search = hs_valid_platform() == HS_SUCCESS ? bl_alloc(1, sizeof *search) : NULL;
    if (search == NULL)
        return NULL;
    search->n_literals = literals->n;
    bool is_built = take_built(search, literals);
    if (!is_built && !take_compiled(search, literals)) {
        bl_search_hs_free(search);
        return NULL;
    }
    int n_version = 0;
    const char *version = hs_version();
    while (version[n_version] != '\0' && version[n_version] != ' ')
        n_version++;
    snprintf(search->words, sizeof search->words, "libhs %.*s, its database %s", n_version, version,
             is_built ? "from the build" : "made at start");
    return search;
}

void bl_search_hs_free(bl_search_hs *search)
{
    if (search == NULL)
        return;
    hs_free_scratch(search->scratch);
    hs_free_database(search->database);
    bl_free(search);
}

const char *bl_search_hs_describe(const bl_search_hs *search) { return search->words; }

typedef struct receiver {
    unsigned n_literals;
    bl_search_hit hit;
    void *state;
} receiver;

static int receive(unsigned id, unsigned long long from, unsigned long long to, unsigned flags, void *context)
{
    (void)from;
    (void)flags;
    receiver *r = context;
    if (id < r->n_literals)
        r->hit(r->state, (int)id, (int64_t)to);
    return 0;
}

void bl_search_hs_run(bl_search_hs *search, const char *bytes, int64_t n_bytes, bl_search_hit hit, void *state)
{
    receiver r = {(unsigned)search->n_literals, hit, state};
    /* It fails for wrong arguments only. */
    (void)hs_scan(search->database, bytes, (unsigned)n_bytes, 0, search->scratch, receive, &r);
}

#else

bl_search_hs *bl_search_hs_new(const bl_literals *literals)
{
    (void)literals;
    return NULL;
}

void bl_search_hs_free(bl_search_hs *search) { (void)search; }

const char *bl_search_hs_describe(const bl_search_hs *search)
{
    (void)search;
    return "";
}

void bl_search_hs_run(bl_search_hs *search, const char *bytes, int64_t n_bytes, bl_search_hit hit, void *state)
{
    (void)search, (void)bytes, (void)n_bytes, (void)hit, (void)state;
}

#endif
