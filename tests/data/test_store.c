/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of text files: what is kept, what is split off, and what each bad file is told. */
#include "file/file_support.h"

#include "data/store.h"

static bl_error error;

/* A store and all that it needs, made from a file or from texts. */
typedef struct setting {
    bl_data_rows rows;
    bl_data_store store;
    bl_data_vocabulary vocabulary;
    bl_data_strings labels;
    bl_data_plan plan;
} setting;

static setting *new_setting(void)
{
    setting *s = calloc(1, sizeof *s);
    s->plan = (bl_data_plan){.min_count = 1,
                             .max_tokens = BL_DATA_MAX_TOKENS,
                             .seq = 5,
                             .keep_bytes = BL_DATA_KEEP_BYTES,
                             .seed = 1,
                             .vocabulary = &s->vocabulary,
                             .labels = &s->labels,
                             .make_vocabulary = true,
                             .make_labels = true};
    return s;
}

static void free_setting(setting *s)
{
    bl_data_rows_close(&s->rows);
    bl_data_store_fini(&s->store);
    bl_data_vocabulary_fini(&s->vocabulary);
    bl_data_strings_fini(&s->labels);
    free(s);
}

static belay_code fill(setting *s, const char *path)
{
    TRY(bl_data_rows_open(&s->rows, path, NULL, NULL, &error));
    return bl_data_store_fill(&s->store, &s->rows, &s->plan, &error);
}

static setting *filled(const char *path, double valid_split, int64_t keep_bytes)
{
    setting *s = new_setting();
    s->plan.valid_split = valid_split;
    s->plan.keep_bytes = keep_bytes;
    check_ok(fill(s, path), &error);
    return s;
}

/* "1,2,3": the ids of a row. */
static const char *ids_of(const setting *s, int64_t row)
{
    static char out[128];
    bl_data_cursor cursor;
    int64_t ids[5], n_ids;
    size_t used = 0;
    check_ok(bl_data_cursor_init(&cursor, &s->store, &error), &error);
    check_ok(bl_data_store_get(&s->store, &cursor, row, ids, &n_ids, &error), &error);
    bl_data_cursor_fini(&cursor);
    out[0] = '\0';
    for (int i = 0; i < n_ids; i++)
        used += (size_t)snprintf(out + used, sizeof out - used, i > 0 ? ",%d" : "%d", (int)ids[i]);
    return out;
}

static void assert_refused(const char *path, double valid_split, const char *expected)
{
    setting *s = new_setting();
    s->plan.valid_split = valid_split;
    check_error(fill(s, path), &error, expected);
    free_setting(s);
}

/* ---- what is kept ----------------------------------------------------------------------------------------------- */

static void rows_become_ids_classes_and_lines(void **state)
{
    (void)state;
    put_text("a.tsv", "text\tlabel\naab\ten\n\nbaaaaaaa\tde\n\tde\n");
    setting *s = filled("a.tsv", 0, BL_DATA_KEEP_BYTES);
    assert_int_equal(s->store.n_rows, 3);
    assert_string_equal(ids_of(s, 0), "2,2,3");
    assert_string_equal(ids_of(s, 1), "3,2,2,2,2");
    assert_string_equal(ids_of(s, 2), "");
    assert_int_equal(s->store.lines[0], 2);
    assert_int_equal(s->store.lines[1], 4);
    assert_int_equal(s->store.lines[2], 5);
    assert_int_equal(s->store.classes[0], 1);
    assert_int_equal(s->store.classes[1], 0);
    assert_int_equal(s->store.id_bytes, 1);
    assert_null(s->store.offsets);
    free_setting(s);
}

static void all_three_kinds_of_file_give_the_same_samples(void **state)
{
    (void)state;
    put_text("a.tsv", "n\ttext\tlabel\n1\taab\ten\n2\tb c\tde\n");
    put_text("a.csv", "label,text\r\nen,\"aab\"\r\nde,b c\r\n");
    put_text("a.jsonl", "{\"text\":\"aab\",\"label\":\"en\"}\n{\"label\":\"de\",\"text\":\"b c\"}\n");
    const char *const paths[] = {"a.tsv", "a.csv", "a.jsonl"};
    for (int i = 0; i < 3; i++) {
        setting *s = filled(paths[i], 0, BL_DATA_KEEP_BYTES);
        assert_string_equal(ids_of(s, 0), "2,2,3");
        assert_string_equal(ids_of(s, 1), "3,4,5");
        assert_int_equal(s->store.classes[0], 1);
        free_setting(s);
    }
}

