/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of the room: makers and nil objects, batches as tensors, faults with the sample's file and line. */
#include "file/file_support.h"

#include <belay/data.h>

static char told[8192];

static void keep_text(void *state, belay_code code, const char *text)
{
    (void)state;
    (void)code;
    size_t used = strlen(told);
    snprintf(told + used, sizeof told - used, "%s", text);
}

static belay_context *opened(uint64_t seed)
{
    told[0] = '\0';
    belay_context *ctx = belay_open(&(belay_options){.seed = seed, .log = keep_text, .no_journal = true, .threads = 1});
    assert_true(belay_is_open(ctx));
    belay_site_push(ctx, "the test");
    return ctx;
}

/* A fault as it is told, outside of any batch. */
static void assert_told(belay_context *ctx, const char *what, const char *facts, const char *advice)
{
    char expected[2048];
    snprintf(expected, sizeof expected,
             "belay: %s\n    called at: the test\n%s    when: epoch 0, batch 0 (micro-batch 0 of its window), step 0, "
             "rank 0\n"
             "    try: %s\n",
             what, facts, advice);
    assert_string_equal(told, expected);
    told[0] = '\0';
    belay_faults_clear(ctx);
}

static void write_rows(const char *path, int n_rows)
{
    FILE *file = fopen(path, "wb");
    fprintf(file, "text\tlabel\n");
    for (int i = 0; i < n_rows; i++)
        fprintf(file, "%c%d%c\t%s\n", 'a' + i % 26, i * 7919 % 1000, 'a' + i * 5 % 26, i % 2 ? "odd" : "even");
    fclose(file);
}

static void assert_tensor(belay_tensor tensor, const char *name, int rank, int64_t n, int64_t seq)
{
    belay_shape shape = belay_tensor_shape(tensor);
    assert_string_equal(belay_tensor_name(tensor), name);
    assert_int_equal(belay_tensor_dtype(tensor), BELAY_I64);
    assert_int_equal(shape.rank, rank);
    assert_int_equal(shape.size[0], n);
    if (rank == 2)
        assert_int_equal(shape.size[1], seq);
}

/* ---- batches ------------------------------------------------------------------------------------------------------
 */

static void a_file_becomes_batches_of_tensors(void **state)
{
    (void)state;
    put_text("train.tsv", "text\tlabel\nab\ten\nba\tde\nabc\ten\n");
    belay_context *ctx = opened(1);
    belay_loader *batches =
        belay_loader_open(ctx, "train.tsv", &(belay_loader_options){.batch = 2, .data = {.seq = 4}});
    assert_false(belay_loader_is_nil(batches));
    assert_int_equal(belay_loader_n_samples(batches), 3);
    assert_int_equal(belay_loader_n_tokens(batches), 5);
    assert_int_equal(belay_loader_n_classes(batches), 2);
    assert_int_equal(belay_loader_n_batches(batches), 2);
    static const int64_t tokens[3][4] = {{2, 3, 0, 0}, {3, 2, 0, 0}, {2, 3, 4, 0}}, labels[3] = {1, 0, 1};
    for (int epoch = 0; epoch < 2; epoch++) {
        belay_batch batch;
        int64_t ids[8], classes[2];
        for (int p = 0; p < 2; p++) {
            int64_t n = p == 0 ? 2 : 1;
            assert_true(belay_loader_next(batches, &batch));
            assert_int_equal(batch.code, BELAY_OK);
            assert_int_equal(batch.n_samples, n);
            assert_int_equal(batch.epoch, epoch);
            assert_int_equal(batch.position, p);
            assert_tensor(batch.tokens, "tokens", 2, n, 4);
            assert_tensor(batch.labels, "labels", 1, n, 0);
            assert_int_equal(belay_tensor_read(batch.tokens, ids, n * 32), BELAY_OK);
            assert_int_equal(belay_tensor_read(batch.labels, classes, n * 8), BELAY_OK);
            assert_memory_equal(ids, tokens[2 * p], (size_t)n * 32);
            assert_memory_equal(classes, labels + 2 * p, (size_t)n * 8);
        }
        assert_false(belay_loader_next(batches, &batch));
        assert_true(belay_tensor_is_nil(batch.tokens));
    }
    assert_string_equal(told, "");
    assert_int_equal(belay_close(ctx), 0);
}

