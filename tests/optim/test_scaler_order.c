/* SPDX-License-Identifier: Apache-2.0 */
/* The order of calls around a loss scale, with several optimizers, shared parameters and several scales: a script is
 * either right, to the bit, or refused by name with both places.
 *
 * A script is a list of calls.  Three leaves a, b and s hold 8; optimizer o has a and s, p has b and s, both are plain
 * SGD at rate 1; scales 1 and 2 begin with 8 and 4.  A step by the right gradient takes 1 off a leaf.  Reports call the
 * n-th call of the script "call n", counted from 1. */
#include "support/told.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <belay/amp.h>
#include <belay/op.h>
#include <belay/optim.h>

enum { LEAVES = 3 };

typedef struct stage {
    belay_context *context;
    belay_tensor leaf[LEAVES];
    belay_optimizer *o, *p;
    belay_grad_scaler *scale[2];
    belay_tensor loss, kept;
} stage;

/* ---- the calls ------------------------------------------------------------------------------------------------------- */

/* A loss whose gradient is 1 for each of these leaves. */
static belay_tensor loss_of(const stage *t, const char *leaves)
{
    belay_tensor loss = {0};
    for (; *leaves != '\0'; leaves++) {
        belay_tensor leaf = t->leaf[*leaves == 's' ? 2 : *leaves - 'a'], sum = belay_sum(leaf, NULL);
        loss = belay_tensor_is_nil(loss) ? sum : belay_add(loss, sum);
    }
    return loss;
}

/* A state with that scale and no history. */
static void write_scale(const belay_grad_scaler *scale, double value)
{
    const double state[8] = {value};
    assert_int_equal(belay_tensor_write(belay_grad_scaler_state(scale), state, sizeof state), BELAY_OK);
}

static void fault(const stage *t)
{
    belay_add(belay_zeros(t->context, BELAY_F32, belay_shape1(2)), belay_zeros(t->context, BELAY_F32, belay_shape1(3)));
    assert_non_null(strstr(told(), "(shape.contract)"));
}

/* One word of a script: a verb, the number of a scale, and behind a colon what it is done to. */
static void act(stage *t, const char *word)
{
    const char *rest = strchr(word, ':');
    size_t n = strcspn(word, "12:");
    belay_grad_scaler **scale = &t->scale[word[n] == '2'];
    belay_optimizer *optimizer = rest == NULL || rest[1] == '0' ? NULL : rest[1] == 'o' ? t->o : t->p;
    rest = rest != NULL ? rest + 1 : "";
    if (strncmp(word, "loss", n) == 0) /* plain */
        t->loss = loss_of(t, rest);
    else if (strncmp(word, "plus", n) == 0) /* a plain one is added */
        t->loss = belay_add(t->loss, loss_of(t, rest));
    else if (strncmp(word, "scale", n) == 0) /* of these leaves, or what the loss is so far */
        t->loss = belay_grad_scaler_scale(*scale, rest[0] != '\0' ? loss_of(t, rest) : t->loss);
    else if (strncmp(word, "keep", n) == 0)
        t->kept = t->loss;
    else if (strncmp(word, "back", n) == 0)
        belay_backward(t->loss);
    else if (strncmp(word, "late", n) == 0) /* what was kept */
        belay_backward(t->kept);
    else if (strncmp(word, "unscale", n) == 0)
        belay_grad_scaler_unscale(*scale, optimizer);
    else if (strncmp(word, "step", n) == 0 && word[n] == ':')
        belay_optimizer_step(optimizer);
    else if (strncmp(word, "step", n) == 0)
        belay_grad_scaler_step(*scale, optimizer);
    else if (strncmp(word, "update", n) == 0)
        belay_grad_scaler_update(*scale);
    else if (strncmp(word, "discard", n) == 0)
        belay_optimizer_discard(optimizer);
    else if (strncmp(word, "free", n) == 0)
        belay_grad_scaler_free(*scale), *scale = NULL;
    else if (strncmp(word, "write", n) == 0)
        write_scale(*scale, strtod(rest, NULL));
    else if (strncmp(word, "fault", n) == 0)
        fault(t);
    else
        fail_msg("no such call: %s", word);
}

