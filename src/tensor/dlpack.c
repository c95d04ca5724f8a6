/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in and out by DLPack.  Every field of a struct that comes in is checked before it is used. */
#include <belay/dlpack.h>
#include <belay/dlpack_abi.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "tensor/loan.h"
#include "tensor/place.h"

static const struct {
    uint8_t code, bits;
} dtypes[BELAY_N_DTYPES] = {
    [BELAY_F32] = {kDLFloat, 32}, [BELAY_F64] = {kDLFloat, 64}, [BELAY_BF16] = {kDLBfloat, 16},
    [BELAY_F16] = {kDLFloat, 16}, [BELAY_I64] = {kDLInt, 64},   [BELAY_I32] = {kDLInt, 32},
    [BELAY_U16] = {kDLUInt, 16},  [BELAY_U8] = {kDLUInt, 8},    [BELAY_BOOL] = {kDLBool, 8},
};

/* ---- out ------------------------------------------------------------------------------------------------------------- */

/* What a consumer gets a pointer into. */
typedef struct outgoing {
    union {
        DLManagedTensor plain;
        DLManagedTensorVersioned versioned;
    } managed;
    bl_loan *loan;
    int64_t shape[BELAY_MAX_RANK], stride[BELAY_MAX_RANK];
} outgoing;

static void let_go(outgoing *o)
{
    bl_loan_release(o->loan);
    bl_free(o);
}

static void delete_plain(DLManagedTensor *self) { let_go(self->manager_ctx); }

static void delete_versioned(DLManagedTensorVersioned *self) { let_go(self->manager_ctx); }

static void refuse_device(belay_context *context, const bl_slot *slot)
{
    bl_error error;
    bl_text words = {0};
    belay_shape shape = bl_slot_shape(slot);
    const char *name = bl_journal_text_get(context->journal, slot->name);
    bl_report_shape(&shape, &words);
    bl_error_set(&error, BELAY_PLACE_HOST, "%s%.120s %s %s lies on %s, where no other library can read it",
                 name[0] != '\0' ? "tensor " : "a tensor", name, bl_text_get(&words), belay_dtype_name(slot->dtype),
                 bl_slot_device(context, slot)->name);
    bl_error_advise(&error, "Export belay_tensor_to(tensor, \"cpu\").");
    bl_context_raise_error(context, &error);
    bl_text_fini(&words);
}

/* The slot of a tensor that can be exported. */
static bl_slot *may_leave(belay_context *context, belay_tensor tensor, bool can_say_read_only)
{
    bl_slot *slot = bl_slot_use(context, tensor);
    if (slot == NULL)
        return NULL;
    if (strcmp(bl_slot_device(context, slot)->api->kind, "cpu") != 0) {
        refuse_device(context, slot);
        return NULL;
    }
    if (!can_say_read_only && bl_loan_is_read_only(slot->storage->loan)) {
        bl_error error;
        bl_error_set(&error, BELAY_LIFE_READ_ONLY,
                     "memory that was lent to be read only was to be lent on by a struct that cannot say so");
        bl_error_advise(&error, "Use belay_tensor_to_dlpack_versioned.");
        bl_context_raise_error(context, &error);
        return NULL;
    }
    return slot;
}

/* The memory of a tensor as another library sees it; NULL after mem.exhausted. */
static outgoing *lend(belay_context *context, const bl_slot *slot, DLTensor *out)
{
    outgoing *o = bl_alloc(1, sizeof *o);
    bl_loan *loan = o != NULL ? bl_loan_hold(slot->storage) : NULL;
    if (loan == NULL) {
        bl_free(o);
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to export a tensor");
        return NULL;
    }
    o->loan = loan;
    memcpy(o->shape, slot->size, sizeof o->shape);
    memcpy(o->stride, slot->stride, sizeof o->stride);
    *out = (DLTensor){.data = bl_slot_elements(slot) > 0 ? slot->data : NULL,
                      .device = {kDLCPU, 0},
                      .ndim = slot->rank,
                      .dtype = {dtypes[slot->dtype].code, dtypes[slot->dtype].bits, 1},
                      .shape = o->shape,
                      .strides = o->stride};
    return o;
}