static void a_batch_dies_with_the_next_one_and_outlives_scopes(void **state)
{
    (void)state;
    write_rows("train.tsv", 10);
    belay_context *ctx = opened(1);
    belay_loader *batches = belay_loader_open(ctx, "train.tsv", &(belay_loader_options){.batch = 4});
    belay_batch first, second;
    belay_scope scope = belay_scope_open(ctx);
    assert_true(belay_loader_next(batches, &first));
    belay_scope_close(scope);
    assert_true(belay_tensor_is_alive(first.tokens));
    assert_true(belay_loader_next(batches, &second));
    assert_false(belay_tensor_is_alive(first.tokens));
    assert_false(belay_tensor_is_alive(first.labels));
    assert_true(belay_tensor_is_alive(second.tokens));
    belay_loader_close(batches);
    assert_false(belay_tensor_is_alive(second.tokens));
    assert_int_equal(belay_close(ctx), 0);
}

static void each_sample_knows_its_file_and_line(void **state)
{
    (void)state;
    write_rows("train.tsv", 30);
    belay_context *ctx = opened(3);
    belay_loader *batches = belay_loader_open(
        ctx, "train.tsv",
        &(belay_loader_options){.batch = 8, .shuffle = true, .workers = 2, .data = {.valid_split = 0.2}});
    bool seen[30] = {false};
    const char *file;
    int64_t line;
    assert_int_equal(belay_loader_origin(batches, 0, &file, &line), -1);
    for (belay_batch batch; belay_loader_next(batches, &batch);)
        for (int64_t row = 0; row < batch.n_samples; row++) {
            assert_in_range(belay_loader_origin(batches, row, &file, &line), 0, 23);
            assert_string_equal(file, "train.tsv");
            assert_in_range(line, 2, 31);
            assert_false(seen[line - 2]);
            seen[line - 2] = true;
        }
    belay_dataset *valid = belay_dataset_validation(belay_loader_dataset(batches));
    assert_int_equal(belay_dataset_n_samples(valid), 6);
    belay_loader *rest = belay_loader_new(valid, &(belay_loader_options){.batch = 4});
    for (belay_batch batch; belay_loader_next(rest, &batch);)
        for (int64_t row = 0; row < batch.n_samples; row++) {
            belay_loader_origin(rest, row, NULL, &line);
            assert_false(seen[line - 2]);
            seen[line - 2] = true;
        }
    for (int i = 0; i < 30; i++)
        assert_true(seen[i]);
    belay_loader_close(batches); /* the validation part holds on to its store */
    belay_batch batch;
    assert_true(belay_loader_next(rest, &batch));
    assert_int_equal(belay_close(ctx), 0);
}

/* All tokens of two epochs from a start on. */
static int64_t read_all(belay_loader_options options, int64_t *out)
{
    belay_context *ctx = opened(5);
    belay_batch batch;
    int64_t n = 0, n_epochs = 2 - options.start_epoch;
    options.batch = 7;
    options.shuffle = true;
    options.data.seq = 5;
    belay_loader *batches = belay_loader_open(ctx, "train.tsv", &options);
    for (int64_t epoch = 0; epoch < n_epochs; epoch++)
        while (belay_loader_next(batches, &batch)) {
            assert_int_equal(belay_tensor_read(batch.tokens, out + n, batch.n_samples * 40), BELAY_OK);
            n += batch.n_samples * 5;
        }
    assert_int_equal(belay_close(ctx), 0);
    return n;
}

static void workers_and_kept_ids_change_nothing(void **state)
{
    (void)state;
    static int64_t expected[1000], found[1000];
    write_rows("train.tsv", 100);
    assert_int_equal(read_all((belay_loader_options){0}, expected), 1000);
    static const int64_t workers[] = {1, 2, 8};
    for (int w = 0; w < 3; w++) {
        assert_int_equal(read_all((belay_loader_options){.workers = workers[w]}, found), 1000);
        assert_memory_equal(found, expected, sizeof expected);
        assert_int_equal(read_all((belay_loader_options){.workers = workers[w], .data = {.keep_bytes = 1}}, found),
                         1000);
        assert_memory_equal(found, expected, sizeof expected);
    }
}

static void a_loader_goes_on_where_a_run_stopped(void **state)
{
    (void)state;
    static int64_t expected[1000], found[1000];
    write_rows("train.tsv", 100);
    read_all((belay_loader_options){0}, expected);
    for (int64_t start = 0; start < 30; start++) {
        int64_t skipped = start / 15 * 500 + start % 15 * 35;
        skipped = skipped > 1000 ? 1000 : skipped;
        assert_int_equal(
            read_all((belay_loader_options){.workers = 2, .start_epoch = start / 15, .start_batch = start % 15}, found),
            1000 - skipped);
        assert_memory_equal(found, expected + skipped, (size_t)(1000 - skipped) * 8);
    }
}

