/* SPDX-License-Identifier: Apache-2.0 */
/* Faults as a paragraph and as a line of JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "report/fault.h"

static void paragraph(const bl_report_fault *fault, const char *expected)
{
    bl_text words = {0};
    bl_report_fault_describe(fault, &words);
    assert_string_equal(bl_text_get(&words), expected);
    bl_text_fini(&words);
}

/* An id beyond its table, with all that is known. */
static bl_report_fault bad_id(void)
{
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_INDEX_RANGE);
    snprintf(f.op, sizeof f.op, "embedding");
    snprintf(f.layer, sizeof f.layer, "classifier.embedding");
    snprintf(f.site, sizeof f.site, "train.c:88");
    snprintf(f.device, sizeof f.device, "cpu");
    snprintf(f.sample, sizeof f.sample, "train.tsv:213");
    f.sample_row = 3;
    f.n_tensors = 2;
    f.tensor[0] = (bl_report_tensor){.name = "embedding.weight", .role = "w", .shape = {2, {10000, 128}}};
    f.tensor[1] = (bl_report_tensor){.role = "ids", .dtype = BELAY_I64, .shape = {2, {64, 20}}};
    f.operand = 1;
    f.table = 0;
    f.element = 3 * 20 + 17;
    f.got = 10007;
    f.limit = 10000;
    f.count = 2;
    f.n_values = 2;
    f.value[0] = 10007;
    f.value[1] = -1;
    f.has_position = true;
    f.step = 779;
    f.epoch = 1;
    f.position = 3118;
    f.micro_batch = 2;
    return f;
}

#define REST_OF_BAD_ID                                                                                                 \
    "    bad: 2 of 1280 elements; values 10007, -1\n"                                                                  \
    "    sample: train.tsv:213 (row 3 of the batch)\n"                                                                 \
    "    when: epoch 1, batch 3118 (micro-batch 2 of its window), step 779, rank 0\n"
#define TRY_OF_BAD_ID                                                                                                  \
    "    try: Find the sample named; the vocabulary and the table must have the same size, and padding must be a "     \
    "valid id.\n"

static void a_fault_reads_as_one_paragraph(void **state)
{
    (void)state;
    bl_report_fault f = bad_id();
    paragraph(&f,
              "belay: ids[3, 17] is 10007, outside [0, 10000) of embedding.weight (index.range)\n"
              "    op: embedding in layer classifier.embedding, called at train.c:88\n"
              "    tensors: embedding.weight [10000, 128] f32; ids [64, 20] i64; on cpu\n"
              "    bad: 2 of 1280 elements; values 10007, -1\n"
              "    sample: train.tsv:213 (row 3 of the batch)\n"
              "    when: epoch 1, batch 3118 (micro-batch 2 of its window), step 779, rank 0\n"
              "    try: Find the sample named; the vocabulary and the table must have the same size, and padding must "
              "be a valid id.\n");
}

/* What only an asynchronous device knows is told only where it is set. */
static void a_fault_of_a_stream_names_where_it_surfaced_and_its_echoes(void **state)
{
    (void)state;
    bl_report_fault f = bad_id();
    snprintf(f.device, sizeof f.device, "sim:1");
    snprintf(f.surfaced, sizeof f.surfaced, "train.c:120");
    f.launch = 4711;
    f.n_echoes = 3;
    paragraph(&f, "belay: ids[3, 17] is 10007, outside [0, 10000) of embedding.weight (index.range)\n"
                  "    op: embedding in layer classifier.embedding, called at train.c:88, launch 4711\n"
                  "    surfaced at: train.c:120\n"
                  "    tensors: embedding.weight [10000, 128] f32; ids [64, 20] i64; on sim:1\n" REST_OF_BAD_ID
                  "    echoes: 3 later faults of the same cause\n" TRY_OF_BAD_ID);
    f.n_echoes = 1;
    snprintf(f.stream, sizeof f.stream, "copy");
    snprintf(f.tensor[1].device, sizeof f.tensor[1].device, "sim:0");
    paragraph(&f, "belay: ids[3, 17] is 10007, outside [0, 10000) of embedding.weight (index.range)\n"
                  "    op: embedding in layer classifier.embedding, called at train.c:88, launch 4711 on stream copy\n"
                  "    surfaced at: train.c:120\n"
                  "    tensors: embedding.weight [10000, 128] f32 on sim:1; ids [64, 20] i64 on sim:0\n" REST_OF_BAD_ID
                  "    echoes: 1 later fault of the same cause\n" TRY_OF_BAD_ID);
}

