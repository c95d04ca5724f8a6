/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a data file: refused, or samples that are the same whether their ids were kept or read again.  The first
 * byte picks the kind of file and whether a part is split off. */
#include "fuzz_support.h"

#include "base/memory.h"
#include "data/store.h"

enum { seq = 8 };

typedef struct setting {
    bl_data_rows rows;
    bl_data_store store;
    bl_data_vocabulary vocabulary;
    bl_data_strings labels;
} setting;

static belay_code fill(setting *s, const char *path, double valid_split, int64_t keep_bytes)
{
    bl_error error;
    bl_data_plan plan = {.min_count = 1,
                         .max_tokens = 300,
                         .seq = seq,
                         .keep_bytes = keep_bytes,
                         .valid_split = valid_split,
                         .vocabulary = &s->vocabulary,
                         .labels = &s->labels,
                         .make_vocabulary = true,
                         .make_labels = true};
    TRY(bl_data_rows_open(&s->rows, path, NULL, NULL, &error));
    return bl_data_store_fill(&s->store, &s->rows, &plan, &error);
}

static void free_setting(setting *s)
{
    bl_data_rows_close(&s->rows);
    bl_data_store_fini(&s->store);
    bl_data_vocabulary_fini(&s->vocabulary);
    bl_data_strings_fini(&s->labels);
}

static void compare(const setting *kept, const setting *dropped)
{
    bl_data_cursor a, b;
    bl_error error;
    int64_t ids[2][seq], n_ids[2];
    fuzz_require(kept->store.n_rows == dropped->store.n_rows, "both have the same rows");
    fuzz_require(bl_data_cursor_init(&a, &kept->store, &error) == BELAY_OK, "kept ids can be got");
    fuzz_require(bl_data_cursor_init(&b, &dropped->store, &error) == BELAY_OK, "the file opens again");
    for (int64_t row = kept->store.n_rows - 1; row >= 0; row--) {
        fuzz_require(bl_data_store_get(&kept->store, &a, row, ids[0], &n_ids[0], &error) == BELAY_OK, "a row is kept");
        fuzz_require(bl_data_store_get(&dropped->store, &b, row, ids[1], &n_ids[1], &error) == BELAY_OK,
                     "a row is found");
        fuzz_require(n_ids[0] == n_ids[1] && n_ids[0] <= seq, "rows are as long");
        fuzz_require(memcmp(ids[0], ids[1], (size_t)n_ids[0] * sizeof ids[0][0]) == 0, "rows are the same");
        fuzz_require(kept->store.classes[row] >= 0 && kept->store.classes[row] < kept->labels.n, "classes are known");
    }
    bl_data_cursor_fini(&a);
    bl_data_cursor_fini(&b);
}

static char path[64];

static void remove_file(void) { unlink(path); }

static void put_file(const char *extension, const uint8_t *data, size_t size)
{
    static bool is_registered;
    if (path[0] != '\0')
        unlink(path);
    snprintf(path, sizeof path, "/tmp/belay-fuzz-%ld%s", (long)getpid(), extension);
    FILE *file = fopen(path, "wb");
    fuzz_require(file != NULL && (size == 0 || fwrite(data, 1, size, file) == size) && fclose(file) == 0,
                 "the input can be written to a file");
    if (!is_registered)
        is_registered = atexit(remove_file) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const extensions[] = {".tsv", ".csv", ".jsonl"};
    if (size == 0)
        return 0;
    setting kept = {0}, dropped = {0};
    double valid_split = data[0] & 0x80 ? 0.3 : 0.0;
    put_file(extensions[(data[0] & 0x7F) % 3], data + 1, size - 1);
    belay_code code = fill(&kept, path, valid_split, BL_DATA_KEEP_BYTES);
    fuzz_require(fill(&dropped, path, valid_split, 1) == code, "both ways end alike");
    if (code == BELAY_OK)
        compare(&kept, &dropped);
    free_setting(&kept);
    free_setting(&dropped);
    return 0;
}