static void a_batch_can_be_had_again(void **state)
{
    (void)state;
    write_rows("train.tsv", 20);
    belay_context *ctx = opened(5);
    belay_loader *batches = belay_loader_open(
        ctx, "train.tsv", &(belay_loader_options){.batch = 8, .shuffle = true, .workers = 2, .data = {.seq = 5}});
    belay_batch batch, again;
    int64_t first[40], second[40];
    assert_true(belay_loader_next(batches, &batch));
    assert_int_equal(belay_tensor_read(batch.tokens, first, sizeof first), BELAY_OK);
    assert_true(belay_loader_next(batches, &batch));
    assert_true(belay_loader_get(batches, 0, &again));
    assert_false(belay_tensor_is_alive(batch.tokens));
    assert_int_equal(again.position, 0);
    assert_int_equal(belay_tensor_read(again.tokens, second, sizeof second), BELAY_OK);
    assert_memory_equal(first, second, sizeof first);
    assert_true(belay_loader_next(batches, &batch));
    assert_int_equal(batch.position, 2);
    assert_false(belay_loader_next(batches, &batch));
    assert_true(belay_loader_get(batches, 0, &again));
    assert_int_equal(again.epoch, 0);
    assert_int_equal(belay_tensor_read(again.tokens, second, sizeof second), BELAY_OK);
    assert_memory_equal(first, second, sizeof first);
    assert_false(belay_loader_get(batches, 3, &again));
    assert_true(belay_loader_next(batches, &batch));
    assert_int_equal(batch.epoch, 1);
    assert_int_equal(batch.position, 0);
    assert_int_equal(belay_close(ctx), 0);
}

/* ---- tokenizers and labels ----------------------------------------------------------------------------------------
 */

static void tokenizer_and_labels_go_through_json_to_another_run(void **state)
{
    (void)state;
    put_text("train.tsv", "text\tlabel\nab\ten\nba\tde\nabc\ten\n");
    put_text("valid.tsv", "text\tlabel\nxcb\ten\n");
    belay_context *ctx = opened(1);
    belay_dataset *train = belay_dataset_open(ctx, "train.tsv", NULL);
    char tokenizer_json[256], labels_json[256];
    strcpy(tokenizer_json, belay_tokenizer_to_json(belay_dataset_tokenizer(train)));
    strcpy(labels_json, belay_labels_to_json(belay_dataset_labels(train)));
    assert_string_equal(tokenizer_json,
                        "{\"version\":1,\"kind\":\"char\",\"keep_case\":false,\"tokens\":[\"a\",\"b\",\"c\"]}");
    assert_string_equal(labels_json, "[\"de\",\"en\"]");
    assert_int_equal(belay_close(ctx), 0);

    ctx = opened(1);
    belay_tokenizer *tokenizer = belay_tokenizer_from_json(ctx, tokenizer_json);
    belay_labels *labels = belay_labels_from_json(ctx, labels_json);
    assert_int_equal(belay_tokenizer_n_tokens(tokenizer), 5);
    assert_string_equal(belay_tokenizer_token(tokenizer, 4), "c");
    assert_null(belay_tokenizer_token(tokenizer, 1));
    assert_null(belay_tokenizer_token(tokenizer, 5));
    assert_string_equal(belay_labels_name(labels, 1), "en");
    assert_null(belay_labels_name(labels, 2));
    assert_int_equal(belay_labels_class(labels, "de"), 0);
    assert_int_equal(belay_labels_class(labels, "xx"), -1);
    int64_t ids[5];
    assert_int_equal(belay_tokenizer_encode(tokenizer, "CAx", 3, ids, 5), BELAY_OK);
    static const int64_t expected[5] = {4, 2, 1, 0, 0};
    assert_memory_equal(ids, expected, sizeof ids);
    belay_dataset *valid =
        belay_dataset_open(ctx, "valid.tsv", &(belay_text_options){.tokenizer = tokenizer, .labels = labels});
    assert_int_equal(belay_dataset_n_samples(valid), 1); /* one class is enough to evaluate on */
    assert_int_equal(belay_dataset_n_classes(valid), 2);
    belay_tokenizer_free(tokenizer); /* the dataset holds on to them */
    belay_labels_free(labels);
    assert_int_equal(belay_tokenizer_n_tokens(belay_dataset_tokenizer(valid)), 5);
    assert_int_equal(belay_close(ctx), 0);
}

