/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "file/path.h"
#include "nn/module.h"
#include "tensor/place.h"
#include "train/watch.h"

static const bl_safetensors_dtype file_dtype[BELAY_N_DTYPES] = {
    [BELAY_F32] = BL_SAFETENSORS_F32, [BELAY_F64] = BL_SAFETENSORS_F64, [BELAY_BF16] = BL_SAFETENSORS_BF16,
    [BELAY_F16] = BL_SAFETENSORS_F16, [BELAY_I64] = BL_SAFETENSORS_I64, [BELAY_I32] = BL_SAFETENSORS_I32,
    [BELAY_U16] = BL_SAFETENSORS_U16, [BELAY_U8] = BL_SAFETENSORS_U8,   [BELAY_BOOL] = BL_SAFETENSORS_BOOL,
};

void bl_checkpoint_fini(bl_checkpoint *list)
{
    for (int64_t i = 0; i < list->n; i++)
        bl_free(list->item[i].name);
    bl_free(list->item);
    *list = (bl_checkpoint){0};
}

static belay_code add(bl_checkpoint *list, const char *prefix, const char *name, const bl_checkpoint_item *what,
                      bl_error *error)
{
    bl_text words = {0};
    bl_text_add(&words, prefix);
    bl_text_add(&words, name);
    if (words.failed || !bl_grow(&list->item, &list->capacity, list->n + 1, sizeof *list->item)) {
        bl_text_fini(&words);
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the list of a checkpoint's tensors");
    }
    list->item[list->n] = *what;
    list->item[list->n++].name = words.bytes;
    return BELAY_OK;
}

static belay_code add_checked(bl_checkpoint *list, belay_context *context, const char *prefix, const char *name,
                              belay_tensor tensor, bl_optim_check check, bl_error *error)
{
    bl_checkpoint_item item = {.tensor = tensor,
                               .dtype = belay_tensor_dtype(tensor),
                               .shape = belay_tensor_shape(tensor),
                               .context = context,
                               .check = check};
    if (!belay_tensor_is_alive(tensor) || !belay_tensor_is_contiguous(tensor))
        return bl_error_set(error, BELAY_BUG_INVARIANT, "'%s' cannot be saved: it is not a whole tensor", name);
    return add(list, prefix, name, &item, error);
}

static belay_code add_tensor(bl_checkpoint *list, belay_context *context, const char *prefix, const char *name,
                             belay_tensor tensor, bl_error *error)
{
    return add_checked(list, context, prefix, name, tensor, NULL, error);
}

belay_code bl_checkpoint_add_model(bl_checkpoint *list, belay_module *model, bl_error *error)
{
    belay_context *context = belay_module_context(model);
    for (int64_t i = 0; i < belay_module_n_parameters(model); i++)
        TRY(add_tensor(list, context, "", belay_module_parameter_name(model, i), belay_module_parameter(model, i),
                       error));
    for (int64_t i = 0; i < belay_module_n_buffers(model); i++)
        TRY(add_tensor(list, context, "", belay_module_buffer_name(model, i), belay_module_buffer(model, i), error));
    return BELAY_OK;
}

belay_code bl_checkpoint_add_optimizer(bl_checkpoint *list, belay_context *context, const belay_optimizer *optimizer,
                                       bl_error *error)
{
    const char *name;
    belay_tensor tensor;
    for (int64_t i = 0; belay_optimizer_state_get(optimizer, i, &name, &tensor); i++)
        TRY(add_checked(list, context, "belay.optimizer.", name, tensor, bl_optim_check_of(name), error));
    return BELAY_OK;
}

belay_code bl_checkpoint_add_scaler(bl_checkpoint *list, belay_context *context, const belay_grad_scaler *scaler,
                                    bl_error *error)
{
    return add_checked(list, context, "belay.scaler.", "state", belay_grad_scaler_state(scaler), bl_scaler_state_check,
                       error);
}

belay_code bl_checkpoint_add_scalar(bl_checkpoint *list, const char *name, belay_dtype dtype, void *host,
                                    bl_error *error)
{
    bl_checkpoint_item item = {.host = host, .dtype = dtype};
    return add(list, "belay.run.", name, &item, error);
}

/* ---- writing ------------------------------------------------------------------------------------------------------ */

