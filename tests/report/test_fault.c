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
    "    likely: slightly above the bound: the tokenizer knows more ids than the table has rows\n"                     \
    "    try: Make the table as large as the largest id plus 1; tokens that were added later need rows too.\n"

static void a_fault_reads_as_one_paragraph(void **state)
{
    (void)state;
    bl_report_fault f = bad_id();
    paragraph(
        &f, "belay: ids[3, 17] is 10007, outside [0, 10000) of embedding.weight (index.range)\n"
            "    op: embedding in layer classifier.embedding, called at train.c:88\n"
            "    tensors: embedding.weight [10000, 128] f32; ids [64, 20] i64; on cpu\n" REST_OF_BAD_ID TRY_OF_BAD_ID);
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

/* Only what was refused is to be mended by what the reason says; a policy's own words say what it did. */
static void what_to_try_fits_the_likely_reason_unless_the_raiser_or_a_policy_says_more(void **state)
{
    (void)state;
    bl_report_fault f = bad_id();
    f.got = f.limit;
    f.code = BELAY_INDEX_CLAMPED;
    paragraph(&f,
              "belay: ids[3, 17] is 10000, outside [0, 10000) of embedding.weight (index.clamped)\n"
              "    op: embedding in layer classifier.embedding, called at train.c:88\n"
              "    tensors: embedding.weight [10000, 128] f32; ids [64, 20] i64; on cpu\n" REST_OF_BAD_ID
              "    likely: the value equals the bound: off by one, or a padding or special id that the table was not "
              "grown for\n"
              "    try: The run goes on with wrong rows; use policy raise to find the samples.\n");
    f.code = BELAY_INDEX_RANGE;
    snprintf(f.advice, sizeof f.advice, "Ask the raiser.");
    f.got = -1;
    paragraph(&f, "belay: ids[3, 17] is -1, outside [0, 10000) of embedding.weight (index.range)\n"
                  "    op: embedding in layer classifier.embedding, called at train.c:88\n"
                  "    tensors: embedding.weight [10000, 128] f32; ids [64, 20] i64; on cpu\n" REST_OF_BAD_ID
                  "    likely: -1 is a usual mark of a missing entry; or a count that went one below 0\n"
                  "    try: Ask the raiser.\n");
}

static void the_line_of_source_is_quoted_below_its_site(void **state)
{
    (void)state;
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_LIFE_SCOPE);
    snprintf(f.source, sizeof f.source, "close(\"\x1b[2J\"); /* \xff \xc3\xa9 */");
    paragraph(&f, "belay: Scopes were closed out of order, or twice. (life.scope)\n"
                  "    try: Close scopes in the reverse of the order in which they were opened.\n");
    snprintf(f.site, sizeof f.site, "train.c:88");
    paragraph(&f, "belay: Scopes were closed out of order, or twice. (life.scope)\n"
                  "    called at: train.c:88\n"
                  "    source: close(\"\\x1B[2J\"); /* \\xFF \xc3\xa9 */\n"
                  "    try: Close scopes in the reverse of the order in which they were opened.\n");
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

static void json_is(const bl_report_fault *fault, const char *expected)
{
    bl_text line = {0};
    json_error_t error;
    bl_report_fault_json(fault, &line);
    json_t *root = json_loads(bl_text_get(&line), JSON_REJECT_DUPLICATES, &error);
    assert_non_null(root);
    json_decref(root);
    assert_string_equal(bl_text_get(&line), expected);
    bl_text_fini(&line);
}

static void the_json_line_holds_every_fact(void **state)
{
    (void)state;
    bl_report_fault f = bad_id();
    snprintf(f.source, sizeof f.source, "loss = \"x\";");
    snprintf(f.surfaced, sizeof f.surfaced, "train.c:120");
    snprintf(f.stream, sizeof f.stream, "main");
    snprintf(f.other_words, sizeof f.other_words, "written at");
    snprintf(f.other_site, sizeof f.other_site, "model.c:40");
    snprintf(f.other_stream, sizeof f.other_stream, "copy");
    snprintf(f.tensor[0].device, sizeof f.tensor[0].device, "sim:1");
    bl_report_fault_fact(&f, "a fact");
    bl_report_fault_fact(&f, "another");
    f.tensor[0].is_output = true;
    f.is_backward = true;
    f.launch = 4711;
    f.n_echoes = 3;
    f.rank = 5;
    json_is(
        &f,
        "{\"code\":\"index.range\",\"what\":\"ids[3, 17] is 10007, outside [0, 10000) of embedding.weight\","
        "\"op\":\"embedding\",\"layer\":\"classifier.embedding\",\"site\":\"train.c:88\",\"device\":\"cpu\","
        "\"sample\":\"train.tsv:213\",\"tensor\":\"ids\",\"at\":[3, 17],\"got\":10007,\"limit\":10000,\"count\":2,"
        "\"tensors\":[{\"name\":\"embedding.weight\",\"shape\":[10000, 128],\"dtype\":\"f32\",\"role\":\"w\","
        "\"device\":\"sim:1\",\"output\":true},{\"name\":\"ids\",\"shape\":[64, 20],\"dtype\":\"i64\","
        "\"role\":\"ids\",\"device\":\"cpu\"}],\"epoch\":1,\"batch\":3118,\"micro_batch\":2,\"step\":779,"
        "\"rank\":5,\"number\":301,\"severity\":\"fault\",\"backward\":true,\"sample_row\":3,\"operand\":\"ids\","
        "\"table\":\"embedding.weight\",\"element\":77,\"values\":[10007,-1],\"source\":\"loss = \\\"x\\\";\","
        "\"surfaced\":\"train.c:120\",\"launch\":4711,\"stream\":\"main\",\"other\":\"written at\","
        "\"other_site\":\"model.c:40\",\"other_stream\":\"copy\",\"echoes\":3,\"facts\":[\"a fact\",\"another\"],"
        "\"reason\":\"above\",\"likely\":\"slightly above the bound: the tokenizer knows more ids than the table has "
        "rows\",\"try\":\"Make the table as large as the largest id plus 1; tokens that were added later need rows "
        "too.\",\"text\":\"belay: ids[3, 17] is 10007, outside [0, 10000) of embedding.weight (index.range)\\u000a"
        "    op: embedding (backward) in layer classifier.embedding, called at train.c:88, launch 4711 on stream "
        "main\\u000a    source: loss = \\\"x\\\";\\u000a    written at: model.c:40 on stream copy\\u000a"
        "    surfaced at: train.c:120\\u000a    tensors: embedding.weight [10000, 128] f32 on sim:1 (output); ids "
        "[64, 20] i64 on cpu\\u000a    bad: 2 of 1280 elements; values 10007, -1\\u000a    a fact\\u000a    "
        "another\\u000a    sample: train.tsv:213 (row 3 of the batch)\\u000a    when: epoch 1, batch 3118 "
        "(micro-batch 2 of its window), step 779, rank 5\\u000a    echoes: 3 later faults of the same "
        "cause\\u000a    likely: slightly above the bound: the tokenizer knows more ids than the table has "
        "rows\\u000a    try: Make the table as large as the largest id plus 1; tokens that were added later need "
        "rows too.\\u000a\"}");
}

static void a_fault_without_facts_is_a_short_object(void **state)
{
    (void)state;
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_LIFE_SCOPE);
    json_is(&f,
            "{\"code\":\"life.scope\",\"what\":\"Scopes were closed out of order, or twice.\",\"rank\":0,"
            "\"number\":402,\"severity\":\"fault\",\"try\":\"Close scopes in the reverse of the order in which they "
            "were opened.\",\"text\":\"belay: Scopes were closed out of order, or twice. (life.scope)\\u000a    try: "
            "Close scopes in the reverse of the order in which they were opened.\\u000a\"}");
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
        cmocka_unit_test(what_to_try_fits_the_likely_reason_unless_the_raiser_or_a_policy_says_more),
        cmocka_unit_test(the_line_of_source_is_quoted_below_its_site),
        cmocka_unit_test(text_from_files_cannot_command_a_terminal),
        cmocka_unit_test(facts_that_do_not_fit_are_cut_and_still_end_in_a_newline),
        cmocka_unit_test(coordinates_are_row_major),
        cmocka_unit_test(the_json_line_holds_every_fact),
        cmocka_unit_test(a_fault_without_facts_is_a_short_object),
        cmocka_unit_test(json_takes_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
