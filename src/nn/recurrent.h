/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent layers as functions with a gradient.  Layout, driver over steps and flow of gradients are shared; a cell
 * says what one step of one layer is.
 *
 * A unit is one layer in one direction: number layer * directions + direction, PyTorch's order.  Everything inside is
 * time-major, so that one step of all samples is one contiguous part of a buffer; a reverse unit uses the same buffers
 * and walks them from the last step to the first. */
#ifndef BL_NN_RECURRENT_H
#define BL_NN_RECURRENT_H

#include <belay/grad.h>
#include <belay/nn.h>

#include "launch/launch.h"

/* All inputs but weights must lie within the first 64 of a function, which may be nil. */
enum { BL_RECURRENT_MAX_UNITS = 30, BL_RECURRENT_MAX_STATES = 2 };

typedef struct bl_recurrent_cell bl_recurrent_cell;

/* One application.  Inputs stand in the order x, first states (h0, c0), then bias_ih and bias_hh of each unit, then
 * weight_ih and weight_hh of each unit.  Outputs: y [batch, steps, directions hidden], then the last states
 * [units, batch, hidden]. */
typedef struct bl_recurrent {
    const bl_recurrent_cell *cell;
    int layers, directions;
    int64_t batch, steps, in, hidden;
    belay_dtype dtype;
    double dropout;       /* 0 where it does not act */
    int64_t sample_first; /* of the batch's rows in the global batch */
    bl_rng_key key[BL_RECURRENT_MAX_UNITS];
} bl_recurrent;

enum { BL_RECURRENT_X, BL_RECURRENT_STATES };

/* A pass at work. */
typedef struct bl_pass {
    belay_context *context;
    const bl_recurrent *all;
    bool is_backward;
    belay_tensor at; /* what is made of nothing lies where this does */
} bl_pass;

/* What a unit works on; [steps, batch, ...] where nothing else is said. */
typedef struct bl_unit {
    bool is_reverse;
    belay_tensor x;       /* [1, steps batch, in] */
    belay_tensor gates;   /* of n gates: first W_ih x, then what the cell makes of it, then its sums' gradients */
    belay_tensor other;   /* the cell's own: c of an LSTM, the sums of h of a GRU */
    belay_tensor h;       /* results */
    belay_tensor first;   /* [batch, hidden]: the state of the cell before the first step */
    belay_tensor first_h; /* [batch, hidden]; nil for zeros */
    belay_tensor ih, hh;  /* [1, n gates hidden, ...] */
    belay_tensor bias[2]; /* as the cell wants them */
} bl_unit;

/* What goes from step to step and from layer to layer on the way back. */
typedef struct bl_flow {
    belay_tensor above; /* [steps, batch, hidden] from the layer above or y; nil: nothing but the last step's */
    belay_tensor h;     /* [1, batch, hidden] at the step in work, where the cell keeps it apart from `above` */
    belay_tensor c;     /* [batch, hidden] at the step in work: LSTM */
} bl_flow;

/* What one kind of cell does.  `before` is the step whose state a step starts from, -1 for the first one.  All false
 * after a fault. */
struct bl_recurrent_cell {
    const char *name;
    int n_gates, n_states;
    bool has_one_sum; /* the sums of x and of h have one gradient, else that of h's ends in `other` */
    bool (*open)(const bl_pass *p, bl_unit *u, const belay_tensor *biases, belay_tensor second);
    bool (*step)(const bl_pass *p, const bl_unit *u, int64_t t, int64_t before);
    bool (*begin)(const bl_pass *p, const bl_unit *u, int number, const belay_tensor *grad_out, bl_flow *f);
    bool (*back)(const bl_pass *p, const bl_unit *u, const bl_flow *f, int64_t t, int64_t before, belay_tensor first);
    bool (*end)(const bl_pass *p, int number, const bl_flow *f, const belay_tensor *g_states);
};

extern const bl_recurrent_cell bl_lstm_cell, bl_gru_cell;

static inline int bl_recurrent_units(const bl_recurrent *r) { return r->layers * r->directions; }
static inline int bl_recurrent_bias(const bl_recurrent *r, int unit, int which)
{
    return BL_RECURRENT_STATES + r->cell->n_states + 2 * unit + which;
}
static inline int bl_recurrent_weight(const bl_recurrent *r, int unit, int which)
{
    return bl_recurrent_bias(r, bl_recurrent_units(r), 0) + 2 * unit + which;
}
/* Features of a layer's input. */
static inline int64_t bl_recurrent_width(const bl_recurrent *r, int layer)
{
    return layer == 0 ? r->in : r->directions * r->hidden;
}