static void write_rows(const char *path, int n_rows)
{
    FILE *file = fopen(path, "wb");
    fprintf(file, "text\tlabel\n");
    for (int i = 0; i < n_rows; i++)
        fprintf(file, "%c%d%c\t%s\n", 'a' + i % 26, i * 7919 % 1000, 'a' + i * 5 % 26,
                i % 3 == 0   ? "x"
                : i % 3 == 1 ? "y"
                             : "z");
    fclose(file);
}

static void dropped_ids_are_read_again_the_same(void **state)
{
    (void)state;
    write_rows("a.tsv", 300);
    setting *kept = filled("a.tsv", 0, BL_DATA_KEEP_BYTES), *dropped = filled("a.tsv", 0, 100);
    assert_null(dropped->store.ids);
    assert_null(dropped->store.ends);
    for (int i = 299; i >= 0; i--) {
        char expected[128];
        strcpy(expected, ids_of(kept, i));
        assert_string_equal(ids_of(dropped, i), expected);
    }
    free_setting(kept);
    free_setting(dropped);
}

static void wide_vocabularies_take_wider_ids(void **state)
{
    (void)state;
    FILE *file = fopen("wide.tsv", "wb");
    fprintf(file, "text\tlabel\n");
    for (int i = 0; i < 70000; i++)
        fprintf(file, "w%d\t%d\n", i, i % 2);
    fclose(file);
    const int64_t max_tokens[] = {254, 255, 65534, 65535}, id_bytes[] = {1, 2, 2, 4};
    for (int i = 0; i < 4; i++) {
        setting *s = new_setting();
        s->vocabulary.kind = BELAY_TOKENS_WORD;
        s->plan.max_tokens = max_tokens[i];
        check_ok(fill(s, "wide.tsv"), &error);
        assert_int_equal(s->store.id_bytes, id_bytes[i]);
        int64_t n_known = 0, largest = 0;
        for (int row = 0; row < 70000; row++) {
            int64_t id = atoll(ids_of(s, row));
            n_known += id != 1;
            largest = id > largest ? id : largest;
        }
        assert_int_equal(n_known, max_tokens[i]);
        assert_int_equal(largest, max_tokens[i] + 1);
        free_setting(s);
    }
}

static void a_file_that_changed_is_noticed(void **state)
{
    (void)state;
    int64_t ids[5], n_ids;
    bl_data_cursor cursor;
    put_text("a.tsv", "text\tlabel\naab\ten\nbaa\tde\n");
    setting *s = filled("a.tsv", 0, 1);
    put_text("a.tsv", "text\tlabel\naab\tde\nbaa\tde\n");
    check_ok(bl_data_cursor_init(&cursor, &s->store, &error), &error);
    check_ok(bl_data_store_get(&s->store, &cursor, 1, ids, &n_ids, &error), &error);
    check_error(bl_data_store_get(&s->store, &cursor, 0, ids, &n_ids, &error), &error,
                "belay: a.tsv:2: the file changed since it was opened (file.read)\n"
                "    try: Check the disk or the network mount.\n");
    bl_data_cursor_fini(&cursor);
    free_setting(s);
}

/* ---- the validation part ---------------------------------------------------------------------------------------- */

static void the_split_has_the_size_asked_for_and_parts_the_rows(void **state)
{
    (void)state;
    write_rows("a.tsv", 300);
    setting *s = filled("a.tsv", 0.1, BL_DATA_KEEP_BYTES), *same = filled("a.tsv", 0.1, BL_DATA_KEEP_BYTES);
    uint8_t seen[300] = {0};
    assert_int_equal(s->store.n_valid, 30);
    assert_int_equal(s->store.n_train, 270);
    for (int i = 0; i < 270; i++)
        seen[s->store.train[i]]++;
    for (int i = 0; i < 30; i++)
        seen[s->store.valid[i]]++;
    for (int i = 0; i < 300; i++)
        assert_int_equal(seen[i], 1);
    assert_memory_equal(s->store.valid, same->store.valid, 30 * sizeof(int64_t));
    free_setting(same);
    same = new_setting();
    same->plan.valid_split = 0.1;
    same->plan.seed = 2;
    check_ok(fill(same, "a.tsv"), &error);
    assert_memory_not_equal(s->store.valid, same->store.valid, 30 * sizeof(int64_t));
    free_setting(s);
    free_setting(same);
}

/* Each row has a letter of its own, so the vocabulary shows which rows it was made from. */
static void the_vocabulary_comes_from_the_training_part_only(void **state)
{
    (void)state;
    FILE *file = fopen("a.tsv", "wb");
    fprintf(file, "text\tlabel\n");
    for (int i = 0; i < 26; i++)
        fprintf(file, "%c\t%d\n", 'a' + i, i % 2);
    fclose(file);
    setting *s = filled("a.tsv", 0.25, BL_DATA_KEEP_BYTES);
    assert_int_equal(s->store.n_valid, 7);
    assert_int_equal(s->vocabulary.tokens.n, 19);
    for (int i = 0; i < s->store.n_valid; i++)
        assert_string_equal(ids_of(s, s->store.valid[i]), "1");
    for (int i = 0; i < s->store.n_train; i++)
        assert_string_not_equal(ids_of(s, s->store.train[i]), "1");
    free_setting(s);
}