static void a_race_names_both_places_and_their_streams(void **state)
{
    (void)state;
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_LIFE_STALE);
    snprintf(f.what, sizeof f.what, "tensor x is read while it is written");
    snprintf(f.site, sizeof f.site, "model.c:52");
    snprintf(f.other_words, sizeof f.other_words, "written at");
    snprintf(f.other_site, sizeof f.other_site, "model.c:40");
    snprintf(f.other_stream, sizeof f.other_stream, "copy");
    paragraph(&f, "belay: tensor x is read while it is written (life.stale)\n"
                  "    called at: model.c:52 on the default stream\n"
                  "    written at: model.c:40 on stream copy\n"
                  "    try: Keep the tensor with belay_keep, or use it before its scope closes.\n");
    snprintf(f.stream, sizeof f.stream, "side\x1b");
    f.other_stream[0] = '\0';
    paragraph(&f, "belay: tensor x is read while it is written (life.stale)\n"
                  "    called at: model.c:52 on stream side\\x1B\n"
                  "    written at: model.c:40 on the default stream\n"
                  "    try: Keep the tensor with belay_keep, or use it before its scope closes.\n");
    f.stream[0] = '\0';
    f.other_words[0] = '\0';
    paragraph(&f, "belay: tensor x is read while it is written (life.stale)\n"
                  "    called at: model.c:52\n"
                  "    other use at: model.c:40\n"
                  "    try: Keep the tensor with belay_keep, or use it before its scope closes.\n");
}

static void a_fault_without_facts_says_why_and_what_to_do(void **state)
{
    (void)state;
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_LIFE_SCOPE);
    paragraph(&f, "belay: Scopes were closed out of order, or twice. (life.scope)\n"
                  "    try: Close scopes in the reverse of the order in which they were opened.\n");
}

static void the_value_itself_hints_at_its_cause(void **state)
{
    (void)state;
    const struct {
        int64_t got;
        const char *hint;
    } cases[] = {
        {10000,
         "    hint: the value equals the bound: off by one, or a padding id of its own that the table has no row "
         "for\n"},
        {-1, "    hint: a negative value: an ignore value, or an unsigned number that wrapped\n"},
        {INT64_C(1) << 40, "    hint: a huge value: memory that was never filled, or a float that was cast\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bl_report_fault f = bad_id();
        bl_text words = {0};
        f.got = cases[i].got;
        bl_report_fault_describe(&f, &words);
        assert_non_null(strstr(bl_text_get(&words), cases[i].hint));
        bl_text_fini(&words);
    }
}

static void text_from_files_cannot_command_a_terminal(void **state)
{
    (void)state;
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_DATA_ROW);
    snprintf(f.what, sizeof f.what, "row \x1b[2J has 3 columns");
    bl_report_fault_fact(&f, "it begins with \"%s\"", "\r\x9b");
    snprintf(f.sample, sizeof f.sample, "a\nb.tsv:3");
    paragraph(&f, "belay: row \\x1B[2J has 3 columns (data.row)\n"
                  "    it begins with \"\\x0D\\x9B\"\n"
                  "    sample: a\\x0Ab.tsv:3\n"
                  "    try: Fix the row at the file and line named.\n");
}

static void facts_that_do_not_fit_are_cut_and_still_end_in_a_newline(void **state)
{
    (void)state;
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_DATA_ROW);
    for (int i = 0; i < 100; i++)
        bl_report_fault_fact(&f, "fact number %d of many", i);
    size_t length = strlen(f.facts);
    assert_in_range(length, sizeof f.facts - 40, sizeof f.facts - 1);
    assert_int_equal(f.facts[length - 1], '\n');
}