/* The functions' passes; `state` is a bl_recurrent on the heap. */
void bl_recurrent_forward(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                          int n_out);
void bl_recurrent_backward(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                           belay_tensor *grad_in, int n_in);

/* What is kept of a unit for backward. */
bool bl_unit_save(belay_function_call *call, int number, const bl_unit *u);
bl_unit bl_unit_saved(const belay_function_call *call, const bl_recurrent *r, int number);

/* ---- steps of a unit in its own order -------------------------------------------------------------------------------- */

static inline int64_t bl_unit_step(const bl_pass *p, const bl_unit *u, int64_t number)
{
    return u->is_reverse ? p->all->steps - 1 - number : number;
}
static inline int64_t bl_unit_last(const bl_pass *p, const bl_unit *u) { return bl_unit_step(p, u, p->all->steps - 1); }
/* The step before step t; -1 where t is the first. */
static inline int64_t bl_unit_before(const bl_pass *p, const bl_unit *u, int64_t t)
{
    int64_t before = u->is_reverse ? t + 1 : t - 1;
    return before < p->all->steps ? before : -1;
}

/* ---- parts and launches, nil after a fault or of nil ------------------------------------------------------------------ */

static inline belay_shape bl_pass_state(const bl_pass *p) { return belay_shape2(p->all->batch, p->all->hidden); }
static inline belay_shape bl_pass_state_matrix(const bl_pass *p)
{
    return belay_shape3(1, p->all->batch, p->all->hidden);
}
static inline belay_shape bl_pass_gates(const bl_pass *p)
{
    return belay_shape3(p->all->batch, p->all->cell->n_gates, p->all->hidden);
}
static inline belay_shape bl_pass_gates_matrix(const bl_pass *p)
{
    return belay_shape3(1, p->all->batch, p->all->cell->n_gates * p->all->hidden);
}

/* Part number `number` of a contiguous buffer, seen in that shape. */
belay_tensor bl_pass_part(const bl_pass *p, belay_tensor buffer, int64_t number, belay_shape shape);
/* One matrix [1, steps batch, width] of some steps from `first` on, of a time-major buffer. */
belay_tensor bl_pass_steps(const bl_pass *p, belay_tensor buffer, int64_t first, int64_t steps, int64_t width);
/* Uninitialised, where the pass works. */
belay_tensor bl_pass_new(const bl_pass *p, belay_shape shape);
belay_tensor bl_pass_zeros(const bl_pass *p, belay_shape shape);
/* The state before the first step: unit `number` of a first state. */
belay_tensor bl_pass_given(const bl_pass *p, belay_tensor states, int number);
/* A matrix as the product's kernel takes it. */
belay_tensor bl_pass_matrix(const bl_pass *p, belay_tensor tensor);
void bl_pass_drop(const bl_pass *p, const belay_tensor *views, int n);

/* a b into `into`, or, where that is nil, into a new tensor.  The factors may be stored transposed. */
belay_tensor bl_pass_product(const bl_pass *p, belay_tensor a, bool a_transposed, belay_tensor b, bool b_transposed,
                             belay_tensor into, bool add);
bool bl_pass_cell(const bl_pass *p, int op, const belay_tensor *operand, int n);
/* Dropout between layers, and its gradient: the same numbers are drawn again. */
belay_tensor bl_pass_dropout(const bl_pass *p, int layer, belay_tensor x);
/* y [batch, steps, width] as a view of a time-major tensor. */
belay_tensor bl_pass_batch_first(const bl_pass *p, belay_tensor tensor);

/* ---- calls ----------------------------------------------------------------------------------------------------------- */

/* Proves everything, then runs: out[0] is y, the states follow; all nil after a fault. */
void bl_recurrent_call(const bl_recurrent_cell *cell, const belay_function *function, belay_tensor x,
                       const belay_tensor *states, const belay_recurrent_weights *weights,
                       const belay_recurrent_options *options, belay_tensor *out);

/* ---- modules --------------------------------------------------------------------------------------------------------- */

/* The struct of both kinds of module. */
typedef struct bl_recurrent_module {
    belay_recurrent_options options;
    belay_recurrent_weights weights[BL_RECURRENT_MAX_UNITS];
} bl_recurrent_module;

belay_module *bl_recurrent_module_new(belay_context *context, const bl_recurrent_cell *cell,
                                      const belay_module_kind *kind, const belay_recurrent_module_options *options);

/* What a run of the module needs, within its layer; NULL after a fault.  Then bl_module_end. */
const bl_recurrent_module *bl_recurrent_module_begin(belay_module *module, const belay_module_kind *kind,
                                                     belay_tensor x, size_t *length);
/* The options of a run now: dropout acts in training. */
belay_recurrent_options bl_recurrent_module_options(const belay_module *module);

#endif
