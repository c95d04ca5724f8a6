/* SPDX-License-Identifier: Apache-2.0 */
/* Mixed precision: autocast, which runs ops in 16 bits where that is good enough, and the loss scale that keeps small
 * gradients representable in f16.  Parameters, their gradients and the optimizer's state stay f32.
 *
 *   belay_autocast cast = belay_autocast_open(context, BELAY_F16);
 *   belay_tensor loss = belay_cross_entropy(belay_forward(model, x), labels, NULL);
 *   belay_autocast_close(cast);
 *   belay_backward(belay_grad_scaler_scale(scaler, loss));
 *   belay_grad_scaler_step(scaler, adam);
 *   belay_grad_scaler_update(scaler);
 *
 * Micikevicius et al., "Mixed Precision Training" (2018).  Rules and figures are PyTorch's (torch.autocast,
 * torch.cuda.amp.GradScaler, version 1.13). */
#ifndef BELAY_AMP_H
#define BELAY_AMP_H

#include <belay/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- autocast -------------------------------------------------------------------------------------------------------- */

/* A region of a context in which each op casts its f32 and 16-bit inputs as its row in docs/ops.md says:
 *
 *   lower  to the region's dtype: products
 *   f32    to f32: sums, exponentials, norms, losses
 *   same   to the widest among them, where they differ
 *
 * f64 is never cast.  Gradients go back through the casts, so that a leaf's gradient has the leaf's dtype.  What a
 * parameter was cast to is kept until the outermost region closes and used again while the parameter's values are the
 * same; a step of an optimizer or belay_tensor_write makes it stale.  Of memory that another library shares by DLPack, and
 * may write unseen, no cast is kept.  A walk back casts nothing by itself; the backward
 * of a user's function runs under what its forward ran under.
 *
 * A small handle, as belay_scope is. */
typedef struct belay_autocast {
    uint32_t context; /* which context, 0 for nil */
    uint32_t depth;
    uint32_t serial;
} belay_autocast;

/* `dtype`: BELAY_BF16 or BELAY_F16; BELAY_F32 switches autocast off inside.  Regions close in the reverse order, and what
 * was before comes back.  Faults: conf.value (another dtype), life.scope (more than 32 are open, closed twice or in
 * another order). */
BELAY_API belay_autocast belay_autocast_open(belay_context *context, belay_dtype dtype);
BELAY_API void belay_autocast_close(belay_autocast autocast);
/* The dtype in force; BELAY_F32 while autocast is off. */
BELAY_API belay_dtype belay_autocast_get(const belay_context *context);

/* ---- the loss scale -------------------------------------------------------------------------------------------------- */

/* Belongs to its context: belay_close frees it.  A maker that fails raises a fault and returns a nil scaler, whose calls
 * do nothing and whose questions give 0. */
typedef struct belay_grad_scaler belay_grad_scaler;

/* Zero means what stands in brackets. */
typedef struct belay_grad_scaler_options {
    double init_scale;       /* (65536) a positive f32 */
    double growth_factor;    /* (2) above 1 */
    double backoff_factor;   /* (0.5) in (0, 1) */
    int64_t growth_interval; /* (2000) steps in a row without an overflow until the scale grows */
    bool is_fixed;           /* the scale stays what it is; overflowed steps are refused all the same */
} belay_grad_scaler_options;

/* The scale lies on the context's current device, where the optimizers that use it must lie too.  Faults: conf.value,
 * mem.exhausted. */
BELAY_API belay_grad_scaler *belay_grad_scaler_new(belay_context *context, const belay_grad_scaler_options *options);
/* Gradients that it has multiplied stay so: no step takes them after it (conf.order).  Any use of it after that is
 * life.stale, does nothing and gives 0, false or nil.  Refused (conf.order) inside of a step by it. */
BELAY_API void belay_grad_scaler_free(belay_grad_scaler *scaler);

/* A window goes scale, backward, unscale if wanted, step, update; with several optimizers an unscale and a step for each
 * of them, and one update.  Their losses are scaled and walked back all before the steps, or each before its own: the
 * scale is the same until the update.  One optimizer is stepped once between two updates.  A call out of this order is conf.order, which names both places, and its window is lost.  A
 * window in which a fault came moves neither the scale nor its count: with several optimizers the steps of all
 * that had gradients then are refused.
 *
 * What a gradient was multiplied by is kept with it.  A step takes gradients that are all of its own scale, as it is since
 * the last update: those of a loss that was not scaled, scaled twice or by another scale, before an update or before the
 * state was written are refused (conf.order).  A parameter that two optimizers share is unscaled once, whichever
 * asks; its gradient is used up by the step that comes first.
 *
 * None of these calls waits for the device, with two exceptions.  A step while leaves that are not its optimizer's have
 * gradients: they would go with a faulted window, so that the host has to know.  The first call after the state was
 * written: what was written is proved. */

/* loss times the scale, in f32 where the loss is 16-bit; recorded. */
BELAY_API belay_tensor belay_grad_scaler_scale(belay_grad_scaler *scaler, belay_tensor loss);

/* Divides the gradients that the optimizer has by the scale, where they lie, for those who look at them before the step.
 * The step does it by itself otherwise, before it clips. */
BELAY_API void belay_grad_scaler_unscale(belay_grad_scaler *scaler, belay_optimizer *optimizer);

/* belay_optimizer_step with gradients divided by the scale.  Where one of them is not finite the step is refused, on the
 * device (run.overflow): weights and optimizer keep their bits. */
BELAY_API void belay_grad_scaler_step(belay_grad_scaler *scaler, belay_optimizer *optimizer);

/* After the steps of a window: an overflow multiplies the scale by the backoff factor; without one for growth_interval
 * windows in a row it is multiplied by the growth factor, unless that is no finite f32.  Nothing stops it from
 * reaching 0, where no step is applied again: the reports call it divergence long before. */
BELAY_API void belay_grad_scaler_update(belay_grad_scaler *scaler);

/* ---- questions.  Each waits for the device. ---- */

BELAY_API double belay_grad_scaler_get(const belay_grad_scaler *scaler);
/* Windows in a row without an overflow since the scale last moved. */
BELAY_API int64_t belay_grad_scaler_growth_get(const belay_grad_scaler *scaler);
/* Whether the last update heard of an overflow, and how many did. */
BELAY_API bool belay_grad_scaler_found_inf(const belay_grad_scaler *scaler);
BELAY_API int64_t belay_grad_scaler_n_backoffs(const belay_grad_scaler *scaler);

/* Everything that the next window reads, "state" f64 [8], for checkpoints: written back by belay_tensor_write into a
 * scaler made with the same options, the run goes on bit for bit.  Values that no scale can have are conf.value at the next
 * call.  Belongs to the scaler. */
BELAY_API belay_tensor belay_grad_scaler_state(const belay_grad_scaler *scaler);

#ifdef __cplusplus
}
#endif
#endif