static void coordinates_are_row_major(void **state)
{
    (void)state;
    const struct {
        belay_shape shape;
        int64_t element;
        const char *at;
    } cases[] = {{{0, {0}}, 0, "[]"},
                 {{1, {5}}, 4, "[4]"},
                 {{3, {2, 3, 4}}, 0, "[0, 0, 0]"},
                 {{3, {2, 3, 4}}, 23, "[1, 2, 3]"},
                 {{3, {2, 3, 4}}, 13, "[1, 0, 1]"},
                 {{2, {3, 0}}, 0, "[0, 0]"},
                 {{2, {INT64_C(1) << 31, INT64_C(1) << 31}}, INT64_MAX / 2, "[2147483647, 2147483647]"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bl_text words = {0};
        bl_report_coordinates(&cases[i].shape, cases[i].element, &words);
        assert_string_equal(bl_text_get(&words), cases[i].at);
        bl_text_fini(&words);
    }
}

static json_t *parsed(const bl_report_fault *fault)
{
    bl_text line = {0};
    json_error_t error;
    bl_report_fault_json(fault, &line);
    assert_null(strchr(bl_text_get(&line), '\n'));
    json_t *root = json_loads(bl_text_get(&line), JSON_REJECT_DUPLICATES, &error);
    bl_text_fini(&line);
    assert_non_null(root);
    return root;
}

static void the_json_line_holds_what_the_paragraph_says(void **state)
{
    (void)state;
    bl_report_fault f = bad_id();
    json_t *root = parsed(&f);
    const char *code, *what, *op, *layer, *site, *device, *sample, *tensor, *name, *dtype;
    json_int_t at[2], got, limit, count, shape[2], epoch, batch, micro_batch, step, rank;
    assert_int_equal(json_unpack(root, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:[I, I], s:I, s:I, s:I}", "code",
                                 &code, "what", &what, "op", &op, "layer", &layer, "site", &site, "device", &device,
                                 "sample", &sample, "tensor", &tensor, "at", &at[0], &at[1], "got", &got, "limit",
                                 &limit, "count", &count),
                     0);
    assert_int_equal(json_unpack(root, "{s:[{}, {s:s, s:s, s:[I, I]}], s:I, s:I, s:I, s:I, s:I}", "tensors", "name",
                                 &name, "dtype", &dtype, "shape", &shape[0], &shape[1], "epoch", &epoch, "batch",
                                 &batch, "micro_batch", &micro_batch, "step", &step, "rank", &rank),
                     0);
    assert_string_equal(code, "index.range");
    assert_string_equal(what, "ids[3, 17] is 10007, outside [0, 10000) of embedding.weight");
    assert_string_equal(op, "embedding");
    assert_string_equal(layer, "classifier.embedding");
    assert_string_equal(site, "train.c:88");
    assert_string_equal(device, "cpu");
    assert_string_equal(sample, "train.tsv:213");
    assert_string_equal(tensor, "ids");
    assert_string_equal(name, "ids");
    assert_string_equal(dtype, "i64");
    const json_int_t expected[] = {3, 17, 10007, 10000, 2, 64, 20, 1, 3118, 2, 779, 0};
    const json_int_t found[] = {at[0],    at[1], got,   limit,       count, shape[0],
                                shape[1], epoch, batch, micro_batch, step,  rank};
    assert_memory_equal(found, expected, sizeof found);
    json_decref(root);
}

static void json_takes_any_bytes(void **state)
{
    (void)state;
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_DATA_ROW);
    snprintf(f.what, sizeof f.what, "quote \" backslash \\ newline \n escape \x1b bad \xff\xc3 good \xc3\xa9");
    snprintf(f.layer, sizeof f.layer, "quote \" newline \n bad \xff\xc3 good \xc3\xa9");
    json_t *root = parsed(&f);
    assert_string_equal(json_string_value(json_object_get(root, "what")),
                        "quote \" backslash \\ newline \\x0A escape \\x1B bad \\xFF\\xC3 good \xc3\xa9");
    assert_string_equal(json_string_value(json_object_get(root, "layer")),
                        "quote \" newline \n bad \xef\xbf\xbd\xef\xbf\xbd good \xc3\xa9");
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_reads_as_one_paragraph),
        cmocka_unit_test(a_fault_of_a_stream_names_where_it_surfaced_and_its_echoes),
        cmocka_unit_test(a_race_names_both_places_and_their_streams),
        cmocka_unit_test(a_fault_without_facts_says_why_and_what_to_do),
        cmocka_unit_test(the_value_itself_hints_at_its_cause),
        cmocka_unit_test(text_from_files_cannot_command_a_terminal),
        cmocka_unit_test(facts_that_do_not_fit_are_cut_and_still_end_in_a_newline),
        cmocka_unit_test(coordinates_are_row_major),
        cmocka_unit_test(the_json_line_holds_what_the_paragraph_says),
        cmocka_unit_test(json_takes_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
