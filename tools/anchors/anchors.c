/* SPDX-License-Identifier: Apache-2.0 */
/* `belay_anchors FILE` writes, as C, the database of libhs in which the fast pass looks for the anchors of all signals.
 * It is made for processors that can do what this program was compiled to need, and for no more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "triage/anchors.h"
#include "triage/search_compile.h"

enum { most_anchors = 4096, bytes_a_line = 24 };

static int fail(const char *text)
{
    fprintf(stderr, "belay_anchors: %s\n", text);
    return 1;
}

static void write_database(FILE *file, const unsigned char *bytes, size_t n_bytes, uint64_t key)
{
    fputs("#include \"triage/search.h\"\n\nstatic const unsigned char bytes[] = {", file);
    for (size_t i = 0; i < n_bytes; i++)
        fprintf(file, "%s%u,", i % bytes_a_line == 0 ? "\n" : "", bytes[i]);
    fprintf(file, "\n};\n\nconst bl_search_database bl_search_built = {bytes, sizeof bytes, UINT64_C(0x%016llx)};\n",
            (unsigned long long)key);
}

static int write_file(const char *path, const bl_literals *literals)
{
    hs_platform_info_t platform = {.tune = HS_TUNE_FAMILY_GENERIC};
#ifdef __AVX2__
    platform.cpu_features = HS_CPU_FEATURES_AVX2;
#endif
    char *bytes = NULL;
    size_t n_bytes = 0;
    hs_database_t *database = bl_search_compile(literals, &platform);
    if (database == NULL || hs_serialize_database(database, &bytes, &n_bytes) != HS_SUCCESS)
        return fail("the database could not be made");
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return fail("the file could not be opened");
    write_database(file, (const unsigned char *)bytes, n_bytes, bl_search_key(literals));
    hs_free_database(database);
    free(bytes);
    return fclose(file) == 0 ? 0 : fail("the file could not be written");
}

int main(int argc, char **argv)
{
    static int64_t n_bytes[most_anchors];
    bl_anchors anchors;
    if (argc != 2)
        return fail("usage: belay_anchors FILE");
    if (!bl_anchors_init(&anchors, false) || anchors.n > most_anchors)
        return fail("too many anchors, or no memory");
    for (int i = 0; i < anchors.n; i++)
        n_bytes[i] = (int64_t)strlen(anchors.list[i]);
    bl_literals literals = {.list = anchors.list, .n_bytes = n_bytes, .n = anchors.n};
    int status = write_file(argv[1], &literals);
    bl_anchors_fini(&anchors);
    return status;
}