/* Bytes of a tensor from the device, piece by piece: the host never holds a whole one. */
static belay_code fill(void *user, int64_t offset, void *into, int64_t n_bytes, bl_error *error)
{
    const bl_checkpoint_item *item = user;
    const bl_slot *slot = bl_slot_get(item->context, item->tensor);
    if (slot == NULL)
        return bl_error_set(error, BELAY_BUG_INVARIANT, "'%s' died while it was saved", item->name);
    belay_code code = bl_place_fence(item->context, slot->storage->place, "a checkpoint was written");
    if (code == BELAY_OK)
        code = bl_place_read(item->context, slot, offset, into, n_bytes);
    return code == BELAY_OK ? code : bl_error_set(error, code, "'%s' could not be read from its device", item->name);
}

static bl_safetensors_source source_of(bl_checkpoint_item *item)
{
    bl_safetensors_source source = {.name = item->name,
                                    .dtype = file_dtype[item->dtype],
                                    .rank = item->shape.rank,
                                    .shape = item->shape.size,
                                    .bytes = item->host};
    if (item->host == NULL) {
        source.fill = fill;
        source.user = item;
    }
    return source;
}

belay_code bl_checkpoint_write(const bl_checkpoint *list, const char *path, const belay_pair *metadata,
                               int64_t n_metadata, bl_error *error)
{
    bl_safetensors_source *sources = bl_alloc(list->n, sizeof *sources);
    bl_safetensors_pair *pairs = bl_alloc(n_metadata, sizeof *pairs);
    belay_code code = BELAY_OK;
    if (sources == NULL || pairs == NULL) {
        code = bl_file_no_memory(error, "write", path);
    } else {
        for (int64_t i = 0; i < list->n; i++)
            sources[i] = source_of(&list->item[i]);
        for (int64_t i = 0; i < n_metadata; i++)
            pairs[i] = (bl_safetensors_pair){metadata[i].key, metadata[i].value};
        code = bl_safetensors_write(path, sources, list->n, pairs, n_metadata, error);
    }
    bl_free(sources);
    bl_free(pairs);
    return code;
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

static void describe(const bl_safetensors_entry *entry, bl_text *out)
{
    bl_text_add(out, "[");
    for (int i = 0; i < entry->rank; i++)
        bl_text_format(out, i > 0 ? ", %" PRId64 : "%" PRId64, entry->shape[i]);
    bl_text_format(out, "] %s", bl_safetensors_dtype_name(entry->dtype));
}

/* Who needs a tensor of that name. */
static const char *owner_of(const char *name)
{
    if (strncmp(name, "belay.optimizer.", 16) == 0)
        return "the optimizer";
    return strncmp(name, "belay.", 6) == 0 ? "a run" : "the model";
}

static belay_code differs(const bl_checkpoint_item *item, const bl_safetensors_entry *entry, const char *path,
                          bl_error *error)
{
    bl_text is = {0}, wanted = {0};
    describe(entry, &is);
    bl_report_shape(&item->shape, &wanted);
    belay_code code =
        bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' holds '%s' as %s, the model has it as %s %s", path, item->name,
                     bl_text_get(&is), bl_text_get(&wanted), bl_safetensors_dtype_name(file_dtype[item->dtype]));
    bl_text_fini(&is);
    bl_text_fini(&wanted);
    return code;
}

static belay_code compare_item(const bl_checkpoint_item *item, const bl_safetensors *file, bl_error *error)
{
    const bl_safetensors_entry *entry = bl_safetensors_find(file, item->name);
    if (entry == NULL)
        return bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' does not hold '%s', which %s has",
                            bl_safetensors_path(file), item->name, owner_of(item->name));
    bool is_same = entry->rank == item->shape.rank && entry->dtype == file_dtype[item->dtype];
    for (int i = 0; i < item->shape.rank && is_same; i++)
        is_same = entry->shape[i] == item->shape.size[i];
    return is_same ? BELAY_OK : differs(item, entry, bl_safetensors_path(file), error);
}

static bool is_listed(const bl_checkpoint *list, const char *name)
{
    for (int64_t i = 0; i < list->n; i++)
        if (strcmp(list->item[i].name, name) == 0)
            return true;
    return false;
}

static belay_code compare_names(const bl_checkpoint *list, const bl_safetensors *file, bl_error *error)
{
    for (int64_t i = 0; i < bl_safetensors_n_entries(file); i++) {
        const char *name = bl_safetensors_entry_at(file, i)->name;
        char quoted[BL_FILE_QUOTE];
        if (strncmp(name, "belay.", 6) != 0 && !is_listed(list, name))
            return bl_error_set(error, BELAY_FILE_MISMATCH, "'%s' holds '%s', which the model does not have",
                                bl_safetensors_path(file), bl_file_quote(name, (int64_t)strlen(name), quoted));
    }
    return BELAY_OK;
}