static void what_cannot_be_encoded_is_told(void **state)
{
    (void)state;
    belay_context *ctx = opened(1);
    belay_tokenizer *tokenizer =
        belay_tokenizer_from_json(ctx, "{\"version\":1,\"kind\":\"word\",\"keep_case\":true,\"tokens\":[\"a\"]}");
    int64_t ids[2];
    assert_int_equal(belay_tokenizer_encode(tokenizer, "a \xC3", 3, ids, 2), BELAY_DATA_TEXT);
    assert_told(ctx, "byte 3 of the text is not UTF-8 (0xC3) (data.text)", "",
                "Save the file as UTF-8 without NUL bytes.");
    assert_int_equal(belay_tokenizer_encode(tokenizer, NULL, 3, ids, 2), BELAY_CONF_VALUE);
    assert_told(ctx, "encode: 3 bytes of text at NULL into 2 ids cannot be (conf.value)", "",
                "Give a value inside the range that the message names.");
    assert_int_equal(belay_tokenizer_encode(tokenizer, "A a", 3, ids, 2), BELAY_OK);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 2);
    assert_null(belay_tokenizer_to_json(belay_tokenizer_from_json(ctx, "{")));
    assert_told(ctx, "the tokenizer's JSON:1: column 1: string or '}' expected near end of file (file.format)", "",
                "Check the file at the place named; it may be cut short or of another kind.");
    belay_close(ctx);
}

static void a_dataset_of_another_context_is_refused(void **state)
{
    (void)state;
    put_text("train.tsv", "text\tlabel\nab\ten\nba\tde\n");
    belay_context *one = opened(1);
    belay_dataset *train = belay_dataset_open(one, "train.tsv", NULL);
    belay_context *two = opened(1);
    belay_dataset *valid =
        belay_dataset_open(two, "train.tsv", &(belay_text_options){.tokenizer = belay_dataset_tokenizer(train)});
    assert_true(belay_dataset_is_nil(valid));
    assert_told(two, "the tokenizer belongs to another context than the dataset (life.foreign)", "",
                "Use one context for a model and its data.");
    belay_close(one);
    belay_close(two);
}

/* ---- faults -------------------------------------------------------------------------------------------------------
 */

#define VALUE_ADVICE "Give a value inside the range that the message names."