static void each_label_keeps_a_row_for_training(void **state)
{
    (void)state;
    FILE *file = fopen("a.tsv", "wb");
    fprintf(file, "text\tlabel\n");
    for (int i = 0; i < 20; i++)
        fprintf(file, "ab\tlabel%d\n", i < 10 ? i : 10);
    fclose(file);
    setting *s = filled("a.tsv", 0.5, BL_DATA_KEEP_BYTES);
    bool trained[11] = {false};
    for (int i = 0; i < s->store.n_train; i++)
        trained[s->store.classes[s->store.train[i]]] = true;
    for (int i = 0; i < 11; i++)
        assert_true(trained[i]);
    assert_in_range(s->store.n_valid, 1, 9);
    free_setting(s);
}

/* ---- bad files -------------------------------------------------------------------------------------------------- */

#define LABEL_ADVICE  "    try: Evaluate on data with the labels of the training file.\n"
#define SINGLE_ADVICE "    try: Train on data with at least two labels and two different tokens.\n"
#define EMPTY_ADVICE  "    try: Give at least one sample: of a file, check that it has rows below its header.\n"

static void a_label_not_seen_in_training_is_named_with_its_line(void **state)
{
    (void)state;
    put_text("valid.tsv", "text\tlabel\naab\ten\nqa'pla'\tklingon\n");
    setting *s = new_setting();
    s->plan.make_labels = false;
    assert_int_equal(bl_data_strings_add(&s->labels, "de", 2), 0);
    assert_int_equal(bl_data_strings_add(&s->labels, "en", 2), 1);
    check_error(fill(s, "valid.tsv"), &error,
                "belay: valid.tsv:3: the label \"klingon\" was not seen in training (data.label)\n"
                "    known labels: \"de\", \"en\"\n" LABEL_ADVICE);
    free_setting(s);
}

static void many_known_labels_are_cut_and_odd_ones_escaped(void **state)
{
    (void)state;
    char name[16];
    put_text("valid.tsv", "text\tlabel\na\tx\x1B[1m\n");
    setting *s = new_setting();
    s->plan.make_labels = false;
    for (int i = 0; i < 22; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(bl_data_strings_add(&s->labels, name, (int64_t)strlen(name)), i);
    }
    check_error(
        fill(s, "valid.tsv"), &error,
        "belay: valid.tsv:2: the label \"x\\x1B[1m\" was not seen in training (data.label)\n"
        "    known labels: \"0\", \"1\", \"2\", \"3\", \"4\", \"5\", \"6\", \"7\", \"8\", \"9\", \"10\", \"11\", "
        "\"12\", \"13\", \"14\", \"15\", \"16\", \"17\", \"18\", \"19\", ... (22 in all)\n" LABEL_ADVICE);
    free_setting(s);
}

static void one_class_or_one_token_is_refused(void **state)
{
    (void)state;
    put_text("a.tsv", "text\tlabel\naab\ten\nb\ten\n");
    assert_refused("a.tsv", 0, "belay: a.tsv: every row has the label \"en\" (data.single)\n" SINGLE_ADVICE);
    put_text("a.tsv", "text\tlabel\naa\ten\na\tde\n");
    assert_refused("a.tsv", 0, "belay: a.tsv: the vocabulary has one token only: \"a\" (data.single)\n" SINGLE_ADVICE);
}

static void files_without_anything_to_learn_are_refused(void **state)
{
    (void)state;
    put_text("a.tsv", "text\tlabel\n\ten\n\tde\n");
    assert_refused("a.tsv", 0,
                   "belay: a.tsv: no token stands in the texts at least 1 time(s) (data.empty)\n"
                   "    try: Check that the column of the texts is the right one and is not empty.\n");
    put_text("a.tsv", "text\tlabel\nab\ten\n");
    assert_refused("a.tsv", 0.5, "belay: a.tsv: every row has the label \"en\" (data.single)\n" SINGLE_ADVICE);
    put_text("a.tsv", "text\tlabel\nab\ten\nab\tde\n");
    assert_refused("a.tsv", 0.5,
                   "belay: a.tsv: valid_split 0.5 leaves no validation part, as each label keeps one of the 2 rows for "
                   "training (data.empty)\n"
                   "    try: Give more rows, a validation file of its own, or a valid_split of 0.\n");
}

