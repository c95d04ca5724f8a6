/* SPDX-License-Identifier: Apache-2.0 */
/* LSTM and GRU, in one direction and in both. */
#include <stdio.h>

#include "golden/golden.h"

enum { MOST = 8 };

static belay_tensor weight_of(golden *g, const char *what, int layer, bool is_reverse)
{
    char name[64];
    snprintf(name, sizeof name, "%s_l%d%s", what, layer, is_reverse ? "_reverse" : "");
    return golden_input(g, name);
}

/* False where there are more layers than the case has room for. */
static bool read_weights(golden *g, belay_recurrent_options *options, belay_recurrent_weights *weights)
{
    *options = (belay_recurrent_options){.layers = (int)golden_number(g, "num_layers"),
                                         .bidirectional = golden_flag(g, "bidirectional")};
    int directions = options->bidirectional ? 2 : 1;
    if (options->layers * directions > MOST) {
        golden_skip(g);
        return false;
    }
    for (int unit = 0; unit < options->layers * directions; unit++) {
        int layer = unit / directions;
        bool is_reverse = unit % directions == 1;
        weights[unit] = (belay_recurrent_weights){.ih = weight_of(g, "weight_ih", layer, is_reverse),
                                                  .hh = weight_of(g, "weight_hh", layer, is_reverse),
                                                  .bias_ih = weight_of(g, "bias_ih", layer, is_reverse),
                                                  .bias_hh = weight_of(g, "bias_hh", layer, is_reverse)};
    }
    return true;
}

static belay_tensor state_of(golden *g, const char *name)
{
    return golden_flag(g, "initial_state_given") ? golden_input(g, name) : (belay_tensor){0};
}

static void run_lstm(golden *g)
{
    belay_recurrent_weights weights[MOST];
    belay_recurrent_options options;
    if (!read_weights(g, &options, weights))
        return;
    belay_tensor x = golden_input(g, "x"), h0 = state_of(g, "h0"), c0 = state_of(g, "c0");
    belay_lstm_result result = belay_lstm(x, h0, c0, weights, &options);
    golden_output(g, "y", result.output);
    golden_output(g, "h_n", result.h_n);
    golden_output(g, "c_n", result.c_n);
}

static void run_gru(golden *g)
{
    belay_recurrent_weights weights[MOST];
    belay_recurrent_options options;
    if (!read_weights(g, &options, weights))
        return;
    belay_tensor x = golden_input(g, "x"), h0 = state_of(g, "h0");
    belay_gru_result result = belay_gru(x, h0, weights, &options);
    golden_output(g, "y", result.output);
    golden_output(g, "h_n", result.h_n);
}

const golden_op golden_lstm_ops[] = {
    {"lstm", .run = run_lstm},
    {"gru", .run = run_gru},
    {0},
};
