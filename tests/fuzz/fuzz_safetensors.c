/* SPDX-License-Identifier: Apache-2.0 */
/* A file that opens has entries that lie inside of it, cover it, and can be read and found by name. */
#include "fuzz_support.h"

#include "file/safetensors.h"

static void check_entry(bl_safetensors *file, int64_t index, int64_t *total)
{
    const void *bytes;
    int64_t n_bytes;
    bl_error error;
    const bl_safetensors_entry *entry = bl_safetensors_entry_at(file, index);
    fuzz_require(bl_safetensors_find(file, entry->name) == entry, "a name finds its entry");
    fuzz_require(bl_safetensors_bytes(file, entry, &bytes, &n_bytes, &error) == BELAY_OK, "an entry's bytes are there");
    fuzz_require(n_bytes == entry->n_elements * bl_safetensors_dtype_size(entry->dtype), "bytes are elements by size");
    unsigned sum = 0;
    for (int64_t i = 0; i < n_bytes; i++)
        sum += ((const unsigned char *)bytes)[i];
    fuzz_require(sum <= 255u * (uint64_t)n_bytes, "bytes can be read");
    *total += n_bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bl_error error = {.code = BELAY_OK};
    bl_safetensors *file;
    belay_code code = bl_safetensors_open(fuzz_path(data, size), &file, &error);
    fuzz_require(code == error.code && (code == BELAY_OK) == (file != NULL), "code, error and file agree");
    if (code != BELAY_OK)
        return 0;
    int64_t total = 0;
    for (int64_t i = 0; i < bl_safetensors_n_entries(file); i++)
        check_entry(file, i, &total);
    fuzz_require(total + 8 <= (int64_t)size, "entries lie inside the file");
    for (int64_t i = 0; i < bl_safetensors_n_metadata(file); i++)
        fuzz_require(bl_safetensors_metadata(file, bl_safetensors_metadata_key(file, i)) ==
                         bl_safetensors_metadata_value(file, i),
                     "a key finds its value");
    bl_safetensors_close(file);
    return 0;
}
