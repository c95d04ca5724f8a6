/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors to a safetensors file and back.  What is read is compared first, all of it, with what it is to become; only
 * then something is written.  Names under "belay." are ours, all others are the model's. */
#ifndef BL_TRAIN_CHECKPOINT_H
#define BL_TRAIN_CHECKPOINT_H

#include <belay/train.h>

#include "file/safetensors.h"
#include "optim/optim.h"
#include "tensor/context.h"

/* One thing to save or load: a tensor, or bytes of the host. */
typedef struct bl_checkpoint_item {
    char *name;
    belay_tensor tensor; /* nil: host bytes */
    void *host;
    belay_dtype dtype;
    belay_shape shape;
    belay_context *context;
    bl_optim_check check; /* NULL: any values */
} bl_checkpoint_item;

typedef struct bl_checkpoint {
    bl_checkpoint_item *item;
    int64_t n, capacity;
} bl_checkpoint;

void bl_checkpoint_fini(bl_checkpoint *list);

BL_MUST_USE belay_code bl_checkpoint_add_model(bl_checkpoint *list, belay_module *model, bl_error *error);
BL_MUST_USE belay_code bl_checkpoint_add_optimizer(bl_checkpoint *list, belay_context *context,
                                                   const belay_optimizer *optimizer, bl_error *error);
BL_MUST_USE belay_code bl_checkpoint_add_scaler(bl_checkpoint *list, belay_context *context,
                                                const belay_grad_scaler *scaler, bl_error *error);
/* A scalar of 8 bytes at `host`: i64 or f64. */
BL_MUST_USE belay_code bl_checkpoint_add_scalar(bl_checkpoint *list, const char *name, belay_dtype dtype, void *host,
                                                bl_error *error);

BL_MUST_USE belay_code bl_checkpoint_write(const bl_checkpoint *list, const char *path, const belay_pair *metadata,
                                           int64_t n_metadata, bl_error *error);

/* Compares all, then reads all.  file.mismatch names the first item, in the list's order, that the file lacks or has in
 * another shape or dtype; where the list `is_whole`, then the first tensor of the file outside of "belay." that is not
 * on it.  file.format names the first whose values an item's check refuses. */
BL_MUST_USE belay_code bl_checkpoint_read(const bl_checkpoint *list, bool is_whole, bl_safetensors *file,
                                          bl_error *error);

#endif
