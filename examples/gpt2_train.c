/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a GPT-2 on a file of tokens in llm.c's format:
 *
 *   gpt2_train tokens.bin [--load FILE] [--save FILE] [--steps N] [--batch N] [--time N] [--layers N] [--heads N]
 *              [--width N] [--vocabulary N] [--rate X] [--device NAME]
 *
 * AdamW with a cosine schedule after a short warm-up; a line a step.  A token outside of the vocabulary is named and its
 * step not applied; the run goes on. */
#include <belay/belay.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_BATCH = 256 };

typedef struct settings {
    const char *tokens, *load, *save, *device;
    int64_t steps, batch, time;
    double rate;
    belay_gpt2_options model;
} settings;

/* False: the arguments cannot be read. */
static bool read_arguments(int argc, char **argv, settings *s)
{
    const struct {
        const char *name;
        int64_t *number;
        const char **text;
    } rows[] = {
        {"--load", NULL, &s->load},           {"--save", NULL, &s->save},
        {"--device", NULL, &s->device},       {"--steps", &s->steps, NULL},
        {"--batch", &s->batch, NULL},         {"--time", &s->time, NULL},
        {"--layers", &s->model.layers, NULL}, {"--heads", &s->model.heads, NULL},
        {"--width", &s->model.width, NULL},   {"--vocabulary", &s->model.vocabulary, NULL},
    };
    enum { N_ROWS = sizeof rows / sizeof rows[0] };
    for (int i = 2; i < argc; i += 2) {
        int row = 0;
        while (row < N_ROWS && strcmp(rows[row].name, argv[i]) != 0)
            row++;
        bool is_rate = strcmp(argv[i], "--rate") == 0;
        if (i + 1 == argc || (row == N_ROWS && !is_rate))
            return false;
        if (is_rate)
            s->rate = strtod(argv[i + 1], NULL);
        else if (rows[row].number != NULL)
            *rows[row].number = strtoll(argv[i + 1], NULL, 10);
        else
            *rows[row].text = argv[i + 1];
    }
    s->tokens = argc > 1 ? argv[1] : NULL;
    return s->tokens != NULL && s->steps >= 1 && s->time >= 1 && s->batch >= 1 && s->batch <= MOST_BATCH;
}

/* Texts of one token more than the model reads, one behind the other through the file and from its front again. */
static belay_tensor next_texts(belay_token_file *file, const settings *s, int64_t step)
{
    int64_t starts[MOST_BATCH], places = belay_token_file_n_tokens(file) - s->time;
    for (int64_t i = 0; i < s->batch; i++)
        starts[i] = places > 0 ? (step * s->batch + i) * s->time % places : 0;
    return belay_token_file_rows(file, starts, s->batch, s->time + 1);
}

/* Every token but the last of each text predicts the one behind it. */
static belay_tensor loss_of(belay_module *model, belay_tensor texts)
{
    belay_tensor logits = belay_forward(model, belay_slice(texts, 1, 0, -1, 1));
    belay_shape shape = belay_tensor_shape(logits);
    belay_tensor labels = belay_view(belay_slice(texts, 1, 1, BELAY_END, 1), belay_shape1(-1));
    return belay_cross_entropy(belay_view(logits, belay_shape2(-1, shape.size[2])), labels, NULL);
}

static double seconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void train(belay_context *ctx, belay_module *model, belay_token_file *file, const settings *s)
{
    int64_t warmup = s->steps / 10;
    belay_optimizer *adam = belay_adamw(model, &(belay_adam_options){.lr = s->rate,
                                                                     .beta2 = 0.95,
                                                                     .weight_decay = 0.1,
                                                                     .clip = 1,
                                                                     .schedule = {.kind = BELAY_SCHEDULE_COSINE,
                                                                                  .period = s->steps - warmup,
                                                                                  .end = s->rate / 10,
                                                                                  .warmup = warmup,
                                                                                  .warmup_start = 0.1}});
    for (int64_t step = 0; step < s->steps; step++) {
        double begin = seconds();
        belay_scope scope = belay_scope_open(ctx);
        belay_tensor loss = loss_of(model, next_texts(file, s, step));
        belay_backward(loss);
        belay_optimizer_step(adam); /* nothing, if this step faulted */
        if (!belay_tensor_is_nil(loss))
            printf("step %" PRId64 "  loss %.4f  rate %.2e  %.0f tokens/s%s\n", step, belay_tensor_item(loss),
                   belay_optimizer_lr_get(adam), (double)(s->batch * s->time) / (seconds() - begin),
                   belay_optimizer_is_applied(adam) ? "" : "  not applied");
        belay_scope_close(scope);
    }
}

int main(int argc, char **argv)
{
    settings s = {.steps = 20, .batch = 4, .time = 64, .rate = 3e-4};
    if (!read_arguments(argc, argv, &s)) {
        fprintf(stderr, "usage: gpt2_train tokens.bin [--load FILE] [--save FILE] [--steps N] [--batch 1..%d] ...\n",
                MOST_BATCH);
        return 2;
    }
    belay_context *ctx = belay_open(&(belay_options){.device = s.device, .seed = 1, .log = belay_log_stderr});
    belay_token_file *file = belay_token_file_open(ctx, s.tokens);
    s.model.context = s.time > 1024 ? s.time : 0;
    belay_module *model = belay_token_file_is_nil(file) ? NULL : belay_gpt2(ctx, &s.model);
    bool is_ready = !belay_module_is_nil(model) && (s.load == NULL || belay_gpt2_load(model, s.load) == BELAY_OK);
    if (is_ready) {
        printf("%" PRId64 " parameters, %" PRId64 " tokens\n", belay_module_n_elements(model),
               belay_token_file_n_tokens(file));
        train(ctx, model, file, &s);
    }
    bool is_saved = !is_ready || s.save == NULL || belay_checkpoint_save(model, s.save, NULL, 0) == BELAY_OK;
    int status = belay_close(ctx);
    return status != 0 ? status : is_saved ? 0 : 4;
}
