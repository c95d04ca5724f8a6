/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers.  A step is one window: all that was walked back since the step before it.  A step is applied whole or not
 * at all: after a fault in the window, or when a gradient is not finite, nothing changes, neither a weight nor a
 * moment, Adam's t or the schedule's position.
 *
 * Formulas are PyTorch's (torch.optim, version 1.13), moments are kept in the parameter's dtype.  Defaults are what each
 * field says. */
#ifndef BELAY_OPTIM_H
#define BELAY_OPTIM_H

#include <belay/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Belongs to its context: belay_close frees it.  A maker that fails raises a fault and returns a nil optimizer: its
 * steps do nothing, its questions give 0 and false. */
typedef struct belay_optimizer belay_optimizer;
typedef struct belay_module belay_module; /* <belay/nn.h> */

/* How the learning rate goes on from step to step; the position counts applied steps only.  With a warm-up the kind's
 * own positions start after it. */
typedef enum belay_schedule_kind {
    BELAY_SCHEDULE_CONSTANT = 0,
    BELAY_SCHEDULE_STEP = 1,   /* lr gamma^floor(position / period)                            StepLR */
    BELAY_SCHEDULE_COSINE = 2, /* end + (lr - end) (1 + cos(pi position / period)) / 2        CosineAnnealingLR */
    BELAY_SCHEDULE_LINEAR = 3  /* lr + (end - lr) min(position / period, 1)                   LinearLR */
} belay_schedule_kind;

typedef struct belay_schedule {
    belay_schedule_kind kind;
    int64_t period;      /* steps; required by every kind but CONSTANT */
    double gamma;        /* STEP; 0: 0.1 */
    double end;          /* COSINE, LINEAR: rate at the end of the period */
    int64_t warmup;      /* steps over which the rate climbs in a straight line to lr */
    double warmup_start; /* fraction of lr in the first step of the warm-up, in [0, 1] */
} belay_schedule;

typedef struct belay_sgd_options {
    double lr; /* required, as everywhere here */
    double momentum;
    double dampening;
    bool nesterov; /* needs a momentum and no dampening */
    double weight_decay;
    double clip; /* largest global norm of the gradients; 0: no clipping */
    belay_schedule schedule;
} belay_sgd_options;

typedef struct belay_adam_options {
    double lr;
    double beta1, beta2;     /* in [0, 1); 0: 0.9 and 0.999 */
    bool no_beta1, no_beta2; /* it is 0, nothing is carried on: no_beta1 is usual in GANs with a gradient penalty */
    double eps;              /* 0: 1e-8; for none at all 1e-30: a gradient of 0 is then no 0 / 0 */
    /* belay_adam: added to the gradient; belay_adamw: taken from the weight itself.  0: none, for belay_adamw too, where
     * PyTorch's is 0.01 when nothing is said. */
    double weight_decay;
    bool amsgrad;
    double clip; /* largest global norm of the gradients; 0: no clipping */
    belay_schedule schedule;
} belay_adam_options;

/* Over a module's parameters that want a gradient.  Faults: conf.value, conf.conflict, conf.missing (no such
 * parameter), mem.exhausted.
 * Sutskever et al. (2013); Kingma and Ba (2015); Loshchilov and Hutter (2019); AMSGrad: Reddi et al. (2018). */
BELAY_API belay_optimizer *belay_sgd(belay_module *module, const belay_sgd_options *options);
BELAY_API belay_optimizer *belay_adam(belay_module *module, const belay_adam_options *options);
BELAY_API belay_optimizer *belay_adamw(belay_module *module, const belay_adam_options *options);

/* The same over tensors that the caller lists: n leaves of any float dtype, contiguous.  A tensor that is listed twice
 * counts once.  The optimizer keeps their storage alive.  Further faults: type.dtype, shape.contract, life.stale.
 *
 * Of f16 only SGD takes parameters: Adam's squares of gradients below 2e-4 would be 0 there, and its steps without bound
 * (type.dtype).  bf16 has f32's range, but 8 bits: an average over 1,000 steps, as beta2 makes it, rises there and never
 * falls. */
