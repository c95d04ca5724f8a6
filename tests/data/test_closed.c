/* SPDX-License-Identifier: Apache-2.0 */
/* What was closed or freed and is used all the same: every question and act says so, touches nothing and absorbs. */
#include "support/told.h"

#include <belay/data.h>
#include <belay/nn.h>
#include <belay/optim.h>
#include <belay/train.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const texts[] = {"a b", "b c", "c a", "a a"}, *const names[] = {"x", "y", "x", "y"};

static belay_dataset *open_dataset(belay_context *context)
{
    return belay_dataset_texts(context, texts, names, 4, &(belay_text_options){.seq = 3, .valid_split = 0.5});
}

static void expect_stale(int line, const char *what)
{
    bool is_closed = strstr(what, "closed") != NULL;
    told_expect("belay: %s (life.stale)\n    called at: test_closed.c:%d\n" TOLD_START
                "    try: %s when nothing uses it any more.\n",
                what, line, is_closed ? "Close it" : "Free it");
}

/* The call gives that, and says that `what` was used. */
#define STALE(what, call_gives)                                                                                        \
    do {                                                                                                               \
        assert_true(call_gives);                                                                                       \
        expect_stale(__LINE__, what);                                                                                  \
    } while (0)

static void a_closed_dataset_is_stale_and_absorbs(void **state)
{
    (void)state;
    static const char what[] = "a dataset was used after it had been closed";
    belay_context *context = told_open();
    belay_dataset *data = open_dataset(context);
    assert_int_equal(belay_dataset_n_samples(data), 2);
    belay_dataset_close(data);
    told_expect("%s", "");
    STALE(what, belay_dataset_n_samples(data) == 0);
    STALE(what, belay_dataset_seq(data) == 0);
    STALE(what, belay_dataset_n_tokens(data) == 0);
    STALE(what, belay_dataset_n_classes(data) == 0);
    STALE(what, belay_tokenizer_n_tokens(belay_dataset_tokenizer(data)) == 0);
    STALE(what, belay_labels_n_classes(belay_dataset_labels(data)) == 0);
    STALE(what, belay_dataset_is_nil(belay_dataset_validation(data)));
    STALE(what, belay_loader_is_nil(belay_loader_new(data, NULL)));
    STALE(what, (belay_dataset_close(data), true));
    assert_true(belay_dataset_is_nil(data));
    told_expect("%s", "");
    belay_close(context);
}

static void a_closed_loader_is_stale_and_absorbs(void **state)
{
    (void)state;
    static const char what[] = "a loader was used after it had been closed";
    belay_context *context = told_open();
    belay_dataset *data = open_dataset(context);
    for (int workers = 0; workers < 2; workers++) {
        belay_loader *loader = belay_loader_new(data, &(belay_loader_options){.batch = 1, .workers = workers});
        belay_batch batch;
        const char *file = "";
        int64_t line = 1;
        assert_true(belay_loader_next(loader, &batch));
        belay_loader_close(loader);
        told_expect("%s", "");
        STALE(what, !belay_loader_next(loader, &batch) && belay_tensor_is_nil(batch.tokens));
        STALE(what, !belay_loader_get(loader, 0, &batch) && batch.n_samples == 0);
        STALE(what, belay_dataset_is_nil(belay_loader_dataset(loader)));
        STALE(what, belay_loader_n_samples(loader) == 0);
        STALE(what, belay_loader_n_tokens(loader) == 0);
        STALE(what, belay_loader_n_classes(loader) == 0);
        STALE(what, belay_loader_n_batches(loader) == 0);
        STALE(what, belay_loader_n_workers(loader) == 0);
        STALE(what, belay_loader_origin(loader, 0, &file, &line) == -1 && file == NULL && line == 0);
        STALE(what, (belay_loader_close(loader), true));
        assert_true(belay_loader_is_nil(loader));
        told_expect("%s", "");
    }
    belay_close(context);
}

static void a_freed_tokenizer_is_stale_and_absorbs(void **state)
{
    (void)state;
    static const char what[] = "a tokenizer was used after it had been freed";
    belay_context *context = told_open();
    belay_tokenizer *tokenizer = belay_tokenizer_from_json(
        context, "{\"version\": 1, \"kind\": \"char\", \"keep_case\": false, \"tokens\": []}");
    int64_t ids[2] = {7, 7};
    assert_int_equal(belay_tokenizer_n_tokens(tokenizer), 2);
    belay_tokenizer_free(tokenizer);
    told_expect("%s", "");
    STALE(what, belay_tokenizer_to_json(tokenizer) == NULL);
    STALE(what, belay_tokenizer_n_tokens(tokenizer) == 0);
    STALE(what, belay_tokenizer_token(tokenizer, 2) == NULL);
    STALE(what, belay_tokenizer_encode(tokenizer, "ab", 2, ids, 2) == BELAY_LIFE_STALE);
    assert_int_equal(ids[0], 7);
    const belay_text_options by_it = {.tokenizer = tokenizer};
    STALE(what, belay_dataset_is_nil(belay_dataset_texts(context, texts, names, 4, &by_it)));
    STALE(what, belay_dataset_is_nil(belay_dataset_open(context, "none.tsv", &by_it)));
    STALE(what, (belay_tokenizer_free(tokenizer), true));
    belay_close(context);
}

