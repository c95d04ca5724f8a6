/* SPDX-License-Identifier: Apache-2.0 */
/* Token files as objects of a context: rows of tokens as tensors. */
#include <inttypes.h>

#include "base/checked.h"
#include "base/memory.h"
#include "data/object.h"
#include "file/tokens.h"

#include <belay/data.h>

struct belay_token_file {
    bl_data_object object;
    bl_tokens *tokens;
};

static belay_token_file nil_file; /* never written */

static void fini_file(void *object) { bl_tokens_close(((belay_token_file *)object)->tokens); }

static const bl_data_class file_class = {"a token file", "closed", sizeof(belay_token_file), fini_file};

belay_token_file *belay_token_file_open(belay_context *ctx, const char *path)
{
    bl_error error = {0};
    bl_tokens *tokens = NULL;
    BL_ENTER(ctx);
    if (!bl_data_has_context(ctx))
        return &nil_file;
    if (path == NULL) {
        bl_context_raise(ctx, BELAY_CONF_MISSING, "a token file needs its path");
        return &nil_file;
    }
    belay_token_file *file = NULL;
    if (bl_tokens_open(path, &tokens, &error) == BELAY_OK)
        file = bl_data_object_new(ctx, &file_class, &error);
    if (file != NULL) {
        file->tokens = tokens;
        return file;
    }
    bl_tokens_close(tokens);
    bl_data_raise(ctx, &error);
    return &nil_file;
}

bool belay_token_file_is_nil(const belay_token_file *file) { return !BL_ASK(bl_data_context(file)); }

int64_t belay_token_file_n_tokens(const belay_token_file *file)
{
    return BL_ASK(BL_DATA_USE(file)) ? bl_tokens_count(file->tokens) : 0;
}

/* All rows lie in the file; conf.value names the first that does not. */
static bool rows_are_legal(const belay_token_file *file, const int64_t *starts, int64_t n, int64_t length)
{
    belay_context *ctx = bl_data_context(file);
    int64_t n_tokens = bl_tokens_count(file->tokens);
    if (n < 0 || length < 0 || (starts == NULL && n > 0)) {
        bl_context_raise(ctx, BELAY_CONF_VALUE,
                         "rows of '%s' were asked for by %" PRId64 " starts%s and a length of %" PRId64,
                         bl_tokens_path(file->tokens), n, starts == NULL ? " at NULL" : "", length);
        return false;
    }
    for (int64_t i = 0; i < n; i++)
        if (starts[i] < 0 || length > n_tokens || starts[i] > n_tokens - length) {
            bl_context_raise(ctx, BELAY_CONF_VALUE,
                             "row %" PRId64 " of %" PRId64 " tokens starts at token %" PRId64 "; '%s' has %" PRId64, i,
                             length, starts[i], bl_tokens_path(file->tokens), n_tokens);
            return false;
        }
    return true;
}

static belay_code read_rows(const belay_token_file *file, const int64_t *starts, int64_t n, int64_t length,
                            uint16_t *into, bl_error *error)
{
    for (int64_t i = 0; i < n; i++)
        TRY(bl_tokens_read(file->tokens, starts[i], length, into + i * length, error));
    return BELAY_OK;
}

belay_tensor belay_token_file_rows(belay_token_file *file, const int64_t *starts, int64_t n, int64_t length)
{
    belay_context *ctx = BL_DATA_USE(file);
    belay_tensor rows = {0};
    int64_t n_elements;
    bl_error error = {0};
    BL_ENTER(ctx);
    if (ctx == NULL || !rows_are_legal(file, starts, n, length))
        return rows;
    uint16_t *bytes = bl_checked_mul(n, length, &n_elements) ? bl_alloc(n_elements, sizeof *bytes) : NULL;
    if (bytes == NULL) {
        bl_context_raise(ctx, BELAY_MEM_EXHAUSTED, "no memory for %" PRId64 " rows of %" PRId64 " tokens", n, length);
        return rows;
    }
    if (read_rows(file, starts, n, length, bytes, &error) == BELAY_OK)
        rows = belay_tensor_from(ctx, BELAY_U16, belay_shape2(n, length), bytes, n_elements * 2);
    else
        bl_data_raise(ctx, &error);
    bl_free(bytes);
    return rows;
}

void belay_token_file_close(belay_token_file *file)
{
    if (BL_ASK(BL_DATA_USE(file)))
        bl_data_object_close(file);
}
