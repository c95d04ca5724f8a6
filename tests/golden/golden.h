/* SPDX-License-Identifier: Apache-2.0 */
/* One golden file in work: its inputs become tensors, what Belay computes from them is compared with its outputs.
 *
 * A case computes outputs and hands them to golden_output; gradients of what the file has gradients for are then
 * walked back and compared by the runner.  A case of a whole trajectory compares by itself (golden_check*).  Every
 * output.* and grad.* of a file must be compared, else the file fails. */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H

#include <belay/devices.h>
#include <belay/grad.h>
#include <belay/nn.h>
#include <belay/op.h>
#include <belay/optim.h>

#include "file/safetensors.h"

enum { GOLDEN_NAMES = 96, GOLDEN_OUTPUTS = 8 };

typedef struct golden_named {
    char name[96];
    belay_tensor tensor;
} golden_named;

typedef struct golden {
    const char *folder, *label; /* file name without suffix */
    bool is_rank;               /* one of several that run the file together */
    bl_safetensors *file;
    belay_context *context;
    const char *device; /* tensors and models are made there, whatever the context's current device is */
    uint64_t bits_told; /* a hash of every value that was compared, in order */
    double rtol, atol;
    bool bits;    /* compare bits: a NaN is any NaN */
    double scale; /* what Belay's value is multiplied by before it is compared; 1 */
    golden_named leaf[GOLDEN_NAMES];
    int n_leaves;
    golden_named output[GOLDEN_OUTPUTS];
    int n_outputs;
    bool *is_compared; /* of each entry of the file */
    bool is_skipped;
    const char *absent; /* what this machine lacks for it; NULL: nothing */
    int n_failures;
    char told[4096]; /* the first faults, as Belay told them */
} golden;

/* An op of the metadata and what runs it; exactly one function. */
typedef struct golden_op {
    const char *op;
    void (*run)(golden *g);
    belay_tensor (*unary)(belay_tensor x);                  /* input.x -> output.y */
    belay_tensor (*binary)(belay_tensor a, belay_tensor b); /* input.a, input.b -> output.y */
} golden_op;

/* Tables, each ended by an op without name. */
extern const golden_op golden_map_ops[], golden_shape_ops[], golden_row_ops[], golden_index_ops[], golden_lstm_ops[],
    golden_optim_ops[], golden_attention_ops[], golden_train_ops[], golden_conv_ops[], golden_ddp_ops[];

/* ---- options ---- */

const char *golden_text(golden *g, const char *key); /* fails the file and gives "" when there is none */
bool golden_is_null(golden *g, const char *key);     /* absent or null */
double golden_number(golden *g, const char *key);
bool golden_flag(golden *g, const char *key);
int golden_list(golden *g, const char *key, int64_t out[BELAY_MAX_RANK]); /* a number is a list of one; how many */

/* ---- tensors ---- */

/* What is made before golden_back lies on the file's device. */
belay_device_guard golden_there(golden *g);
static inline void golden_back(belay_device_guard guard) { belay_device_guard_close(guard); }
/* A tensor there from bytes. */
belay_tensor golden_from(golden *g, belay_dtype dtype, belay_shape shape, const void *bytes, int64_t n_bytes);

bool golden_has(const golden *g, const char *name);
/* The tensor of "input.<name>" or "param.<name>", wanting a gradient when the file has one.  Nil and a failure when
 * there is none. */
belay_tensor golden_input(golden *g, const char *name);
/* Row `row` along the first axis of an input; never a leaf. */
belay_tensor golden_input_row(golden *g, const char *name, int64_t row);
/* The bytes of an entry; NULL and a failure when there is none. */
const bl_safetensors_entry *golden_bytes(golden *g, const char *name, const void **bytes);

/* ---- results ---- */

/* Compares with "output.<name>" and remembers the tensor for the walk back. */
void golden_output(golden *g, const char *name, belay_tensor tensor);
/* Compares a tensor with the whole entry `name`, or with row `row` of it. */
void golden_check(golden *g, const char *name, belay_tensor tensor);
void golden_check_row(golden *g, const char *name, int64_t row, belay_tensor tensor);
void golden_check_numbers(golden *g, const char *name, const double *got, int64_t n);
/* Walks back from the outputs and compares the gradients of the leaves. */
void golden_backward(golden *g);

/* ---- optimizers ---- */

belay_sgd_options golden_sgd_options(golden *g);
belay_adam_options golden_adam_options(golden *g);

/* ---- runs ---- */

/* The model's parameters become those of "param.<name>". */
void golden_load_parameters(golden *g, belay_module *model);
/* Compares gradients ("grad.") or values ("output.final.") of all parameters. */
void golden_check_parameters(golden *g, const belay_module *model, const char *prefix, bool is_grad);

void golden_train_gpt(golden *g);

void golden_fail(golden *g, const char *format, ...) BELAY_PRINTF(2, 3);
/* The case needs what is not built: the file is listed as not run. */
void golden_skip(golden *g);

#endif
