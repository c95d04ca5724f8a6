/* SPDX-License-Identifier: Apache-2.0 */
/* The LSTM as a function with a gradient: what its call decides and its two passes need. */
#ifndef BL_NN_LSTM_H
#define BL_NN_LSTM_H

#include <belay/grad.h>
#include <belay/nn.h>

#include "launch/launch.h"

enum { BL_LSTM_MAX_LAYERS = 30 };

/* One application.  Inputs stand in the order x, h0, c0, then bias_ih and bias_hh of each layer, then weight_ih and
 * weight_hh of each layer: what may be nil comes within the first 64. */
typedef struct bl_lstm {
    int layers;
    int64_t batch, steps, in, hidden;
    belay_dtype dtype;
    double dropout; /* 0 where it does not act */
    bl_rng_key key[BL_LSTM_MAX_LAYERS];
} bl_lstm;

enum { BL_LSTM_X, BL_LSTM_H0, BL_LSTM_C0, BL_LSTM_BIASES };
static inline int bl_lstm_bias(int layer, int which) { return BL_LSTM_BIASES + 2 * layer + which; }
static inline int bl_lstm_weight(const bl_lstm *lstm, int layer, int which)
{
    return BL_LSTM_BIASES + 2 * lstm->layers + 2 * layer + which;
}

/* Outputs: y [batch, steps, hidden], h_n and c_n [layers, batch, hidden].  `state` is a bl_lstm on the heap. */
extern const belay_function bl_lstm_function;

#endif
