/* SPDX-License-Identifier: Apache-2.0 */
/* What an optimizer is inside, and the commit hooks.
 *
 * Everything that a step writes exists before the step: views, moments, norms.  A step that runs out of memory does so
 * before its first launch, and is refused. */
#ifndef BL_OPTIM_OPTIM_H
#define BL_OPTIM_OPTIM_H

#include <belay/optim.h>

#include "launch/launch.h"

/* When a hook is called. */
typedef enum bl_commit_moment {
    BL_COMMIT_RUN,    /* after the last backward, before the update: it may change gradients and close the gate */
    BL_COMMIT_DROP,   /* instead, where the window ends without a step */
    BL_COMMIT_SETTLE, /* the gradients are about to be used before the step, which comes later */
    BL_COMMIT_SPOIL,  /* behind RUN: the update could not be launched, or not whole; why was told */
    BL_N_COMMIT_MOMENTS
} bl_commit_moment;

/* Called at the end of each window of the context.  The caller's storage, until bl_optim_hook_remove. */
typedef struct bl_commit_hook {
    void (*at[BL_N_COMMIT_MOMENTS])(void *state, belay_optimizer *optimizer); /* NULL: nobody */
    void *state;
    struct bl_commit_hook *next;
} bl_commit_hook;

/* Hooks run in the order in which they were added. */
void bl_optim_hook_add(belay_context *context, bl_commit_hook *hook);
void bl_optim_hook_remove(belay_context *context, bl_commit_hook *hook);

/* A chunk is the elements of a gradient whose squares make one partial sum: the row's items. */
enum { BL_OPTIM_DIVERGED = 4 }; /* so many overflows in a row, after steps were applied, are divergence */
enum { BL_OPTIM_MAX_MOMENTS = 3, BL_OPTIM_STATE = 8, BL_OPTIM_CHUNK = 1024 };

/* Places in the state tensor; written by kernel/optim.h, where they are described. */
enum {
    BL_OPTIM_APPLY,
    BL_OPTIM_RATE,
    BL_OPTIM_FACTOR,
    BL_OPTIM_POSITION,
    BL_OPTIM_NORM,
    BL_OPTIM_APPLIED,
    BL_OPTIM_FAULTED,
    BL_OPTIM_OVERFLOWED
};

typedef struct bl_optim_parameter {
    belay_tensor leaf;                         /* the owner's handle */
    belay_tensor flat;                         /* [elements] */
    belay_tensor moment[BL_OPTIM_MAX_MOMENTS]; /* nil where the rule has none */
    belay_tensor flat_moment[BL_OPTIM_MAX_MOMENTS];
    belay_tensor partial;   /* its part of the sums of squares */
    belay_tensor grad_flat; /* during a step: its gradient, or nil */
} bl_optim_parameter;

/* A rule: the kernel that updates one parameter, and the names of its moments. */
typedef struct bl_optim_rule {
    int op;
    const char *moment[BL_OPTIM_MAX_MOMENTS]; /* in the order of the kernel's operands; NULL: left out */
    bl_params params;
    double lr, clip;
    belay_schedule schedule;
} bl_optim_rule;

typedef struct bl_optim_entry {
    char *name;
    belay_tensor tensor;
} bl_optim_entry;

struct belay_optimizer {
    bl_grave grave;         /* once it was freed */
    belay_context *context; /* NULL: the nil optimizer */
    bool is_freed;
    bl_optim_rule rule;
    bl_params prepare;
    double divisor;
    int64_t n;
    bl_optim_parameter *parameter;
    uint8_t *is_used; /* n, of the step in work */
    belay_tensor used, t, state, partial;
    bl_optim_entry *entry;
    int64_t n_entries;
    int n_uses;             /* calls that work with it and have not ended: it is not freed meanwhile */
    bool has_gradients;     /* those of the window that is told now are still there */
    bool is_passed;         /* others stepped past it while running statistics waited for a step of it */
    uintptr_t unscaled_at;  /* where its gradients were divided by a loss scale; 0: since its last step nowhere */
    uint64_t unscaled_lost; /* how many windows had been lost then: of gradients that went with one it says nothing */
    uint64_t stepped_round; /* of the loss scale that it was stepped by last; 0: none */
    uintptr_t stepped_at;
};

/* life.stale, at that site where no other is known: "an optimizer was used after it had been freed". */
void bl_optim_tell_stale(belay_context *context, const char *what, uintptr_t site);

/* At the beginning of a public call: whether the optimizer may be used by its caller, who is told when it may not. */
static inline bool bl_optim_ask(const belay_optimizer *o, uintptr_t site)
{
    if (o == NULL || !bl_ask_call(o->context, site))
        return false;
    if (BL_UNLIKELY(o->is_freed))
        bl_optim_tell_stale(o->context, "an optimizer", site);
    return !o->is_freed;
}
#define BL_OPTIM_ASK(optimizer) bl_optim_ask((optimizer), (uintptr_t)__builtin_return_address(0))