static void freed_labels_are_stale_and_absorb(void **state)
{
    (void)state;
    static const char what[] = "a list of labels was used after it had been freed";
    belay_context *context = told_open();
    belay_labels *labels = belay_labels_from_json(context, "[\"x\", \"y\"]");
    assert_int_equal(belay_labels_n_classes(labels), 2);
    belay_labels_free(labels);
    told_expect("%s", "");
    STALE(what, belay_labels_to_json(labels) == NULL);
    STALE(what, belay_labels_n_classes(labels) == 0);
    STALE(what, belay_labels_name(labels, 0) == NULL);
    STALE(what, belay_labels_class(labels, "x") == -1);
    const belay_text_options by_them = {.labels = labels};
    STALE(what, belay_dataset_is_nil(belay_dataset_texts(context, texts, names, 4, &by_them)));
    STALE(what, (belay_labels_free(labels), true));
    belay_close(context);
}

static void a_closed_token_file_is_stale_and_absorbs(void **state)
{
    (void)state;
    static const char what[] = "a token file was used after it had been closed";
    const char *path = BELAY_BUILD_DIR "/closed.bin";
    const int32_t head[256] = {20240520, 1, 3};
    const uint16_t tokens[] = {4, 5, 6};
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(head, sizeof head, 1, out) + fwrite(tokens, sizeof tokens, 1, out), 2);
    assert_int_equal(fclose(out), 0);
    belay_context *context = told_open();
    belay_token_file *file = belay_token_file_open(context, path);
    assert_int_equal(belay_token_file_n_tokens(file), 3);
    belay_token_file_close(file);
    told_expect("%s", "");
    const int64_t start = 0;
    STALE(what, belay_token_file_n_tokens(file) == 0);
    STALE(what, belay_tensor_is_nil(belay_token_file_rows(file, &start, 1, 2)));
    STALE(what, (belay_token_file_close(file), true));
    assert_true(belay_token_file_is_nil(file));
    told_expect("%s", "");
    belay_close(context);
    assert_int_equal(remove(path), 0);
}

static void a_closed_dataset_is_not_trained_or_evaluated_on(void **state)
{
    (void)state;
    static const char what[] = "a dataset was used after it had been closed";
    belay_context *context = told_open();
    belay_dataset *data = open_dataset(context), *closed = open_dataset(context);
    belay_module *model = belay_text_classifier(context, &(belay_text_classifier_options){.n_tokens = 8, .classes = 2});
    belay_optimizer *sgd = belay_sgd(model, &(belay_sgd_options){.lr = 0.1});
    belay_evaluation figures;
    belay_dataset_close(closed);
    STALE(what, belay_train(model, sgd, closed, NULL, NULL) == BELAY_CONF_ORDER);
    STALE(what, belay_train(model, sgd, data, &(belay_train_options){.valid = closed}, NULL) == BELAY_CONF_ORDER);
    STALE(what, belay_evaluate(model, closed, 1, &figures) == BELAY_CONF_ORDER && isnan(figures.loss));
    belay_close(context);
}

/* Who holds on to it keeps it: its own pointer is good for as long. */
static void what_is_held_is_not_stale(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_dataset *data = open_dataset(context), *valid = belay_dataset_validation(data);
    belay_loader *loader = belay_loader_new(valid, NULL);
    belay_tokenizer *tokenizer = belay_dataset_tokenizer(data);
    belay_dataset_close(data);
    belay_dataset_close(valid);
    belay_tokenizer_free(tokenizer);
    assert_int_equal(belay_dataset_n_samples(belay_loader_dataset(loader)), 2);
    assert_true(belay_tokenizer_n_tokens(belay_dataset_tokenizer(valid)) > 2);
    told_expect("%s", "");
    belay_loader_close(loader);
    STALE("a dataset was used after it had been closed", belay_dataset_seq(valid) == 0);
    STALE("a tokenizer was used after it had been freed", belay_tokenizer_n_tokens(tokenizer) == 0);
    belay_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_closed_dataset_is_stale_and_absorbs),
        cmocka_unit_test(a_closed_loader_is_stale_and_absorbs),
        cmocka_unit_test(a_freed_tokenizer_is_stale_and_absorbs),
        cmocka_unit_test(freed_labels_are_stale_and_absorb),
        cmocka_unit_test(a_closed_token_file_is_stale_and_absorbs),
        cmocka_unit_test(a_closed_dataset_is_not_trained_or_evaluated_on),
        cmocka_unit_test(what_is_held_is_not_stale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
