/* SPDX-License-Identifier: Apache-2.0 */
/* LSTM, in one direction. */
#include <stdio.h>

#include "golden/golden.h"

static belay_tensor weight_of(golden *g, const char *what, int layer)
{
    char name[64];
    snprintf(name, sizeof name, "%s_l%d", what, layer);
    return golden_input(g, name);
}

static void run_lstm(golden *g)
{
    enum { MOST = 8 };
    belay_lstm_weights weights[MOST] = {{{0}, {0}, {0}, {0}}};
    belay_lstm_options options = {.layers = (int)golden_number(g, "num_layers")};
    if (golden_flag(g, "bidirectional") || options.layers > MOST) {
        golden_skip(g);
        return;
    }
    belay_tensor x = golden_input(g, "x"), h0 = {0}, c0 = {0};
    if (golden_flag(g, "initial_state_given")) {
        h0 = golden_input(g, "h0");
        c0 = golden_input(g, "c0");
    }
    for (int layer = 0; layer < options.layers; layer++)
        weights[layer] = (belay_lstm_weights){.ih = weight_of(g, "weight_ih", layer),
                                              .hh = weight_of(g, "weight_hh", layer),
                                              .bias_ih = weight_of(g, "bias_ih", layer),
                                              .bias_hh = weight_of(g, "bias_hh", layer)};
    belay_lstm_result result = belay_lstm(x, h0, c0, weights, &options);
    golden_output(g, "y", result.output);
    golden_output(g, "h_n", result.h_n);
    golden_output(g, "c_n", result.c_n);
}

const golden_op golden_lstm_ops[] = {
    {"lstm", .run = run_lstm},
    {0},
};
