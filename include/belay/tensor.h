/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors: making them from host memory, reading them back, asking about them.  Ops are in <belay/op.h>. */
#ifndef BELAY_TENSOR_H
#define BELAY_TENSOR_H

#include <belay/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Shapes by hand: belay_shape2(64, 20) is [64, 20]. */
static inline belay_shape belay_shape0(void)
{
    belay_shape s = {0, {0}};
    return s;
}
static inline belay_shape belay_shape1(int64_t a)
{
    belay_shape s = {1, {a}};
    return s;
}
static inline belay_shape belay_shape2(int64_t a, int64_t b)
{
    belay_shape s = {2, {a, b}};
    return s;
}
static inline belay_shape belay_shape3(int64_t a, int64_t b, int64_t c)
{
    belay_shape s = {3, {a, b, c}};
    return s;
}
static inline belay_shape belay_shape4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    belay_shape s = {4, {a, b, c, d}};
    return s;
}

/* A contiguous tensor of that shape with a copy of `data` (row-major, n_bytes exactly the tensor's), in the innermost
 * scope.  Faults: shape.contract (n_bytes), size.overflow, mem.exhausted. */
BELAY_API belay_tensor belay_tensor_from(belay_context *context, belay_dtype dtype, belay_shape shape, const void *data,
                                         int64_t n_bytes);

/* Copies the elements, row-major, to `out` of exactly n_bytes.  A fence: waits for the device.
 * Faults: life.stale, shape.contract (n_bytes). */
BELAY_API BELAY_MUST_USE belay_code belay_tensor_read(belay_tensor tensor, void *out, int64_t n_bytes);

/* Replaces the elements of a contiguous tensor by `data` of exactly n_bytes. */
BELAY_API BELAY_MUST_USE belay_code belay_tensor_write(belay_tensor tensor, const void *data, int64_t n_bytes);

/* The value of a tensor with one element, as a double; NaN for nil and after a fault. */
BELAY_API double belay_tensor_item(belay_tensor tensor);

static inline bool belay_tensor_is_nil(belay_tensor tensor) { return tensor.generation == 0; }
/* True while the handle's tensor lives. */
BELAY_API bool belay_tensor_is_alive(belay_tensor tensor);

/* Questions.  For a nil or stale handle: rank 0 and one size of 0, f32, "", 0, false. */
BELAY_API belay_shape belay_tensor_shape(belay_tensor tensor);
BELAY_API belay_dtype belay_tensor_dtype(belay_tensor tensor);
BELAY_API int64_t belay_tensor_n_elements(belay_tensor tensor);
BELAY_API const char *belay_tensor_name(belay_tensor tensor);
BELAY_API bool belay_tensor_is_contiguous(belay_tensor tensor);

/* Names a tensor in reports; returns it.  Copied. */
BELAY_API belay_tensor belay_tensor_name_set(belay_tensor tensor, const char *name);

/* The context that a handle belongs to; NULL for nil and after belay_close. */
BELAY_API belay_context *belay_tensor_context(belay_tensor tensor);

/* Lets a tensor of the innermost scopes die now.  Others keep their own views of the storage. */
BELAY_API void belay_tensor_free(belay_tensor tensor);

/* ---- gradients ------------------------------------------------------------------------------------------------------- */

/* Asks for a gradient of a leaf (a tensor that no recorded op made); returns it.  Faults: type.dtype, life.tape. */
BELAY_API belay_tensor belay_tensor_requires_grad_set(belay_tensor tensor, bool requires_grad);
BELAY_API bool belay_tensor_requires_grad(belay_tensor tensor);
/* The gradient collected at a leaf since it was last cleared, or nil. */
BELAY_API belay_tensor belay_tensor_grad(belay_tensor tensor);
BELAY_API void belay_tensor_grad_clear(belay_tensor tensor);

#ifdef __cplusplus
}
#endif
#endif