struct DLManagedTensor *belay_tensor_to_dlpack(belay_tensor tensor)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    if (context == NULL)
        return NULL;
    DLTensor seen;
    const bl_slot *slot = may_leave(context, tensor, false);
    outgoing *o = slot != NULL ? lend(context, slot, &seen) : NULL;
    if (o == NULL)
        return NULL;
    o->managed.plain = (DLManagedTensor){seen, o, delete_plain};
    return &o->managed.plain;
}

struct DLManagedTensorVersioned *belay_tensor_to_dlpack_versioned(belay_tensor tensor)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    if (context == NULL)
        return NULL;
    DLTensor seen;
    const bl_slot *slot = may_leave(context, tensor, true);
    outgoing *o = slot != NULL ? lend(context, slot, &seen) : NULL;
    if (o == NULL)
        return NULL;
    o->managed.versioned =
        (DLManagedTensorVersioned){.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION},
                                   .manager_ctx = o,
                                   .deleter = delete_versioned,
                                   .flags = o->loan->is_read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0,
                                   .dl_tensor = seen};
    return &o->managed.versioned;
}

/* ---- in -------------------------------------------------------------------------------------------------------------- */

/* What a DLTensor says, checked. */
typedef struct incoming {
    void *data;
    belay_dtype dtype;
    belay_shape shape;
    int64_t stride[BELAY_MAX_RANK];
    int64_t n_elements, n_bytes;
} incoming;

static belay_code check_device(const DLDevice *device, bl_error *error)
{
    int type = (int)device->device_type;
    if (type != kDLCPU && type != kDLCUDAHost && type != kDLROCMHost) {
        bl_error_set(error, BELAY_PLACE_HOST, "the tensor lies on device type %d of DLPack, which the host cannot read",
                     type);
        bl_error_advise(error, "Move it to the host first: tensor.cpu() in PyTorch.");
        return BELAY_PLACE_HOST;
    }
    if (device->device_id == 0)
        return BELAY_OK;
    bl_error_set(error, BELAY_CONF_VALUE, "device_id is %" PRId32 ": memory of the host has 0", device->device_id);
    bl_error_advise(error, "This is the producer's to mend.");
    return BELAY_CONF_VALUE;
}

static belay_code check_dtype(const DLDataType *dtype, belay_dtype *out, bl_error *error)
{
    for (int d = 0; d < BELAY_N_DTYPES; d++)
        if (dtypes[d].code == dtype->code && dtypes[d].bits == dtype->bits && dtype->lanes == 1) {
            *out = (belay_dtype)d;
            return BELAY_OK;
        }
    bl_error_set(error, BELAY_TYPE_DTYPE,
                 "the elements have type code %d of DLPack, %d bits and %d lane%s, no dtype of "
                 "Belay's",
                 dtype->code, dtype->bits, dtype->lanes, dtype->lanes == 1 ? "" : "s");
    bl_error_fact(error, "dtypes: f32, f64, bf16, f16, i64, i32, u16, u8, bool");
    bl_error_advise(error, "Cast it first: tensor.to(torch.float32) in PyTorch.");
    return BELAY_TYPE_DTYPE;
}

static belay_code refuse_shape(const belay_shape *shape, belay_code code, const char *what, bl_error *error)
{
    bl_text words = {0};
    bl_report_shape(shape, &words);
    bl_error_set(error, code, "a tensor of shape %s %s", bl_text_get(&words), what);
    bl_text_fini(&words);
    return code;
}

