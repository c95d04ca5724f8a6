/* SPDX-License-Identifier: Apache-2.0 */
/* Running kernels of one's own.  How they are written stands in <belay/kernel.h>. */
#ifndef BELAY_LAUNCH_H
#define BELAY_LAUNCH_H

#include <belay/kernel.h>
#include <belay/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a launch is given. */
typedef struct belay_launch_options {
    int64_t n_items;                                 /* how often the body runs; 0: nothing runs */
    belay_tensor operand[BELAY_MAX_KERNEL_OPERANDS]; /* in the signature's order; any strides */
    const void *params;                              /* copied before the call returns; NULL where there are none */
    int64_t params_bytes;                            /* at most BELAY_MAX_KERNEL_PARAMS */
    const char *device; /* NULL, "": the operands' own ("cpu", "sim:1"); others are refused */
} belay_launch_options;

/* Proves the operands against the kernel's signature and puts the kernel into the current stream of their device.  An
 * operand that is nil where it may not be absorbs: nothing runs, and nothing more is said.  Nothing is recorded for
 * backward: belay_function (in <belay/grad.h>) makes an op with a gradient of it.
 *
 * Refused, before anything runs: a dead or foreign handle (life.stale, life.foreign), another dtype, rank or size than
 * the signature's, or fewer rows than items (type.dtype, shape.rank, shape.contract), two operands of which one is
 * written and that share memory, or a written one whose elements do (shape.contract), operands on two devices or on
 * another than `device` (place.device), a signature or an option that makes no sense (conf.value, conf.missing).
 * Where belay_options.place is move, operands that are only read are copied to where the written ones lie, counted and told
 * as for ops (place.moved); written ones never move, and two of them apart are refused.
 * Told when the kernel has run: index.range, kernel.assert, num.cast, and what the views refuse (type.dtype, shape.rank,
 * conf.conflict, conf.value); mem.access for raw accesses where they are caught.  On `sim` one of them is to follow a
 * pointer of the host's that params hold, at a multiple of 8 bytes among the first four that look like one: a kernel with
 * such a word, be it a number or what lies between two fields, is run once before with an inaccessible address in its
 * place, and what it wrote is put back. */
BELAY_API void belay_launch(belay_context *context, const belay_kernel *kernel, const belay_launch_options *options);

#ifdef __cplusplus
}
#endif
#endif
