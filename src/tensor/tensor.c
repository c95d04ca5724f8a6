/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls of <belay/tensor.h>: host memory in and out, questions, names. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "tensor/lease.h"
#include "tensor/place.h"

static belay_code raise_bytes(belay_context *context, const bl_slot *slot, int64_t n_bytes)
{
    bl_text words = {0};
    belay_shape shape = bl_slot_shape(slot);
    bl_report_shape(&shape, &words);
    belay_code code = bl_context_raise(
        context, BELAY_SHAPE_CONTRACT, "%" PRId64 " bytes were given for a tensor %s %s of %" PRId64 " bytes", n_bytes,
        bl_text_get(&words), belay_dtype_name(slot->dtype), bl_slot_elements(slot) * belay_dtype_size(slot->dtype));
    bl_text_fini(&words);
    return code;
}

static int64_t bytes_of(const bl_slot *slot) { return bl_slot_elements(slot) * belay_dtype_size(slot->dtype); }

static belay_code check_pointer(belay_context *context, const void *data, int64_t n_bytes)
{
    if (data != NULL || n_bytes == 0)
        return BELAY_OK;
    return bl_context_raise(context, BELAY_CONF_MISSING, "%" PRId64 " bytes were promised at a NULL pointer", n_bytes);
}

belay_tensor belay_tensor_from(belay_context *context, belay_dtype dtype, belay_shape shape, const void *data,
                               int64_t n_bytes)
{
    BL_ENTER(context);
    belay_tensor tensor = bl_tensor_new(context, dtype, &shape, NULL);
    bl_slot *slot = belay_tensor_is_nil(tensor) ? NULL : bl_slot_get(context, tensor);
    if (slot == NULL)
        return (belay_tensor){0};
    belay_code code =
        n_bytes != bytes_of(slot) ? raise_bytes(context, slot, n_bytes) : check_pointer(context, data, n_bytes);
    if (code != BELAY_OK) {
        bl_tensor_drop(context, tensor);
        return (belay_tensor){0};
    }
    if (bl_place_write(context, slot, 0, data, n_bytes) != BELAY_OK) {
        bl_tensor_drop(context, tensor);
        return (belay_tensor){0};
    }
    return tensor;
}

/* Copies a strided view: all from its first byte to its last, of which it picks its elements. */
static belay_code read_strided(belay_context *context, const bl_slot *slot, char *out)
{
    int64_t size = belay_dtype_size(slot->dtype), n = bl_slot_elements(slot);
    bl_extent extent = bl_place_extent(slot);
    char *whole = bl_alloc(extent.end - extent.begin, 1);
    if (whole == NULL)
        return bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to read a tensor");
    belay_code code = bl_place_read(context, slot, 0, whole, extent.end - extent.begin);
    for (int64_t e = 0; e < n && code == BELAY_OK; e++) {
        int64_t offset = 0, rest = e;
        for (int i = slot->rank - 1; i >= 0; i--) {
            offset += rest % slot->size[i] * slot->stride[i];
            rest /= slot->size[i];
        }
        memcpy(out + e * size, whole + offset * size, (size_t)size);
    }
    bl_free(whole);
    return code;
}

belay_code belay_tensor_read(belay_tensor tensor, void *out, int64_t n_bytes)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    if (context == NULL)
        return bl_caller_code(BELAY_LIFE_STALE);
    bl_slot *slot = bl_slot_use(context, tensor);
    if (slot == NULL)
        return BELAY_LIFE_STALE;
    if (n_bytes != bytes_of(slot))
        return raise_bytes(context, slot, n_bytes);
    TRY(check_pointer(context, out, n_bytes));
    TRY(bl_place_fence(context, slot->storage->place, "a tensor was read"));
    return bl_slot_is_contiguous(slot) ? bl_place_read(context, slot, 0, out, n_bytes)
                                       : read_strided(context, slot, out);
}

belay_code belay_tensor_write(belay_tensor tensor, const void *data, int64_t n_bytes)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    if (context == NULL)
        return bl_caller_code(BELAY_LIFE_STALE);
    bl_slot *slot = bl_slot_use(context, tensor);
    if (slot == NULL)
        return BELAY_LIFE_STALE;
    if (n_bytes != bytes_of(slot))
        return raise_bytes(context, slot, n_bytes);
    TRY(check_pointer(context, data, n_bytes));
    if (!bl_slot_is_contiguous(slot))
        return bl_context_raise(context, BELAY_SHAPE_CONTRACT, "a tensor that is written must be contiguous");
    if (!bl_lease_permits(context, slot, true, "the host"))
        return BELAY_LIFE_BUCKET;
    slot->storage->version++;
    slot->storage->written = bl_journal_site(context->journal, context->site);
    return bl_place_write(context, slot, 0, data, n_bytes);
}