static belay_code check_shape(const DLTensor *t, incoming *in, bl_error *error)
{
    if (t->ndim < 0 || t->ndim > BELAY_MAX_RANK)
        return bl_error_set(error, BELAY_SHAPE_RANK, "a tensor of %" PRId32 " axes: Belay's have 0 to %d", t->ndim,
                            BELAY_MAX_RANK);
    if (t->ndim > 0 && t->shape == NULL)
        return bl_error_set(error, BELAY_CONF_MISSING, "shape is NULL for a tensor of %" PRId32 " axes", t->ndim);
    in->shape.rank = (int)t->ndim;
    for (int i = 0; i < t->ndim; i++)
        in->shape.size[i] = t->shape[i];
    for (int i = 0; i < t->ndim; i++)
        if (t->shape[i] < 0)
            return refuse_shape(&in->shape, BELAY_SHAPE_CONTRACT, "has a negative size", error);
    int64_t packed;
    if (!bl_shape_strides(&in->shape, in->stride, &in->n_elements) ||
        !bl_checked_mul(in->n_elements, belay_dtype_size(in->dtype), &packed))
        return refuse_shape(&in->shape, BELAY_SIZE_OVERFLOW, "has more bytes than 2^63 - 1", error);
    return BELAY_OK;
}

/* A stride that is never walked means nothing and stays as it would be without gaps. */
static belay_code check_strides(const DLTensor *t, incoming *in, bl_error *error)
{
    for (int i = 0; i < t->ndim && t->strides != NULL && in->n_elements > 0; i++) {
        if (t->shape[i] == 1)
            continue;
        if (t->strides[i] < 0) {
            bl_error_set(error, BELAY_SHAPE_CONTRACT, "axis %d has stride %" PRId64 ": Belay walks forward only", i,
                         t->strides[i]);
            bl_error_advise(error, "Copy it first: numpy.ascontiguousarray(array) in NumPy.");
            return BELAY_SHAPE_CONTRACT;
        }
        in->stride[i] = t->strides[i];
    }
    return BELAY_OK;
}

/* Bytes from the first element to the last. */
static belay_code check_span(incoming *in, bl_error *error)
{
    int64_t last = 0, step, end;
    bool fits = true;
    for (int i = 0; i < in->shape.rank && in->n_elements > 0; i++)
        fits = fits && bl_checked_mul(in->shape.size[i] - 1, in->stride[i], &step) && bl_checked_add(last, step, &last);
    fits = fits && bl_checked_add(last, in->n_elements > 0, &end) &&
           bl_checked_mul(end, belay_dtype_size(in->dtype), &in->n_bytes);
    return fits ? BELAY_OK
                : refuse_shape(&in->shape, BELAY_SIZE_OVERFLOW, "spans more bytes than 2^63 - 1 by its strides", error);
}

/* Of no elements there is no byte that could be meant. */
static belay_code check_data(const DLTensor *t, incoming *in, bl_error *error)
{
    static double nowhere;
    uint64_t begin = (uint64_t)(uintptr_t)t->data, end, size = (uint64_t)belay_dtype_size(in->dtype);
    in->data = &nowhere;
    if (in->n_elements == 0)
        return BELAY_OK;
    if (t->data == NULL)
        return bl_error_set(error, BELAY_CONF_MISSING, "data is NULL for a tensor of %" PRId64 " element%s",
                            in->n_elements, in->n_elements == 1 ? "" : "s");
    if (__builtin_add_overflow(begin, t->byte_offset, &begin) ||
        __builtin_add_overflow(begin, (uint64_t)in->n_bytes, &end) || end > UINTPTR_MAX)
        return bl_error_set(error, BELAY_SIZE_OVERFLOW,
                            "%" PRId64 " bytes at byte_offset %" PRIu64 " reach past the end of memory", in->n_bytes,
                            t->byte_offset);
    if (begin % size != 0) {
        bl_error_set(error, BELAY_CONF_VALUE, "data lies at an address that is no multiple of %d, the size of %s",
                     (int)size, belay_dtype_name(in->dtype));
        bl_error_advise(error, "Copy it first; a slice of raw bytes is the usual reason.");
        return BELAY_CONF_VALUE;
    }
    in->data = (char *)t->data + t->byte_offset;
    return BELAY_OK;
}