static void bad_options_are_named(void **state)
{
    (void)state;
    write_rows("train.tsv", 20);
    belay_context *ctx = opened(1);
    static const struct {
        belay_loader_options options;
        const char *what;
    } cases[] = {
        {{.batch = -1}, "batch is -1, it must be from 0 to 2147483647 (conf.value)"},
        {{.workers = -2}, "workers is -2, it must be from 0 to 1024 (conf.value)"},
        {{.workers = 5000}, "workers is 5000, it must be from 0 to 1024 (conf.value)"},
        {{.prefetch = -1}, "prefetch is -1, it must be from 0 to 65536 (conf.value)"},
        {{.start_epoch = -1}, "start_epoch is -1, it must be from 0 to 4294967295 (conf.value)"},
        {{.rank = 1}, "rank is 1, it must be from 0 to 0 (conf.value)"},
        {{.rank = 2, .ranks = 2}, "rank is 2, it must be from 0 to 1 (conf.value)"},
        {{.ranks = -1}, "ranks is -1, it must be from 0 to 2147483647 (conf.value)"},
        {{.start_batch = 2}, "start_batch is 2, it must be from 0 to 1 (conf.value)"},
        {{.data = {.seq = -1}}, "seq is -1, it must not be negative (conf.value)"},
        {{.data = {.min_count = -1}}, "min_count is -1, it must not be negative (conf.value)"},
        {{.data = {.max_tokens = INT64_MAX}}, "max_tokens is 9223372036854775807, the most is 2147483645 (conf.value)"},
        {{.data = {.valid_split = 1.0}}, "valid_split is 1, it must be at least 0 and below 1 (conf.value)"},
        {{.data = {.tokens = (belay_tokens)7}},
         "tokens is 7, it must be BELAY_TOKENS_CHAR or BELAY_TOKENS_WORD (conf.value)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(belay_loader_is_nil(belay_loader_open(ctx, "train.tsv", &cases[i].options)));
        assert_told(ctx, cases[i].what, "", VALUE_ADVICE);
    }
    belay_close(ctx);
}

static void batches_that_cannot_be_are_named(void **state)
{
    (void)state;
    write_rows("train.tsv", 20);
    belay_context *ctx = opened(1);
    assert_true(belay_loader_is_nil(
        belay_loader_open(ctx, "train.tsv", &(belay_loader_options){.batch = 21, .drop_last = true})));
    assert_told(ctx, "drop_last leaves no batch: 20 samples, batches of 21 (data.empty)", "",
                "Give a batch that the samples fill, or leave drop_last out.");
    assert_true(belay_loader_is_nil(
        belay_loader_open(ctx, "train.tsv", &(belay_loader_options){.batch = 7, .ranks = 3, .drop_last = true})));
    assert_told(ctx, "drop_last leaves no batch: 20 samples, batches of 21 (data.empty)",
                "    a batch is 7 samples of each of 3 ranks\n",
                "Give a batch that the samples fill, or leave drop_last out.");
    belay_close(ctx);
}

static void a_dataset_without_validation_part_says_so(void **state)
{
    (void)state;
    write_rows("train.tsv", 20);
    belay_context *ctx = opened(1);
    belay_dataset *train = belay_dataset_open(ctx, "train.tsv", NULL);
    assert_true(belay_dataset_is_nil(belay_dataset_validation(train)));
    assert_told(ctx, "the dataset has no validation part; make it with valid_split (conf.order)", "",
                "Call in the order that the message gives.");
    belay_close(ctx);
}

static void an_unseen_label_is_named_with_its_line(void **state)
{
    (void)state;
    put_text("train.tsv", "text\tlabel\nab\ten\nba\tde\n");
    put_text("valid.tsv", "text\tlabel\nab\ten\n\nba\tfr\n");
    belay_context *ctx = opened(1);
    belay_dataset *train = belay_dataset_open(ctx, "train.tsv", NULL);
    belay_dataset *valid = belay_dataset_open(
        ctx, "valid.tsv",
        &(belay_text_options){.tokenizer = belay_dataset_tokenizer(train), .labels = belay_dataset_labels(train)});
    assert_true(belay_dataset_is_nil(valid));
    assert_told(ctx, "valid.tsv:4: the label \"fr\" was not seen in training (data.label)",
                "    known labels: \"de\", \"en\"\n", "Evaluate on data with the labels of the training file.");
    belay_close(ctx);
}

/* Samples of a file of the test's own; number 5 cannot be read. */
static belay_code callback(void *state, int64_t index, belay_sample *sample)
{
    sample->file = "samples.bin";
    sample->line = index * 10 + 1;
    if (index == *(int64_t *)state) {
        sample->why = "the checksum is \x07wrong";
        return BELAY_FILE_FORMAT;
    }
    sample->room[0] = index;
    sample->room[1] = -1;
    sample->n_ids = 2;
    sample->label = index % 3;
    return BELAY_OK;
}

static void a_refused_sample_is_told_with_file_and_line_and_the_loop_goes_on(void **state)
{
    (void)state;
    int64_t bad = 5;
    belay_context *ctx = opened(1);
    belay_dataset *dataset =
        belay_dataset_callback(ctx, 12, callback, &bad, &(belay_ids_options){.seq = 3, .n_tokens = 9});
    belay_loader *batches = belay_loader_new(dataset, &(belay_loader_options){.batch = 4, .workers = 2});
    assert_int_equal(belay_loader_n_tokens(batches), 9);
    belay_batch batch;
    assert_true(belay_loader_next(batches, &batch));
    static const int64_t expected[4][3] = {{0, -1, 0}, {1, -1, 0}, {2, -1, 0}, {3, -1, 0}};
    int64_t ids[4][3];
    assert_int_equal(belay_tensor_read(batch.tokens, ids, sizeof ids), BELAY_OK);
    assert_memory_equal(ids, expected, sizeof ids);
    assert_true(belay_loader_next(batches, &batch));
    assert_true(belay_tensor_is_nil(batch.tokens));
    assert_true(belay_tensor_is_nil(batch.labels));
    assert_int_equal(batch.code, BELAY_DATA_WORKER);
    assert_int_equal(batch.n_samples, 4);
    assert_int_equal(batch.position, 1);
    assert_string_equal(told, "belay: sample 5 cannot be had (data.worker)\n"
                              "    called at: the test\n"
                              "    the dataset: the checksum is \\x07wrong (file.format)\n"
                              "    sample: samples.bin:51 (row 1 of the batch)\n"
                              "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 0, rank 0\n"
                              "    try: See the error that the dataset gave, and the sample named.\n");
    assert_true(belay_loader_next(batches, &batch));
    assert_int_equal(batch.code, BELAY_OK);
    assert_false(belay_loader_next(batches, &batch));
    belay_fault fault;
    assert_true(belay_fault_get(ctx, 0, &fault));
    assert_string_equal(fault.sample, "samples.bin:51");
    assert_int_equal(belay_close(ctx), 3);
}

static belay_code get_without_memory(void *state, int64_t index, belay_sample *sample)
{
    belay_code code = callback(state, index, sample);
    return code == BELAY_FILE_FORMAT ? BELAY_MEM_EXHAUSTED : code;
}

static void memory_that_ends_in_a_get_stays_mem_exhausted(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 2; workers += 2) {
        int64_t bad = 5;
        belay_context *ctx = opened(1);
        belay_dataset *dataset =
            belay_dataset_callback(ctx, 12, get_without_memory, &bad, &(belay_ids_options){.seq = 3});
        belay_loader *batches = belay_loader_new(dataset, &(belay_loader_options){.batch = 4, .workers = workers});
        belay_batch batch;
        assert_true(belay_loader_next(batches, &batch));
        assert_true(belay_loader_next(batches, &batch));
        assert_int_equal(batch.code, BELAY_MEM_EXHAUSTED);
        assert_true(belay_tensor_is_nil(batch.tokens));
        assert_string_equal(told, "belay: sample 5 cannot be had (mem.exhausted)\n"
                                  "    called at: the test\n"
                                  "    the dataset: the checksum is \\x07wrong\n"
                                  "    sample: samples.bin:51 (row 1 of the batch)\n"
                                  "    when: epoch 0, batch 1 (micro-batch 0 of its window), step 0, rank 0\n"
                                  "    try: Use a smaller batch, sequence or model, or a machine with more memory.\n");
        assert_true(belay_loader_next(batches, &batch));
        assert_int_equal(batch.code, BELAY_OK);
        assert_int_equal(belay_close(ctx), 4);
        told[0] = '\0';
    }
}