static double value_of(int dtype, const void *bytes)
{
    switch (dtype) {
    case BELAY_F32:
        return (double)*(const float *)bytes;
    case BELAY_F64:
        return *(const double *)bytes;
    case BELAY_BF16:
        return (double)bl_from_bf16(*(const bl_bf16 *)bytes);
    case BELAY_F16:
        return (double)bl_from_f16(*(const bl_f16 *)bytes);
    case BELAY_I64:
        return (double)*(const int64_t *)bytes;
    case BELAY_I32:
        return (double)*(const int32_t *)bytes;
    case BELAY_U16:
        return (double)*(const uint16_t *)bytes;
    default:
        return (double)*(const uint8_t *)bytes;
    }
}

double belay_tensor_item(belay_tensor tensor)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    if (context == NULL)
        return (double)NAN;
    bl_slot *slot = bl_slot_use(context, tensor);
    if (slot == NULL)
        return (double)NAN;
    if (bl_slot_elements(slot) != 1) {
        bl_context_raise(context, BELAY_SHAPE_CONTRACT, "one value was asked of a tensor with %" PRId64 " elements",
                         bl_slot_elements(slot));
        return (double)NAN;
    }
    double bytes[1];
    if (bl_place_fence(context, slot->storage->place, "a value was read") != BELAY_OK ||
        bl_place_read(context, slot, 0, bytes, belay_dtype_size(slot->dtype)) != BELAY_OK)
        return (double)NAN;
    return value_of(slot->dtype, bytes);
}

/* A question's own, so that BL_ASK sees who asks. */
static inline __attribute__((always_inline)) const bl_slot *peek(belay_tensor tensor)
{
    belay_context *context = bl_tensor_context(tensor);
    return BL_ASK(context) ? bl_slot_get(context, tensor) : NULL;
}

bool belay_tensor_is_alive(belay_tensor tensor) { return peek(tensor) != NULL; }

belay_shape belay_tensor_shape(belay_tensor tensor)
{
    const bl_slot *slot = peek(tensor);
    return slot != NULL ? bl_slot_shape(slot) : (belay_shape){.rank = 0};
}

belay_dtype belay_tensor_dtype(belay_tensor tensor)
{
    const bl_slot *slot = peek(tensor);
    return slot != NULL ? (belay_dtype)slot->dtype : BELAY_F32;
}

int64_t belay_tensor_n_elements(belay_tensor tensor)
{
    const bl_slot *slot = peek(tensor);
    return slot != NULL ? bl_slot_elements(slot) : 0;
}

const char *belay_tensor_name(belay_tensor tensor)
{
    const bl_slot *slot = peek(tensor);
    return slot != NULL ? bl_journal_text_get(bl_tensor_context(tensor)->journal, slot->name) : "";
}

bool belay_tensor_is_contiguous(belay_tensor tensor)
{
    const bl_slot *slot = peek(tensor);
    return slot != NULL && bl_slot_is_contiguous(slot);
}

belay_tensor belay_tensor_name_set(belay_tensor tensor, const char *name)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    if (context == NULL)
        return (belay_tensor){0};
    bl_slot *slot = bl_slot_use(context, tensor);
    if (slot == NULL)
        return (belay_tensor){0};
    slot->name = bl_journal_text(context->journal, name != NULL ? name : "");
    if (bytes_of(slot) < slot->storage->n_bytes)
        return tensor; /* a part does not name the whole */
    slot->storage->name = slot->name;
    bl_journal_storage_name(context->journal, slot->storage->listed, slot->name);
    return tensor;
}

belay_tensor belay_tensor_requires_grad_set(belay_tensor tensor, bool requires_grad)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    if (context == NULL)
        return (belay_tensor){0};
    bl_slot *slot = bl_slot_use(context, tensor);
    if (slot == NULL)
        return (belay_tensor){0};
    if (requires_grad && !belay_dtype_is_float(slot->dtype)) {
        bl_context_raise(context, BELAY_TYPE_DTYPE, "a tensor of dtype %s cannot have a gradient",
                         belay_dtype_name(slot->dtype));
        return tensor;
    }
    if (slot->node != 0) {
        bl_context_raise(context, BELAY_LIFE_TAPE, "a gradient was asked of a tensor that a recorded op made");
        return tensor;
    }
    slot->requires_grad = requires_grad;
    return tensor;
}

bool belay_tensor_requires_grad(belay_tensor tensor)
{
    const bl_slot *slot = peek(tensor);
    return slot != NULL && slot->requires_grad;
}

belay_tensor belay_tensor_grad(belay_tensor tensor)
{
    const bl_slot *slot = peek(tensor);
    if (slot == NULL)
        return (belay_tensor){0};
    bl_lease_settle_grad(bl_tensor_context(tensor), slot);
    return slot->grad;
}

void belay_tensor_grad_clear(belay_tensor tensor)
{
    belay_context *context = bl_tensor_context(tensor);
    bl_slot *slot = BL_ASK(context) ? bl_slot_get(context, tensor) : NULL;
    const bl_slot *let = slot != NULL ? bl_slot_get(context, slot->grad) : NULL;
    if (slot == NULL || (let != NULL && !bl_lease_permits(context, let, true, "clearing")))
        return;
    belay_tensor grad = slot->grad;
    slot->grad = (belay_tensor){0};
    slot->grad_scale = (bl_grad_scale){0};
    bl_tensor_drop(context, grad);
}