BELAY_API belay_optimizer *belay_sgd_over(belay_context *context, const belay_tensor *parameters, int64_t n,
                                          const belay_sgd_options *options);
BELAY_API belay_optimizer *belay_adam_over(belay_context *context, const belay_tensor *parameters, int64_t n,
                                           const belay_adam_options *options);
BELAY_API belay_optimizer *belay_adamw_over(belay_context *context, const belay_tensor *parameters, int64_t n,
                                            const belay_adam_options *options);

/* Frees it before its context closes; any use of it after that is life.stale, does nothing and gives 0 or false.  Refused
 * (conf.order) inside of its own step and of a belay_train over it. */
BELAY_API void belay_optimizer_free(belay_optimizer *optimizer);

/* Closes the window: one update of every parameter that has a gradient, which is used up.  A parameter without one is
 * left alone and does not age; a step that finds no gradient at all changes no parameter, yet counts as applied and
 * moves the schedule on, as a step and its scheduler do in PyTorch.  But when ops ran under autocast in the window and
 * nothing in the context has a gradient, the backward was forgotten: refused (conf.order, which names both places), and
 * the window is dropped.  Refused after a fault in the window: warning run.window_lost, and all gradients of the
 * context are dropped, those of other optimizers too: a step of theirs that finds none left is refused with it.  Refused
 * when gradients are not finite: warning run.overflow.  Either way the next window starts clean.
 *
 * On an asynchronous device this waits for nothing: whether the step is applied is decided there, and told when the host
 * hears of it.  Only while other leaves have gradients, which a faulted window would take along, the host has to know,
 * and waits. */
BELAY_API void belay_optimizer_step(belay_optimizer *optimizer);

/* Drops the window's gradients and its faults' effect without a step, so that the same window can be computed again; with
 * them what its batches made of running statistics (belay_batch_norm), which would count twice then.  It is no zero_grad:
 * to clear gradients alone, as those that a generator's loss leaves in a discriminator, call belay_module_grads_clear or
 * belay_tensor_grad_clear. */
BELAY_API void belay_optimizer_discard(belay_optimizer *optimizer);

/* Gradients are divided by `divisor` (> 0) from the next step on: the mean over that many micro-batches.  Norm and
 * clipping see the quotient.  1 until it is set.  Fault: conf.value. */
BELAY_API void belay_optimizer_divisor_set(belay_optimizer *optimizer, double divisor);

/* ---- questions: what the last step did.  Each waits for the device. ---- */

/* False, and one more that faulted, after a step that was refused for its order too. */
BELAY_API bool belay_optimizer_is_applied(const belay_optimizer *optimizer);
/* Global norm of the last step's gradients, divided but not clipped; NaN or infinity when it was refused for that, 0
 * when it was refused for its order: then nobody looked. */
BELAY_API double belay_optimizer_norm_get(const belay_optimizer *optimizer);
/* Rate of the last applied step; 0 before the first. */
BELAY_API double belay_optimizer_lr_get(const belay_optimizer *optimizer);
/* Steps applied, refused for a fault, refused for gradients that were not finite. */
BELAY_API int64_t belay_optimizer_n_applied(const belay_optimizer *optimizer);
BELAY_API int64_t belay_optimizer_n_faulted(const belay_optimizer *optimizer);
BELAY_API int64_t belay_optimizer_n_overflowed(const belay_optimizer *optimizer);

/* ---- state, for checkpoints ---- */

/* Everything that a step reads besides parameters and gradients, as named tensors: "momentum_buffer.<parameter>" or
 * "exp_avg.<parameter>", "exp_avg_sq.<parameter>", "max_exp_avg_sq.<parameter>" in the parameter's shape and dtype, "t"
 * f64 [parameters] and "state" f64 [8].  Written back by belay_tensor_write into an optimizer made with the same
 * options over the same parameters, the run goes on bit for bit.  A parameter without a name is called by its number.
 * Name and tensor belong to the optimizer. */
BELAY_API int64_t belay_optimizer_n_state(const belay_optimizer *optimizer);
BELAY_API bool belay_optimizer_state_get(const belay_optimizer *optimizer, int64_t number, const char **name,
                                         belay_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