/* The bytes of an entry; freed by the caller. */
static belay_code read_bytes(bl_safetensors *file, const bl_safetensors_entry *entry, void **bytes, bl_error *error)
{
    *bytes = bl_alloc_aligned(entry->n_bytes > 0 ? entry->n_bytes : 1, 64);
    if (*bytes == NULL)
        return bl_file_no_memory(error, "read", bl_safetensors_path(file));
    return bl_safetensors_read(file, entry, *bytes, entry->n_bytes, error);
}

static belay_code check_values(const bl_checkpoint_item *item, bl_safetensors *file, bl_error *error)
{
    const bl_safetensors_entry *entry = bl_safetensors_find(file, item->name);
    bl_text why = {0};
    void *bytes = NULL;
    belay_code code = read_bytes(file, entry, &bytes, error);
    if (code == BELAY_OK && !item->check(bytes, entry->n_bytes, &why)) {
        code = bl_error_set(error, BELAY_FILE_FORMAT, "'%s' holds '%s' with %s", bl_safetensors_path(file), item->name,
                            bl_text_get(&why));
        bl_error_advise(error, "Put back the file as it was written, or begin the run anew with --overwrite.");
    }
    bl_free(bytes);
    bl_text_fini(&why);
    return code;
}

static belay_code read_item(const bl_checkpoint_item *item, bl_safetensors *file, bl_error *error)
{
    const bl_safetensors_entry *entry = bl_safetensors_find(file, item->name);
    if (item->host != NULL)
        return bl_safetensors_read(file, entry, item->host, entry->n_bytes, error);
    void *bytes = NULL;
    belay_code code = read_bytes(file, entry, &bytes, error);
    if (code == BELAY_OK)
        code = belay_tensor_write(item->tensor, bytes, entry->n_bytes);
    bl_free(bytes);
    return code;
}

belay_code bl_checkpoint_read(const bl_checkpoint *list, bool is_whole, bl_safetensors *file, bl_error *error)
{
    for (int64_t i = 0; i < list->n; i++)
        TRY(compare_item(&list->item[i], file, error));
    if (is_whole)
        TRY(compare_names(list, file, error));
    for (int64_t i = 0; i < list->n; i++)
        if (list->item[i].check != NULL)
            TRY(check_values(&list->item[i], file, error));
    for (int64_t i = 0; i < list->n; i++)
        TRY(read_item(&list->item[i], file, error));
    return BELAY_OK;
}

/* ---- the public pair ---------------------------------------------------------------------------------------------- */

static belay_code save(belay_module *model, const char *path, const belay_pair *metadata, int64_t n_metadata,
                       bl_error *error)
{
    bl_checkpoint list = {0};
    belay_code code = bl_checkpoint_add_model(&list, model, error);
    if (code == BELAY_OK)
        code = bl_checkpoint_write(&list, path, metadata, n_metadata, error);
    bl_checkpoint_fini(&list);
    return code;
}

static belay_code load(belay_module *model, const char *path, bl_error *error)
{
    bl_checkpoint list = {0};
    bl_safetensors *file = NULL;
    TRY(bl_safetensors_open(path, &file, error));
    belay_code code = bl_checkpoint_add_model(&list, model, error);
    if (code == BELAY_OK)
        code = bl_checkpoint_read(&list, true, file, error);
    bl_checkpoint_fini(&list);
    bl_safetensors_close(file);
    return code;
}

belay_code belay_checkpoint_save(belay_module *model, const char *path, const belay_pair *metadata, int64_t n_metadata)
{
    BL_ENTER(bl_module_context(model));
    belay_context *context = bl_module_use(model);
    if (context == NULL)
        return bl_caller_code(BELAY_CONF_ORDER);
    bl_error error = {0};
    if (path == NULL || (n_metadata > 0 && metadata == NULL))
        return bl_context_raise(context, BELAY_CONF_MISSING, "a checkpoint needs %s",
                                path == NULL ? "the path of its file" : "the metadata that were promised");
    return bl_train_tell(context, save(model, path, metadata, n_metadata, &error), &error);
}

belay_code belay_checkpoint_load(belay_module *model, const char *path)
{
    BL_ENTER(bl_module_context(model));
    belay_context *context = bl_module_use(model);
    if (context == NULL)
        return bl_caller_code(BELAY_CONF_ORDER);
    bl_error error = {0};
    if (path == NULL)
        return bl_context_raise(context, BELAY_CONF_MISSING, "a checkpoint needs the path of its file");
    return bl_train_tell(context, load(model, path, &error), &error);
}