static belay_loader *closed_by_get;
static belay_code get_and_close(void *state, int64_t index, belay_sample *sample)
{
    if (index == 2)
        belay_loader_close(closed_by_get);
    return callback(state, index, sample);
}

static void a_loader_closed_inside_of_its_call_ends_after_it(void **state)
{
    (void)state;
    int64_t bad = -1;
    belay_context *ctx = opened(1);
    belay_dataset *dataset = belay_dataset_callback(ctx, 4, get_and_close, &bad, &(belay_ids_options){.seq = 3});
    for (int which = 0; which < 2; which++) {
        belay_batch batch;
        belay_loader *batches = closed_by_get = belay_loader_new(dataset, &(belay_loader_options){.batch = 4});
        assert_true(which == 0 ? belay_loader_next(batches, &batch) : belay_loader_get(batches, 0, &batch));
        assert_int_equal(batch.n_samples, 4);
        assert_false(belay_tensor_is_alive(batch.tokens));
    }
    assert_string_equal(told, "");
    assert_int_equal(belay_close(ctx), 0);
}

/* A size whose bytes cannot be counted is no lack of memory. */
static void lengths_that_cannot_be_counted_are_named(void **state)
{
    (void)state;
    const char *const texts[] = {"aa", "bb"}, *const labels[] = {"x", "y"};
    const int64_t ids[] = {1, 2}, classes[] = {0, 1}, seqs[] = {INT64_MAX, INT64_MAX / 8};
    static const char advice[] = "Give the number of ids at which a text is cut, such as 20.";
    int64_t bad = -1;
    char what[200];
    belay_context *ctx = opened(1);
    for (size_t i = 0; i < sizeof seqs / sizeof seqs[0]; i++) {
        const belay_ids_options options = {.seq = seqs[i]};
        snprintf(what, sizeof what,
                 "seq is %lld: the most ids that a sample can have are 1152921504606845951 (size.overflow)",
                 (long long)seqs[i]);
        assert_true(
            belay_dataset_is_nil(belay_dataset_texts(ctx, texts, labels, 2, &(belay_text_options){.seq = seqs[i]})));
        assert_told(ctx, what, "", advice);
        assert_true(belay_dataset_is_nil(belay_dataset_open(ctx, "x.tsv", &(belay_text_options){.seq = seqs[i]})));
        assert_told(ctx, what, "", advice);
        assert_true(belay_dataset_is_nil(belay_dataset_ids(ctx, ids, classes, 2, &options)));
        assert_told(ctx, what, "", advice);
        assert_true(belay_dataset_is_nil(belay_dataset_callback(ctx, 2, callback, &bad, &options)));
        assert_told(ctx, what, "", advice);
    }
    const belay_ids_options long_ones = {.seq = INT64_C(1) << 59};
    assert_true(belay_dataset_is_nil(belay_dataset_ids(ctx, ids, classes, 2, &long_ones)));
    assert_told(ctx, "belay_dataset_ids: 2 samples of 576460752303423488 ids are too many (size.overflow)", "",
                "Make the tensor smaller, or cut the work into parts.");
    belay_dataset *dataset = belay_dataset_callback(ctx, 2, callback, &bad, &long_ones);
    assert_true(belay_loader_is_nil(belay_loader_new(dataset, NULL)));
    assert_told(ctx, "a batch of 2 samples of 576460752303423488 ids is too large (size.overflow)", "",
                "Make the tensor smaller, or cut the work into parts.");
    assert_int_equal(belay_close(ctx), 0);
}