/* The words of a script, each under its own label; what the n-th told is kept from the n-th on when `from` is n. */
static void play(stage *t, const char *script, int from)
{
    char words[512], label[32], *rest = NULL;
    int n = 0;
    snprintf(words, sizeof words, "%s", script);
    for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        snprintf(label, sizeof label, "call %d", ++n);
        if (n == from)
            told_clear();
        belay_site_push(t->context, label);
        act(t, word);
        belay_site_pop(t->context);
    }
}

static stage open_stage(const char *device)
{
    const float eight = 8;
    stage t = {.context = belay_open(&(belay_options){.device = device, .log = told_remember, .no_journal = true})};
    told_clear();
    for (int i = 0; i < LEAVES; i++)
        t.leaf[i] = told_leaf(t.context, belay_shape1(1), &eight);
    const belay_tensor of_o[] = {t.leaf[0], t.leaf[2]}, of_p[] = {t.leaf[1], t.leaf[2]};
    t.o = belay_sgd_over(t.context, of_o, 2, &(belay_sgd_options){.lr = 1});
    t.p = belay_sgd_over(t.context, of_p, 2, &(belay_sgd_options){.lr = 1});
    t.scale[0] = belay_grad_scaler_new(t.context, &(belay_grad_scaler_options){.init_scale = 8});
    t.scale[1] = belay_grad_scaler_new(t.context, &(belay_grad_scaler_options){.init_scale = 4});
    return t;
}

/* ---- what is right --------------------------------------------------------------------------------------------------- */

/* Scripts that say nothing, or nothing of an order where they have a fault, and where a, b and s end. */
typedef struct good {
    const char *name, *script;
    float leaf[LEAVES];
    double scale; /* 1 */
} good;

static const good goods[] = {
    {"two_optimizers_that_are_both_unscaled_first_are_divided_once",
     "scale1:ab back unscale1:o unscale1:p step1:o step1:p update1",
     {7, 7, 8},
     8},
    {"one_optimizer_is_unscaled_and_the_other_is_not",
     "scale1:ab back unscale1:p step1:o step1:p update1",
     {7, 7, 8},
     8},
    {"a_shared_parameter_is_divided_once_and_goes_with_the_first_step",
     "scale1:abs back unscale1:o unscale1:p step1:o step1:p update1",
     {7, 7, 7},
     8},
    {"a_shared_parameter_that_the_other_unscaled_is_not_divided_by_the_step",
     "scale1:abs back unscale1:o step1:p step1:o update1",
     {7, 7, 7},
     8},
    {"a_plain_step_of_another_comes_between_unscale_and_step",
     "scale1:a back unscale1:o loss:b back step:p step1:o update1",
     {7, 7, 8},
     8},
    {"a_plain_step_comes_between_a_scaled_loss_and_its_step",
     "scale1:a back loss:b back step:p unscale1:o step1:o update1",
     {7, 7, 8},
     8},
    {"two_scales_serve_an_optimizer_each",
     "scale1:a back scale2:b back unscale2:p unscale1:o step1:o step2:p update1 update2",
     {7, 7, 8},
     8},
    {"a_leaf_that_came_after_the_unscale_is_divided_by_the_step",
     "scale1:s keep scale1:a back unscale1:o late step1:o update1",
     {7, 8, 7},
     8},
    {"losses_of_a_window_add_up", "scale1:a back scale1:a back step1:o update1", {6, 8, 8}, 8},
    {"a_discarded_window_is_unscaled_again",
     "scale1:a back unscale1:o discard:o scale1:a back unscale1:o step1:o update1",
     {7, 8, 8},
     8},
    {"a_window_may_step_after_its_gradients_were_dropped_by_another_window",
     "scale1:a back step1:o update1 scale1:b back step1:p update1",
     {7, 7, 8},
     8},
    {"a_shared_parameter_is_unscaled_by_each_optimizer_in_its_turn",
     "scale1:s back unscale1:o step1:o update1 scale1:s back unscale1:p unscale1:o step1:o update1",
     {8, 8, 6},
     8},
    {"what_was_unscaled_and_lost_with_anothers_window_is_unscaled_again",
     "scale1:s back unscale1:p fault step1:o update1 scale1:s back unscale1:o unscale1:p step1:p update1",
     {8, 8, 7},
     8},
    {"a_plain_loss_may_follow_a_window_that_was_lost",
     "scale1:ab back fault step1:o loss:b back step:p update1",
     {8, 7, 8},
     8},
    {"a_scale_of_two_is_freed_while_the_other_works", "free2 scale1:a back step1:o update1", {7, 8, 8}, 8},
    {"each_optimizer_of_an_update_steps_behind_its_own_backward",
     "scale1:a back step1:o scale1:b back step1:p update1 scale1:a back unscale1:o step1:o scale1:b back step1:p "
     "update1",
     {6, 6, 8},
     8},
    {"a_later_optimizer_of_an_update_steps_though_a_fault_took_the_one_before",
     "scale1:a back fault step1:o scale1:b back step1:p update1",
     {8, 7, 8},
     8},
    {"what_anothers_backward_left_is_discarded_before_the_update",
     "scale1:a back step1:o scale1:ab back step1:p discard:o update1 scale1:a back step1:o update1",
     {6, 7, 8},
     8},
    {"a_state_is_written_between_windows",
     "scale1:a back step1:o update1 write1:16 scale1:a back step1:o update1",
     {6, 8, 8},
     16},
    {"the_nil_optimizer_steps_for_nothing_and_its_update_is_quiet", "scale1:a back step1:0 update1", {8, 8, 8}, 8},
    {"an_optimizer_beside_the_nil_one_is_stepped", "scale1:a back step1:0 step1:o update1", {7, 8, 8}, 8},
};

