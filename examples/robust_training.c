/* SPDX-License-Identifier: Apache-2.0 */
/* The classic robust-training program: a two-layer LSTM over random token ids, trained on through whatever its data
 * hold.
 *
 *   robust_training                      trains, keeps the best epoch, predicts
 *   robust_training --plant 10007@3      the same with a wrong token id in batch 3 of each epoch
 *   robust_training --out FOLDER         where the run goes (robust_run)
 *   robust_training --epochs 1           how long it trains (5)
 *
 * The batch with the wrong id is named with its value, place and layer, it is left out, and the run goes on. */
#include <belay/belay.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TRAIN = 800, VALID = 200, SEQ = 20, VOCABULARY = 10000, CLASSES = 5, BATCH = 64 };

/* ---- data: random ids, random labels ---- */

static int64_t ids[(TRAIN + VALID) * SEQ], labels[TRAIN + VALID];

/* splitmix64 of Steele, Lea and Flood (2014). */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void make_data(void)
{
    uint64_t state = 42;
    for (int i = 0; i < (TRAIN + VALID) * SEQ; i++)
        ids[i] = (int64_t)(draw(&state) % VOCABULARY);
    for (int i = 0; i < TRAIN + VALID; i++)
        labels[i] = (int64_t)(draw(&state) % CLASSES);
}

/* "10007@3": that id as the first one of batch 3; false when it is no such thing. */
static bool plant(const char *text)
{
    int64_t id, batch;
    char end;
    if (sscanf(text, "%" SCNd64 "@%" SCNd64 "%c", &id, &batch, &end) != 2 || batch < 0 || batch * BATCH >= TRAIN)
        return false;
    ids[batch * BATCH * SEQ] = id;
    return true;
}

/* ---- words ---- */

static void print_progress(void *state, const belay_progress *p)
{
    (void)state;
    if (p->kind == BELAY_PROGRESS_EPOCH)
        printf("epoch %" PRId64 ": loss %.4f, validation loss %.4f, accuracy %.3f, %.0f samples/s, %" PRId64
               " faults%s\n",
               p->epoch + 1, p->loss, p->valid_loss, p->valid_accuracy, p->samples_per_second, p->n_faults,
               p->is_best ? " (best)" : "");
}

static void print_prediction(const char *what, const belay_prediction *p)
{
    if (p->code == BELAY_OK)
        printf("%s: class %" PRId64 ", probability %.3f\n", what, p->class_id, p->probability);
    else
        printf("%s: refused (%s)\n", what, belay_code_name(p->code));
}

/* ---- the program ---- */

static belay_code train_and_predict(belay_context *ctx, const char *out, int64_t epochs)
{
    belay_ids_options kind = {.seq = SEQ, .n_tokens = VOCABULARY, .n_classes = CLASSES};
    belay_dataset *train = belay_dataset_ids(ctx, ids, labels, TRAIN, &kind);
    belay_dataset *valid = belay_dataset_ids(ctx, ids + TRAIN * SEQ, labels + TRAIN, VALID, &kind);
    belay_module *model = belay_text_classifier(
        ctx, &(belay_text_classifier_options){
                 .n_tokens = VOCABULARY, .embed = 128, .hidden = 256, .layers = 2, .classes = CLASSES, .dropout = 0.3});
    belay_optimizer *adam = belay_adam(model, &(belay_adam_options){.lr = 1e-3, .clip = 1.0});

    belay_train_result result;
    belay_code code = belay_train(model, adam, train,
                                  &(belay_train_options){.valid = valid,
                                                         .epochs = epochs,
                                                         .batch = BATCH,
                                                         .accumulate = 4,
                                                         .no_shuffle = true, /* so that --plant knows its batch */
                                                         .out = out,
                                                         .overwrite = true,
                                                         .progress = print_progress},
                                  &result);
    if (code != BELAY_OK)
        return code;
    printf("best epoch %" PRId64 ": accuracy %.3f; %" PRId64 " batches left out\n", result.best_epoch + 1,
           result.best_accuracy, result.n_skipped);

    char best[4096];
    snprintf(best, sizeof best, "%s/best.safetensors", out);
    code = belay_checkpoint_load(model, best);
    if (code != BELAY_OK)
        return code;

    /* Prediction is as safe: the row with an id that the table does not have is refused, the other one is not. */
    belay_prediction predictions[2];
    int64_t rows[2][SEQ];
    memcpy(rows[0], ids + TRAIN * SEQ, sizeof rows[0]);
    memcpy(rows[1], ids + TRAIN * SEQ, sizeof rows[1]);
    rows[1][7] = VOCABULARY;
    code = belay_predict(model, rows[0], 2, SEQ, predictions);
    if (code == BELAY_OK) {
        print_prediction("a good sample", &predictions[0]);
        print_prediction("one with a bad id", &predictions[1]);
    }
    return code;
}

/* The options; false when they are none. */
static bool read_options(int argc, char **argv, const char **out, int64_t *epochs)
{
    char end;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--out") == 0 && value[0] != '\0')
            *out = value;
        else if (strcmp(argv[i], "--epochs") == 0 && sscanf(value, "%" SCNd64 "%c", epochs, &end) == 1 && *epochs > 0)
            continue;
        else if (strcmp(argv[i], "--plant") != 0 || !plant(value))
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    const char *out = "robust_run";
    int64_t epochs = 5;
    make_data();
    if (!read_options(argc, argv, &out, &epochs)) {
        fprintf(stderr, "usage: %s [--plant ID@BATCH] [--out FOLDER] [--epochs N]\n", argv[0]);
        return 2;
    }
    belay_context *ctx = belay_open(&(belay_options){.seed = 1, .log = belay_log_stderr});
    if (!belay_is_open(ctx))
        return belay_close(ctx);
    belay_code code = train_and_predict(ctx, out, epochs);
    belay_close(ctx); /* its status would be that of the prediction that was refused on purpose */
    return belay_code_status(code);
}
