/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2 from a file of Hugging Face's.  Those name tensors with or without "transformer." in front, may hold the causal
 * masks of their attentions, and may hold the head a second time; the file is compared whole before a weight changes. */
#include <inttypes.h>
#include <string.h>

#include "file/path.h"
#include "nn/module.h"
#include "train/checkpoint.h"
#include "train/watch.h"

static const char prefix[] = "transformer.", table[] = "transformer.wte.weight", head[] = "lm_head.weight";
enum { PREFIX = sizeof prefix - 1 };

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Names as a file without the prefix has them. */
static void drop_prefix(bl_checkpoint *list)
{
    for (int64_t i = 0; i < list->n; i++)
        if (strncmp(list->item[i].name, prefix, PREFIX) == 0)
            memmove(list->item[i].name, list->item[i].name + PREFIX, strlen(list->item[i].name + PREFIX) + 1);
}

static bool is_listed(const bl_checkpoint *list, const char *name)
{
    for (int64_t i = 0; i < list->n; i++)
        if (strcmp(list->item[i].name, name) == 0)
            return true;
    return false;
}

/* Masks are constants: row i sees the columns up to i, and what stands for minus infinity. */
static bool is_mask(const char *name) { return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias"); }

static belay_code compare_names(const bl_checkpoint *list, const bl_safetensors *file, bl_error *error)
{
    for (int64_t i = 0; i < bl_safetensors_n_entries(file); i++) {
        const char *name = bl_safetensors_entry_at(file, i)->name;
        char quoted[BL_FILE_QUOTE];
        if (!is_listed(list, name) && !is_mask(name) && strcmp(name, head) != 0)
            return bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' holds '%s', which the model does not have",
                                bl_safetensors_path(file), bl_file_quote(name, (int64_t)strlen(name), quoted));
    }
    return BELAY_OK;
}

/* The head is the token table: one that the file holds as well must be the same. */
static belay_code compare_head(bl_safetensors *file, const char *table_name, bl_error *error)
{
    const bl_safetensors_entry *a = bl_safetensors_find(file, head), *b = bl_safetensors_find(file, table_name);
    const void *bytes[2];
    int64_t n[2];
    if (a == NULL || b == NULL)
        return BELAY_OK;
    TRY(bl_safetensors_bytes(file, a, &bytes[0], &n[0], error));
    TRY(bl_safetensors_bytes(file, b, &bytes[1], &n[1], error));
    if (a->dtype == b->dtype && n[0] == n[1] && memcmp(bytes[0], bytes[1], (size_t)n[0]) == 0)
        return BELAY_OK;
    return bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' holds a head of its own, '%s'; the model's is its '%s'",
                        bl_safetensors_path(file), head, table_name);
}

static belay_code read_file(bl_checkpoint *list, bl_safetensors *file, bl_error *error)
{
    const char *table_name = bl_safetensors_find(file, table) == NULL ? table + PREFIX : table;
    if (table_name != table && bl_safetensors_find(file, table_name) != NULL)
        drop_prefix(list);
    TRY(compare_names(list, file, error));
    TRY(compare_head(file, table_name, error));
    return bl_checkpoint_read(list, false, file, error);
}

static belay_code load(belay_module *model, const char *path, bl_error *error)
{
    bl_checkpoint list = {0};
    bl_safetensors *file = NULL;
    TRY(bl_safetensors_open(path, &file, error));
    belay_code code = bl_checkpoint_add_model(&list, model, error);
    if (code == BELAY_OK)
        code = read_file(&list, file, error);
    bl_checkpoint_fini(&list);
    bl_safetensors_close(file);
    return code;
}

belay_code belay_gpt2_load(belay_module *model, const char *path)
{
    BL_ENTER(bl_module_context(model));
    belay_context *context = bl_module_use(model);
    if (context == NULL)
        return bl_caller_code(BELAY_CONF_ORDER);
    bl_error error = {0};
    if (path == NULL)
        return bl_context_raise(context, BELAY_CONF_MISSING, "gpt2 needs the path of the file to load");
    if (belay_tensor_is_nil(belay_module_find(model, table)))
        return bl_context_raise(context, BELAY_CONF_VALUE, "module %s is no gpt2: it has no %s",
                                belay_module_name(model), table);
    return bl_train_tell(context, load(model, path, &error), &error);
}