static void expect_end(const stage *t, const float leaf[LEAVES], double scale)
{
    for (int i = 0; i < LEAVES; i++) {
        float now;
        told_read(t->leaf[i], &now, 1);
        if (now != leaf[i])
            fail_msg("leaf %d is %g, not %g", i, (double)now, (double)leaf[i]);
    }
    if (t->scale[0] != NULL)
        assert_true(belay_grad_scaler_get(t->scale[0]) == scale);
}

static void is_right(void **state)
{
    static const char *const devices[] = {"cpu", "sim:0"};
    const good *g = *state;
    for (int d = 0; d < 2; d++) {
        stage t = open_stage(devices[d]);
        play(&t, g->script, 0);
        expect_end(&t, g->leaf, g->scale);
        if (strstr(g->script, "fault") == NULL)
            told_close(t.context);
        else
            belay_close(t.context);
        assert_null(strstr(told(), "(conf.order)"));
    }
}

/* ---- what is refused ------------------------------------------------------------------------------------------------- */

/* One paragraph, told by call `at`, and the call that it names beside; nothing of the window is applied. */
typedef struct bad {
    const char *name, *script;
    const char *what, *earlier, *advice;
    int at, before;
    int batch, step;    /* when */
    const char *lost;   /* paragraphs behind it; NULL: none */
    float leaf[LEAVES]; /* in the end */
} bad;

#define LOST(step, call, batch)                                                                                        \
    "belay: step " #step " was not applied: conf.order in its window (run.window_lost)\n"                              \
    "    called at: call " #call "\n"                                                                                  \
    "    when: epoch 0, batch " #batch " (micro-batch " #batch " of its window), step " #step ", rank 0\n"             \
    "    try: See the fault named before.\n"