static void ids_in_memory_are_copied_and_not_judged(void **state)
{
    (void)state;
    int64_t ids[3][2] = {{1, INT64_C(1) << 40}, {-1, 3}, {4, 5}}, labels[3] = {0, -1, 99}, got[6], classes[3];
    int64_t before[3][2];
    memcpy(before, ids, sizeof ids);
    belay_context *ctx = opened(1);
    belay_dataset *dataset =
        belay_dataset_ids(ctx, ids[0], labels, 3, &(belay_ids_options){.seq = 2, .n_tokens = 6, .n_classes = 2});
    ids[0][0] = 77;
    belay_loader *batches = belay_loader_new(dataset, NULL);
    belay_batch batch;
    assert_true(belay_loader_next(batches, &batch));
    assert_int_equal(belay_tensor_read(batch.tokens, got, sizeof got), BELAY_OK);
    assert_int_equal(belay_tensor_read(batch.labels, classes, sizeof classes), BELAY_OK);
    assert_memory_equal(got, before, sizeof got);
    assert_memory_equal(classes, labels, sizeof labels);
    assert_int_equal(belay_loader_n_classes(batches), 2);
    assert_true(belay_dataset_is_nil(belay_dataset_ids(ctx, ids[0], labels, 3, NULL)));
    assert_told(ctx, "belay_dataset_ids: seq must be given (conf.value)", "", VALUE_ADVICE);
    assert_true(belay_dataset_is_nil(belay_dataset_ids(ctx, NULL, labels, 3, &(belay_ids_options){.seq = 2})));
    assert_told(ctx, "belay_dataset_ids: ids is NULL (conf.value)", "", VALUE_ADVICE);
    assert_true(belay_dataset_is_nil(belay_dataset_callback(ctx, 3, NULL, NULL, &(belay_ids_options){.seq = 2})));
    assert_told(ctx, "belay_dataset_callback: get is NULL (conf.value)", "", VALUE_ADVICE);
    assert_int_equal(belay_close(ctx), 0);
}

static void texts_in_memory_are_a_dataset_too(void **state)
{
    (void)state;
    const char *const texts[] = {"Hello world", "world, hello!"}, *const labels[] = {"b", "a"};
    belay_context *ctx = opened(1);
    belay_dataset *dataset =
        belay_dataset_texts(ctx, texts, labels, 2, &(belay_text_options){.tokens = BELAY_TOKENS_WORD, .seq = 3});
    belay_loader *batches = belay_loader_new(dataset, NULL);
    belay_batch batch;
    int64_t got[6];
    static const int64_t expected[6] = {2, 3, 0, 3, 5, 2};
    assert_true(belay_loader_next(batches, &batch));
    assert_int_equal(belay_tensor_read(batch.tokens, got, sizeof got), BELAY_OK);
    assert_memory_equal(got, expected, sizeof got);
    assert_int_equal(belay_close(ctx), 0);
}

static void nil_objects_absorb(void **state)
{
    (void)state;
    belay_context *ctx = opened(1);
    belay_loader *batches = belay_loader_open(ctx, "missing.tsv", NULL);
    assert_non_null(batches);
    assert_int_equal(belay_n_faults(ctx), 1);
    belay_batch batch = {.n_samples = 7};
    assert_true(belay_loader_is_nil(batches));
    assert_false(belay_loader_next(batches, &batch));
    assert_int_equal(batch.n_samples, 0);
    assert_false(belay_loader_get(batches, 0, NULL));
    assert_int_equal(belay_loader_n_tokens(batches), 0);
    assert_int_equal(belay_loader_n_batches(batches), 0);
    assert_int_equal(belay_loader_origin(batches, 0, NULL, NULL), -1);
    belay_dataset *dataset = belay_loader_dataset(batches);
    assert_true(belay_dataset_is_nil(dataset));
    assert_true(belay_dataset_is_nil(belay_dataset_validation(dataset)));
    assert_true(belay_loader_is_nil(belay_loader_new(dataset, NULL)));
    belay_tokenizer *tokenizer = belay_dataset_tokenizer(dataset);
    assert_null(belay_tokenizer_to_json(tokenizer));
    assert_int_equal(belay_tokenizer_encode(tokenizer, "a", 1, NULL, 0), BELAY_CONF_ORDER);
    belay_labels *labels = belay_dataset_labels(dataset);
    assert_int_equal(belay_labels_n_classes(labels), 0);
    assert_true(belay_dataset_is_nil(belay_dataset_open(ctx, "x.tsv", &(belay_text_options){.tokenizer = tokenizer})));
    belay_tokenizer_free(tokenizer);
    belay_labels_free(labels);
    belay_dataset_close(dataset);
    belay_loader_close(batches);
    assert_int_equal(belay_n_faults(ctx), 1);
    assert_int_equal(belay_close(ctx), 4);
    assert_true(belay_dataset_is_nil(belay_dataset_open(NULL, "x.tsv", NULL)));
}

