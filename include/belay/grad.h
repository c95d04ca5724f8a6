/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients: walking back from a loss, and ops of the user's own. */
#ifndef BELAY_GRAD_H
#define BELAY_GRAD_H

#include <belay/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Walks back from `loss` (one element) and adds to the gradient of every leaf that wants one.  The graph dies with it:
 * a second walk is the fault life.tape, and so is reading what was written since the forward.  Faults name its site. */
BELAY_API void belay_backward(belay_tensor loss);

/* The same from any tensor, with the gradient that arrives there (same shape and dtype). */
BELAY_API void belay_backward_from(belay_tensor tensor, belay_tensor upstream);

/* ---- ops of the user's own ------------------------------------------------------------------------------------------- */

/* One application of a function: what forward leaves for backward. */
typedef struct belay_function_call belay_function_call;

/* forward computes outputs from inputs with any ops (nothing inside is recorded) and may save tensors; backward
 * computes gradients of inputs from gradients of outputs and what was saved.  A gradient left nil means zero.  Both run
 * with the same `state`, which must live until the backward or the scope's end; `free` (may be NULL) is called then. */
typedef struct belay_function {
    const char *name;
    void (*forward)(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                    int n_out);
    void (*backward)(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                     belay_tensor *grad_in, int n_in);
    void (*free)(void *state);
} belay_function;

/* Applies a function: n_out tensors are written to `out`; nil after a fault, or when an input that is not optional is
 * nil (`optional` is a bit mask of inputs that may be nil).  `out` may be the same array as `in`. */
BELAY_API void belay_function_apply(belay_context *context, const belay_function *function, void *state,
                                    const belay_tensor *in, int n_in, uint64_t optional, belay_tensor *out, int n_out);

/* In forward: keeps a tensor for backward; returns its number.  In backward: gives it back. */
BELAY_API int belay_function_save(belay_function_call *call, belay_tensor tensor);
BELAY_API belay_tensor belay_function_saved(const belay_function_call *call, int number);
/* Whether anything will be walked back (forward), and whether input k wants a gradient (both). */
BELAY_API bool belay_function_records(const belay_function_call *call);
BELAY_API bool belay_function_wants(const belay_function_call *call, int k);
BELAY_API belay_context *belay_function_context(const belay_function_call *call);

#ifdef __cplusplus
}
#endif
#endif
