/* SPDX-License-Identifier: Apache-2.0 */
/* A config that is read can be written and then reads as the same value. */
#include "fuzz_support.h"

#include "file/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bl_error error = {.code = BELAY_OK};
    json_t *value, *again;
    belay_code code = bl_json_read(fuzz_path(data, size), 4096, &value, &error);
    fuzz_require(code == error.code && (code == BELAY_OK) == (value != NULL), "code, error and value agree");
    if (code != BELAY_OK)
        return 0;
    char *text = json_dumps(value, JSON_COMPACT);
    fuzz_require(text != NULL, "a value can be written");
    fuzz_require(bl_json_parse(text, (int64_t)strlen(text), "again", 1, &again, &error) == BELAY_OK,
                 "what is written can be read");
    fuzz_require(json_equal(value, again), "it is the same value");
    json_decref(value);
    json_decref(again);
    json_free_t release;
    json_get_alloc_funcs(NULL, &release);
    release(text);
    return 0;
}
