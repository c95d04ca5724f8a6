/* SPDX-License-Identifier: Apache-2.0 */
/* A token file that opens has the length that its header says, and every token of it can be read. */
#include "fuzz_support.h"

#include "file/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bl_error error = {.code = BELAY_OK};
    bl_tokens *file;
    belay_code code = bl_tokens_open(fuzz_path(data, size), &file, &error);
    fuzz_require(code == error.code && (code == BELAY_OK) == (file != NULL), "code, error and file agree");
    if (code != BELAY_OK)
        return 0;
    int64_t n = bl_tokens_count(file);
    fuzz_require(n >= 1 && (size_t)n * 2 + BL_TOKENS_HEADER == size, "the tokens fill the file");
    uint16_t token = 0, last;
    fuzz_require(bl_tokens_read(file, 0, 1, &token, &error) == BELAY_OK, "the first token can be read");
    fuzz_require(bl_tokens_read(file, n - 1, 1, &last, &error) == BELAY_OK, "the last token can be read");
    fuzz_require(memcmp(&token, data + BL_TOKENS_HEADER, 2) == 0 && memcmp(&last, data + size - 2, 2) == 0,
                 "tokens are the file's");
    fuzz_require(bl_tokens_read(file, n, 1, &token, &error) != BELAY_OK, "there is none behind the last");
    bl_tokens_close(file);
    return 0;
}