/* The optimizer that a member of a context is; NULL: it is none. */
belay_optimizer *bl_optim_of(const bl_member *member);

void bl_optim_hold(belay_optimizer *optimizer);
void bl_optim_release(belay_optimizer *optimizer);

/* What to optimize; `name` may be NULL: then each tensor's own, or its number. */
typedef struct bl_optim_list {
    const belay_tensor *parameter;
    const char *const *name;
    int64_t n;
} bl_optim_list;

/* The optimizer of that rule, adopted by the context; NULL after a fault. */
belay_optimizer *bl_optim_new(belay_context *context, const bl_optim_list *list, const bl_optim_rule *rule);

/* A view of a tensor as one axis, owned by the optimizer. */
belay_tensor bl_optim_flat(belay_context *context, belay_tensor tensor);

/* The makers' common part: options are proved, the nil optimizer stands for a failure. */
belay_optimizer *bl_optim_sgd(belay_context *context, const bl_optim_list *list, const belay_sgd_options *options);
belay_optimizer *bl_optim_adam(belay_context *context, const bl_optim_list *list, const belay_adam_options *options,
                               bool is_decoupled);
belay_optimizer *bl_optim_nil(void);

/* The loss scale that a step is made by: its state, whether the gradients are divided by it already, whether it moves; and
 * whether a window before took them along, or would have. */
typedef struct bl_optim_scaling {
    belay_tensor state;
    bool is_unscaled, is_fixed, is_lost;
} bl_optim_scaling;

/* A step that is refused before anything was launched: the window is dropped, and the state says that it faulted. */
void bl_optim_refuse(belay_optimizer *optimizer);

/* Whether the optimizer has no gradients because a faulted window, ended by another optimizer, took them along. */
bool bl_optim_was_lost(const belay_optimizer *optimizer);

/* Whether any leaf of the context has a gradient. */
bool bl_optim_have_gradients(const belay_context *context);

/* belay_optimizer_step, by what belay_optimizer_step (`scaling` NULL) or a loss scale has proved. */
void bl_optim_step(belay_optimizer *optimizer, const bl_optim_scaling *scaling);

/* The gradients of an optimizer are about to be used, before its step. */
void bl_optim_settle(belay_optimizer *optimizer);

/* Bits (f32) of the scales of a context, joined; 0: it has none. */
uint32_t bl_scaler_bits(const belay_context *context);
/* The same by hand, of states that are read without waiting: those of the context, the first `most` of them, and the bits so
 * far joined with a scale's. */
int bl_scaler_states(const belay_context *context, belay_tensor *state, int most);
uint32_t bl_scaler_join(uint32_t bits, double scale);
/* The marks of a gradient that came to a leaf from elsewhere: times the context's loss scale, or as it is. */
bl_grad_scale bl_scaler_mark(const belay_context *context, bool is_scaled);

/* Where a loss scale's state begins and what it says; written by kernel/optim.h, where it is described. */
enum {
    BL_SCALER_SCALE,
    BL_SCALER_GROWTH,
    BL_SCALER_FOUND,
    BL_SCALER_SEEN,
    BL_SCALER_REFUSED,
    BL_SCALER_APPLIED,
    BL_SCALER_BACKOFFS,
    BL_SCALER_LAST_FOUND
};

/* Whether values that a file or a caller has for a tensor of the state can be; else why not: "a scale of nan, outside
 * ...".  Its shape and dtype were proved. */
typedef bool (*bl_optim_check)(const void *bytes, int64_t n_bytes, bl_text *why);
bool bl_scaler_state_check(const void *bytes, int64_t n_bytes, bl_text *why);
/* That of an optimizer's state of this name; NULL where any values can be. */
bl_optim_check bl_optim_check_of(const char *name);
/* A whole number, as far as state counts. */
bool bl_optim_is_count(double value);
#define BL_OPTIM_COUNTS "the counts from 0 to 9007199254740992"

/* A step without a loss scale: false after conf.order, when the optimizer's gradients are scaled, or when ops ran under
 * autocast and nothing was walked back. */
bool bl_scaler_permits(belay_optimizer *optimizer);
/* A window was dropped before its step: what it scaled is gone. */
void bl_scaler_forget(belay_context *context);

/* The buffers that wait for this optimizer's step (tensor/advance.h): finds them.  */
void bl_optim_advance_find(belay_optimizer *optimizer);
/* False when what their kernels need could not be made: the step must be refused. */
bool bl_optim_advance_prepare(belay_optimizer *optimizer);
/* After the decision. */
bool bl_optim_advance_run(belay_optimizer *optimizer);

/* A window that has ended: its faults are history, or a warning says why its step was refused. */
void bl_optim_tell_window(belay_context *context, const bl_window *window, uint32_t outcome);
/* The window at work is dropped before a step: what non-finite tracing met in it. */
void bl_optim_tell_discarded(belay_context *context);

#endif
