/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a log, packed or not: what is read does not depend on the size of the pieces, and ends. */
#include "fuzz_support.h"

#include "file/input.h"

enum { most_bytes = 1 << 20 };

static int64_t read_up_to(bl_input *input, char *into, int64_t n_bytes, int64_t step)
{
    int64_t n = 0, piece = 1;
    while (n < n_bytes && piece > 0) {
        piece = bl_input_read(input, into + n, step < n_bytes - n ? step : n_bytes - n);
        fuzz_require(piece >= 0 && piece <= step, "a piece is no longer than asked");
        n += piece;
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char whole[most_bytes], pieces[1 << 14];
    bl_error error = {.code = BELAY_OK};
    bl_input *input;
    const char *path = fuzz_path(data, size);
    belay_code code = bl_input_open(path, &input, &error);
    fuzz_require(code == error.code && (code == BELAY_OK) == (input != NULL), "code, error and input agree");
    if (code != BELAY_OK)
        return 0;
    int64_t n_whole = read_up_to(input, whole, most_bytes, most_bytes);
    fuzz_require(bl_input_n_taken(input) <= (int64_t)size, "no more is taken than there is");
    bool has_ended = bl_input_read(input, pieces, 1) == 0;
    bool is_whole = has_ended && bl_input_damage(input) == NULL;
    if (is_whole && bl_input_form_get(input) == BL_INPUT_PLAIN)
        fuzz_require(n_whole + 3 >= (int64_t)size, "a plain file comes whole");
    bl_input_close(input);
    fuzz_require(bl_input_open(path, &input, &error) == BELAY_OK, "what could be opened once can be again");
    int64_t n = read_up_to(input, pieces, sizeof pieces, 1 + (int64_t)(size % 97));
    fuzz_require(n == (n_whole < (int64_t)sizeof pieces ? n_whole : (int64_t)sizeof pieces) &&
                     memcmp(pieces, whole, (size_t)n) == 0,
                 "the same bytes come in pieces of any size");
    bl_input_close(input);
    return 0;
}