static void more_labels_than_the_limit_are_refused(void **state)
{
    (void)state;
    FILE *file = fopen("many.tsv", "wb");
    fprintf(file, "text\tlabel\n");
    for (int i = 0; i <= 1000000; i++)
        fprintf(file, "a\t%d\n", i);
    fclose(file);
    assert_refused("many.tsv", 0,
                   "belay: many.tsv: more than 1000000 different labels (file.limit)\n"
                   "    try: Split the data, or raise the limit that the message names.\n");
}

static void an_empty_label_is_refused(void **state)
{
    (void)state;
    put_text("a.tsv", "text\tlabel\naab\ten\nab\t\n");
    assert_refused("a.tsv", 0,
                   "belay: a.tsv:3: the label is empty (data.row)\n"
                   "    try: Fix the row at the file and line named.\n");
}

static void texts_from_memory_are_named_by_number(void **state)
{
    (void)state;
    setting *s = new_setting();
    const char *const texts[] = {"ab", "b\xFF"}, *const labels[] = {"x", "y"};
    check_ok(bl_data_rows_from(&s->rows, texts, labels, 2, &error), &error);
    check_error(bl_data_store_fill(&s->store, &s->rows, &s->plan, &error), &error,
                "belay: texts[1]: byte 2 of the text is not UTF-8 (0xFF) (data.text)\n"
                "    try: Save the file as UTF-8 without NUL bytes.\n");
    free_setting(s);
    s = new_setting();
    check_error(bl_data_rows_from(&s->rows, texts, labels, 0, &error), &error,
                "belay: no texts or no labels were given (0 texts) (data.empty)\n" EMPTY_ADVICE);
    const char *const missing[] = {"x", NULL};
    check_ok(bl_data_rows_from(&s->rows, texts, missing, 2, &error), &error);
    check_error(bl_data_store_fill(&s->store, &s->rows, &s->plan, &error), &error,
                "belay: texts[1]: the label is NULL (data.row)\n"
                "    try: Fix the row at the file and line named.\n");
    free_setting(s);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static belay_code job(double valid_split, int64_t keep_bytes)
{
    setting *s = new_setting();
    bl_data_cursor cursor = {0};
    int64_t ids[5], n_ids;
    s->plan.valid_split = valid_split;
    s->plan.keep_bytes = keep_bytes;
    belay_code code = fill(s, "a.tsv");
    if (code == BELAY_OK)
        code = bl_data_cursor_init(&cursor, &s->store, &error);
    if (code == BELAY_OK)
        code = bl_data_store_get(&s->store, &cursor, 1, ids, &n_ids, &error);
    bl_data_cursor_fini(&cursor);
    free_setting(s);
    return code;
}

static void sweep(double valid_split, int64_t keep_bytes)
{
    int64_t n = 0;
    for (;; n++) {
        bl_memory_fail_at(n);
        belay_code code = job(valid_split, keep_bytes);
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (!failed)
            break;
        if (code != BELAY_OK) /* a block that could not shrink is no failure */
            assert_int_equal(code, BELAY_MEM_EXHAUSTED);
    }
    assert_true(n > 20);
}

static void every_failing_allocation_is_named(void **state)
{
    (void)state;
    put_text("a.tsv", "text\tlabel\naab\ten\nbc\tde\nax\ten\nyc\tde\n");
    sweep(0, BL_DATA_KEEP_BYTES);
    sweep(0.3, BL_DATA_KEEP_BYTES);
    sweep(0.3, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_ids_classes_and_lines),
        cmocka_unit_test(all_three_kinds_of_file_give_the_same_samples),
        cmocka_unit_test(dropped_ids_are_read_again_the_same),
        cmocka_unit_test(wide_vocabularies_take_wider_ids),
        cmocka_unit_test(a_file_that_changed_is_noticed),
        cmocka_unit_test(the_split_has_the_size_asked_for_and_parts_the_rows),
        cmocka_unit_test(the_vocabulary_comes_from_the_training_part_only),
        cmocka_unit_test(each_label_keeps_a_row_for_training),
        cmocka_unit_test(a_label_not_seen_in_training_is_named_with_its_line),
        cmocka_unit_test(many_known_labels_are_cut_and_odd_ones_escaped),
        cmocka_unit_test(one_class_or_one_token_is_refused),
        cmocka_unit_test(files_without_anything_to_learn_are_refused),
        cmocka_unit_test(more_labels_than_the_limit_are_refused),
        cmocka_unit_test(an_empty_label_is_refused),
        cmocka_unit_test(texts_from_memory_are_named_by_number),
        cmocka_unit_test(every_failing_allocation_is_named),
    };
    return cmocka_run_group_tests(tests, enter_scratch, leave_scratch);
}