static belay_code check(const DLTensor *t, incoming *in, bl_error *error)
{
    TRY(check_device(&t->device, error));
    TRY(check_dtype(&t->dtype, &in->dtype, error));
    TRY(check_shape(t, in, error));
    TRY(check_strides(t, in, error));
    TRY(check_span(in, error));
    return check_data(t, in, error);
}

/* A tensor over what was checked; the loan's end is the caller's to set. */
static belay_tensor borrow(belay_context *context, const DLTensor *t, bool is_read_only)
{
    bl_error error = {0};
    incoming in = {0};
    int place;
    if (check(t, &in, &error) != BELAY_OK) {
        bl_context_raise_error(context, &error);
        return (belay_tensor){0};
    }
    if (bl_place_named(context, "cpu", &place) != BELAY_OK)
        return (belay_tensor){0};
    bl_loan *loan = bl_loan_new(is_read_only);
    if (loan == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to import a tensor");
        return (belay_tensor){0};
    }
    context->has_read_only = context->has_read_only || is_read_only;
    return bl_tensor_over(context, place, in.dtype, &in.shape, in.stride, in.data, in.n_bytes, loan);
}

/* From now on the memory is Belay's to give back. */
static belay_tensor take_over(belay_context *context, belay_tensor tensor, void (*end)(void *owner), void *owner)
{
    const bl_slot *slot = bl_slot_get(context, tensor);
    if (slot == NULL)
        return (belay_tensor){0};
    bl_loan_take_over(slot->storage->loan, end, owner);
    return tensor;
}

static void end_plain(void *owner)
{
    DLManagedTensor *managed = owner;
    if (managed->deleter != NULL)
        managed->deleter(managed);
}

static void end_versioned(void *owner)
{
    DLManagedTensorVersioned *managed = owner;
    if (managed->deleter != NULL)
        managed->deleter(managed);
}

/* A struct that was taken over is not the caller's any more: its deleter would be called twice. */
static bool is_given(belay_context *context, const void *managed)
{
    bl_error error;
    if (managed == NULL)
        bl_error_set(&error, BELAY_CONF_MISSING, "a tensor was to be imported from NULL");
    else if (bl_loan_is_of(managed))
        bl_error_set(&error, BELAY_CONF_ORDER, "a tensor was to be imported by a struct that has been imported");
    else
        return true;
    if (managed != NULL)
        bl_error_advise(&error,
                        "Use the tensor that the first import gave, or let the producer export another struct.");
    bl_context_raise_error(context, &error);
    return false;
}

belay_tensor belay_tensor_from_dlpack(belay_context *context, struct DLManagedTensor *managed)
{
    BL_ENTER(context);
    if (!belay_is_open(context) || !is_given(context, managed))
        return (belay_tensor){0};
    return take_over(context, borrow(context, &managed->dl_tensor, false), end_plain, managed);
}

belay_tensor belay_tensor_from_dlpack_versioned(belay_context *context, struct DLManagedTensorVersioned *managed)
{
    BL_ENTER(context);
    if (!belay_is_open(context) || !is_given(context, managed))
        return (belay_tensor){0};
    if (managed->version.major != DLPACK_MAJOR_VERSION) {
        bl_error error;
        bl_error_set(&error, BELAY_CONF_VALUE,
                     "the tensor comes by version %" PRIu32 ".%" PRIu32 " of DLPack, read is %d",
                     managed->version.major, managed->version.minor, DLPACK_MAJOR_VERSION);
        bl_error_advise(&error, "Ask the producer for version 1: max_version=(1, 1) in Python.");
        bl_context_raise_error(context, &error);
        return (belay_tensor){0};
    }
    bool is_read_only = (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    return take_over(context, borrow(context, &managed->dl_tensor, is_read_only), end_versioned, managed);
}
