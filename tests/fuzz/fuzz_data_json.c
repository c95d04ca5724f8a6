/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer's and labels' JSON, as a checkpoint brings them: what is taken comes back from its own JSON the same. */
#include "fuzz_support.h"

#include "base/memory.h"
#include "data/words.h"

static void run_vocabulary(const char *json, int64_t n_bytes)
{
    bl_data_vocabulary v = {0}, back = {0};
    char *text, *again;
    bl_error error;
    if (bl_data_vocabulary_from_json(&v, json, n_bytes, &error) == BELAY_OK) {
        fuzz_require(bl_data_vocabulary_to_json(&v, &text, &error) == BELAY_OK, "it can be written");
        fuzz_require(bl_data_vocabulary_from_json(&back, text, (int64_t)strlen(text), &error) == BELAY_OK,
                     "it can be read back");
        fuzz_require(bl_data_vocabulary_to_json(&back, &again, &error) == BELAY_OK, "it can be written again");
        fuzz_require(strcmp(text, again) == 0, "both texts are the same");
        bl_free(text);
        bl_free(again);
    }
    bl_data_vocabulary_fini(&v);
    bl_data_vocabulary_fini(&back);
}

static void run_labels(const char *json, int64_t n_bytes)
{
    bl_data_strings labels = {0}, back = {0};
    char *text;
    bl_error error;
    if (bl_data_labels_from_json(&labels, json, n_bytes, &error) == BELAY_OK) {
        fuzz_require(bl_data_labels_to_json(&labels, &text, &error) == BELAY_OK, "they can be written");
        fuzz_require(bl_data_labels_from_json(&back, text, (int64_t)strlen(text), &error) == BELAY_OK,
                     "they can be read back");
        fuzz_require(back.n == labels.n, "no label is lost");
        bl_free(text);
    }
    bl_data_strings_fini(&labels);
    bl_data_strings_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    run_vocabulary((const char *)data, (int64_t)size);
    run_labels((const char *)data, (int64_t)size);
    return 0;
}