static const bad bads[] = {
    {"a_second_step_without_an_update", "scale1:a back step1:o step1:o update1",
     "belay_grad_scaler_step twice without an update", "the step before was made",
     "Call belay_grad_scaler_update once after the steps of a window.", .at = 4, .before = 3, .batch = 1, .step = 1,
     .leaf = {7, 8, 8}},
    {"a_second_unscale", "scale1:a back unscale1:o unscale1:o", "belay_grad_scaler_unscale twice in a window",
     "the gradients were unscaled", "Unscale the gradients of an optimizer once.", .at = 4, .before = 3, .batch = 1,
     .leaf = {8, 8, 8}},
    {"a_second_unscale_behind_another_optimizers_step", "scale1:ab back unscale1:o step1:p unscale1:o",
     "belay_grad_scaler_unscale twice in a window", "the gradients were unscaled",
     "Unscale the gradients of an optimizer once.", .at = 5, .before = 3, .batch = 1, .step = 1, .leaf = {8, 7, 8}},
    {"an_unscale_after_the_step", "scale1:a back step1:o unscale1:o", "belay_grad_scaler_unscale after the step",
     "the step was made", "Unscale before belay_grad_scaler_step.", .at = 4, .before = 3, .batch = 1, .step = 1,
     .leaf = {7, 8, 8}},
    {"a_step_without_a_backward", "scale1:a step1:o update1", "belay_grad_scaler_step without a backward",
     "the loss was scaled", "Call belay_backward on the scaled loss first.", .at = 2, .before = 1, .leaf = {8, 8, 8}},
    {"an_unscale_without_a_backward", "scale1:a unscale1:o", "belay_grad_scaler_unscale without a backward",
     "the loss was scaled", "Call belay_backward on the scaled loss first.", .at = 2, .before = 1, .leaf = {8, 8, 8}},
    {"a_step_before_anything_was_scaled", "scale1:a back step1:o update1 step1:o update1",
     "belay_grad_scaler_step before a loss was scaled", "the scale was updated last",
     "Scale the loss by belay_grad_scaler_scale and walk it back first.", .at = 5, .before = 4, .batch = 1, .step = 1,
     .leaf = {7, 8, 8}},
    {"a_step_on_parameters_whose_gradients_a_step_before_used_up", "scale1:s back step1:o step1:p update1",
     "belay_grad_scaler_step on parameters without a gradient", "a step before, which uses gradients up, was made",
     "Walk back a loss of theirs; what two optimizers share goes with the first step.", .at = 4, .before = 3,
     .batch = 1, .step = 1, .leaf = {8, 8, 7}},
    {"a_step_on_the_gradients_of_an_unscaled_loss", "loss:a back step1:o update1",
     "belay_grad_scaler_step on gradients of a loss that was not scaled", "that loss was walked back",
     "Walk back what belay_grad_scaler_scale gives.", .at = 3, .before = 2, .batch = 1, .leaf = {8, 8, 8}},
    {"a_step_on_a_scaled_and_a_plain_loss_of_one_leaf", "scale1:a plus:a back step1:o update1",
     "belay_grad_scaler_step on gradients of a loss that was not scaled", "that loss was walked back",
     "Walk back what belay_grad_scaler_scale gives.", .at = 4, .before = 3, .batch = 1, .leaf = {8, 8, 8}},
    {"a_step_on_a_scaled_and_a_plain_loss_of_two_leaves", "scale1:a plus:s back step1:o update1",
     "belay_grad_scaler_step on gradients of a loss that was not scaled", "that loss was walked back",
     "Walk back what belay_grad_scaler_scale gives.", .at = 4, .before = 3, .batch = 1, .leaf = {8, 8, 8}},
    {"an_unscale_of_a_scaled_and_a_plain_loss", "scale1:a back loss:s back unscale1:o",
     "belay_grad_scaler_unscale on gradients of a loss that was not scaled", "that loss was walked back",
     "Walk back what belay_grad_scaler_scale gives.", .at = 5, .before = 4, .batch = 2, .leaf = {8, 8, 8}},
    {"a_plain_step_on_scaled_gradients", "scale1:a back step:o",
     "belay_optimizer_step on gradients that a loss scale has multiplied", "the loss was scaled",
     "Call belay_grad_scaler_step and belay_grad_scaler_update in its place.", .at = 3, .before = 1, .batch = 1,
     .leaf = {8, 8, 8}},
    {"a_plain_step_on_unscaled_gradients", "scale1:a back unscale1:o step:o",
     "belay_optimizer_step on gradients that a loss scale has multiplied", "the gradients were unscaled",
     "Call belay_grad_scaler_step and belay_grad_scaler_update in its place.", .at = 4, .before = 3, .batch = 1,
     .leaf = {8, 8, 8}},
    {"a_plain_step_after_the_scale_was_freed", "scale1:a back free1 step:o",
     "belay_optimizer_step on gradients that a loss scale has multiplied", "the loss was scaled",
     "Call belay_grad_scaler_step and belay_grad_scaler_update in its place.", .at = 4, .before = 1, .batch = 1,
     .leaf = {8, 8, 8}},
    {"a_plain_step_after_the_scale_was_freed_before_the_backward", "scale1:a free1 back step:o",
     "belay_optimizer_step on gradients that a loss scale has multiplied", "the loss was scaled",
     "Call belay_grad_scaler_step and belay_grad_scaler_update in its place.", .at = 4, .before = 1, .batch = 1,
     .leaf = {8, 8, 8}},
    {"a_step_by_another_scale", "scale1:a back step2:o update2",
     "belay_grad_scaler_step on gradients that another loss scale has multiplied", "the loss was scaled",
     "Step by the loss scale that the loss was scaled by.", .at = 3, .before = 1, .batch = 1, .leaf = {8, 8, 8}},
    {"a_step_by_another_scale_after_the_first_was_freed", "scale1:a back free1 step2:o update2",
     "belay_grad_scaler_step on gradients that another loss scale has multiplied", "the loss was scaled",
     "Step by the loss scale that the loss was scaled by.", .at = 4, .before = 1, .batch = 1, .leaf = {8, 8, 8}},
    {"a_step_by_another_scale_than_unscaled", "scale1:a back unscale1:o step2:o update2",
     "belay_grad_scaler_step on gradients that another loss scale has multiplied", "the gradients were unscaled",
     "Step by the loss scale that the loss was scaled by.", .at = 4, .before = 3, .batch = 1, .leaf = {8, 8, 8}},
    {"losses_of_two_scales_in_one_leaf", "scale1:a back scale2:a back step1:o update1",
     "belay_grad_scaler_step on gradients to which losses of different scales were added", "the loss was scaled",
     "Scale all losses of a window by one loss scale, and update it after the steps.", .at = 5, .before = 1, .batch = 2,
     .leaf = {8, 8, 8}},
    {"losses_of_two_scales_in_two_leaves", "scale1:a back scale2:s back step1:o update1",
     "belay_grad_scaler_step on gradients that another loss scale has multiplied", "the loss was scaled",
     "Step by the loss scale that the loss was scaled by.", .at = 5, .before = 3, .batch = 2, .leaf = {8, 8, 8}},
    {"a_loss_that_was_scaled_twice", "scale1:a scale1 back step1:o update1",
     "a loss was walked back that was scaled twice, or to which another was added that was scaled again",
     "it was scaled again", "Scale the sum of a window's losses once, as the last step.", .at = 1, .before = 2,
     .lost = LOST(0, 4, 1), .leaf = {8, 8, 8}},
    {"a_loss_that_two_scales_multiplied", "scale1:a plus:s scale2 back step2:o update2",
     "a loss was walked back that was scaled twice, or to which another was added that was scaled again",
     "it was scaled again", "Scale the sum of a window's losses once, as the last step.", .at = 1, .before = 3,
     .lost = LOST(0, 5, 1), .leaf = {8, 8, 8}},
    {"an_update_without_a_step", "scale1:a back update1", "belay_grad_scaler_update without a step",
     "the loss was scaled", "Call belay_grad_scaler_step first.", .at = 3, .before = 1, .batch = 1, .leaf = {8, 8, 8}},
    {"one_optimizer_in_two_windows_of_an_update", "scale1:a back step1:o scale1:a back step1:o update1",
     "belay_grad_scaler_step twice without an update", "the step before was made",
     "Call belay_grad_scaler_update once after the steps of a window.", .at = 6, .before = 3, .batch = 2, .step = 1,
     .leaf = {7, 8, 8}},
    {"one_optimizer_in_two_windows_of_an_update_around_anothers",
     "scale1:a back step1:o scale1:b back step1:p scale1:a back unscale1:o", "belay_grad_scaler_unscale after the step",
     "the step was made", "Unscale before belay_grad_scaler_step.", .at = 9, .before = 3, .batch = 3, .step = 2,
     .leaf = {7, 7, 8}},
    {"a_step_whose_loss_was_scaled_after_anothers_step_and_not_walked_back",
     "scale1:a back step1:o scale1:b step1:p update1", "belay_grad_scaler_step without a backward",
     "the loss was scaled", "Call belay_backward on the scaled loss first.", .at = 5, .before = 4, .batch = 1,
     .step = 1, .leaf = {7, 8, 8}},
    {"an_update_between_a_backward_after_anothers_step_and_its_step",
     "scale1:a back step1:o scale1:b back update1 step1:p update1",
     "belay_grad_scaler_step on gradients that were scaled before the last update", "the scale was updated",
     "Step every optimizer of a window before belay_grad_scaler_update.", .at = 7, .before = 6, .batch = 2, .step = 1,
     .leaf = {7, 8, 8}},
    {"gradients_of_anothers_window_that_were_left_for_the_next_update",
     "scale1:a back step1:o scale1:ab back step1:p update1 scale1:a back step1:o update1",
     "belay_grad_scaler_step on gradients to which losses of different scales were added", "the loss was scaled",
     "Scale all losses of a window by one loss scale, and update it after the steps.", .at = 10, .before = 4,
     .batch = 3, .step = 2, .leaf = {7, 7, 8}},
    {"a_backward_after_the_unscale", "scale1:a keep scale1:a back unscale1:o late step1:o update1",
     "a loss was walked back into gradients that were unscaled already", "the gradients were unscaled",
     "Unscale after the window's last backward.", .at = 7, .before = 5, .batch = 2, .leaf = {8, 8, 8}},
    {"a_backward_into_a_shared_parameter_that_the_other_unscaled",
     "scale1:s back unscale1:o scale1:s back step1:p update1",
     "a loss was walked back into gradients that were unscaled already", "the gradients were unscaled",
     "Unscale after the window's last backward.", .at = 6, .before = 3, .batch = 2, .leaf = {8, 8, 8}},
    {"a_loss_of_before_the_update_walked_back_after_it", "scale1:a keep scale1:a back step1:o update1 late",
     "a loss was walked back after the update of the scale that it was multiplied by", "the scale was updated",
     "Call belay_grad_scaler_update after the window's last backward.", .at = 1, .before = 6, .batch = 1, .step = 1,
     .leaf = {7, 8, 8}},
    {"a_step_of_an_optimizer_that_the_window_before_left_out", "scale1:ab back step1:o update1 step1:p",
     "belay_grad_scaler_step on gradients that were scaled before the last update", "the scale was updated",
     "Step every optimizer of a window before belay_grad_scaler_update.", .at = 5, .before = 4, .batch = 1, .step = 1,
     .leaf = {7, 8, 8}},
    {"gradients_of_two_windows_in_one_leaf", "scale1:ab back step1:o update1 scale1:b back step1:p update1",
     "belay_grad_scaler_step on gradients to which losses of different scales were added", "the loss was scaled",
     "Scale all losses of a window by one loss scale, and update it after the steps.", .at = 7, .before = 1, .batch = 2,
     .step = 1, .leaf = {7, 8, 8}},
    {"a_state_written_between_backward_and_step", "scale1:a back write1:16 step1:o update1",
     "belay_grad_scaler_step on gradients that were scaled before the scale's state was written", "the loss was scaled",
     "Write the state of a loss scale between windows.", .at = 4, .before = 1, .batch = 1, .leaf = {8, 8, 8}},
    {"a_state_written_between_unscale_and_step", "scale1:a back unscale1:o write1:16 step1:o update1",
     "belay_grad_scaler_step on gradients that were scaled before the scale's state was written",
     "the gradients were unscaled", "Write the state of a loss scale between windows.", .at = 5, .before = 3,
     .batch = 1, .leaf = {8, 8, 8}},
    {"a_state_written_between_scale_and_backward", "scale1:a write1:16 back step1:o update1",
     "a loss was walked back after the state of the scale that it was multiplied by had been written",
     "it was walked back", "Write the state of a loss scale between windows.", .at = 1, .before = 3,
     .lost = LOST(0, 4, 1), .leaf = {8, 8, 8}},
};

static void is_refused(void **state)
{
    const bad *b = *state;
    stage t = open_stage("cpu");
    play(&t, b->script, 0);
    told_expect("belay: %s (conf.order)\n"
                "    called at: call %d\n"
                "    %s at call %d\n"
                "    when: epoch 0, batch %d (micro-batch %d of its window), step %d, rank 0\n"
                "    try: %s\n%s",
                b->what, b->at, b->earlier, b->before, b->batch, b->batch - b->step, b->step, b->advice,
                b->lost != NULL ? b->lost : "");
    expect_end(&t, b->leaf, strstr(b->script, "write1") != NULL ? 16 : 8);
    belay_close(t.context);
}

int main(void)
{
    enum { GOODS = sizeof goods / sizeof *goods, BADS = sizeof bads / sizeof *bads };
    struct CMUnitTest tests[GOODS + BADS];
    for (int i = 0; i < GOODS; i++)
        tests[i] = (struct CMUnitTest){goods[i].name, is_right, NULL, NULL, (void *)&goods[i]};
    for (int i = 0; i < BADS; i++)
        tests[GOODS + i] = (struct CMUnitTest){bads[i].name, is_refused, NULL, NULL, (void *)&bads[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