static void closing_in_any_order_leaves_nothing(void **state)
{
    (void)state;
    write_rows("train.tsv", 20);
    for (int order = 0; order < 4; order++) {
        belay_context *ctx = opened(1);
        belay_dataset *train = belay_dataset_open(ctx, "train.tsv", &(belay_text_options){.valid_split = 0.2});
        belay_dataset *valid = belay_dataset_validation(train);
        belay_loader *batches = belay_loader_new(valid, &(belay_loader_options){.batch = 2, .workers = 2});
        belay_batch batch;
        assert_true(belay_loader_next(batches, &batch));
        if (order & 1)
            belay_dataset_close(train);
        if (order & 2)
            belay_dataset_close(valid);
        assert_true(belay_loader_next(batches, &batch));
        assert_int_equal(belay_close(ctx), 0);
    }
}

/* ---- memory -------------------------------------------------------------------------------------------------------
 */

static void every_failing_allocation_is_a_fault(void **state)
{
    (void)state;
    write_rows("train.tsv", 20);
    int64_t n = 0;
    for (;; n++) {
        belay_context *ctx = opened(1);
        bl_memory_fail_at(n);
        belay_loader *batches = belay_loader_open(
            ctx, "train.tsv",
            &(belay_loader_options){.batch = 8, .shuffle = true, .workers = 2, .data = {.valid_split = 0.2}});
        belay_dataset *valid = belay_dataset_validation(belay_loader_dataset(batches));
        const char *json = belay_tokenizer_to_json(belay_dataset_tokenizer(valid));
        belay_batch batch;
        bool refused = false;
        while (belay_loader_next(batches, &batch))
            refused = refused || batch.code != BELAY_OK;
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (failed && (json == NULL || refused || belay_loader_is_nil(batches))) {
            belay_fault fault;
            assert_true(belay_fault_get(ctx, 0, &fault));
            assert_true(fault.code == BELAY_MEM_EXHAUSTED || fault.code == BELAY_DATA_WORKER);
        }
        belay_close(ctx);
        if (!failed)
            break;
    }
    assert_true(n > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_becomes_batches_of_tensors),
        cmocka_unit_test(a_batch_dies_with_the_next_one_and_outlives_scopes),
        cmocka_unit_test(each_sample_knows_its_file_and_line),
        cmocka_unit_test(workers_and_kept_ids_change_nothing),
        cmocka_unit_test(a_loader_goes_on_where_a_run_stopped),
        cmocka_unit_test(a_batch_can_be_had_again),
        cmocka_unit_test(tokenizer_and_labels_go_through_json_to_another_run),
        cmocka_unit_test(what_cannot_be_encoded_is_told),
        cmocka_unit_test(a_dataset_of_another_context_is_refused),
        cmocka_unit_test(bad_options_are_named),
        cmocka_unit_test(batches_that_cannot_be_are_named),
        cmocka_unit_test(a_dataset_without_validation_part_says_so),
        cmocka_unit_test(an_unseen_label_is_named_with_its_line),
        cmocka_unit_test(a_refused_sample_is_told_with_file_and_line_and_the_loop_goes_on),
        cmocka_unit_test(memory_that_ends_in_a_get_stays_mem_exhausted),
        cmocka_unit_test(a_loader_closed_inside_of_its_call_ends_after_it),
        cmocka_unit_test(lengths_that_cannot_be_counted_are_named),
        cmocka_unit_test(ids_in_memory_are_copied_and_not_judged),
        cmocka_unit_test(texts_in_memory_are_a_dataset_too),
        cmocka_unit_test(nil_objects_absorb),
        cmocka_unit_test(closing_in_any_order_leaves_nothing),
        cmocka_unit_test(every_failing_allocation_is_a_fault),
    };
    return cmocka_run_group_tests(tests, enter_scratch, leave_scratch);
}
