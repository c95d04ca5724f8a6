/* SPDX-License-Identifier: Apache-2.0 */
/* How texts are cut, counted, numbered and written down; and that nothing read back is believed. */
#include "file/file_support.h"

#include "data/words.h"

static bl_error error;

/* The tokens of a text with bars around them: "|a|b|". */
static const char *cut(belay_tokens kind, bool keep_case, const char *text)
{
    static char out[512];
    static bl_data_pieces pieces;
    const char *token;
    int64_t n;
    size_t used = 1;
    strcpy(out, "|");
    check_ok(bl_data_pieces_set(&pieces, kind, keep_case, text, (int64_t)strlen(text), &error), &error);
    while (bl_data_pieces_next(&pieces, &token, &n))
        used += (size_t)snprintf(out + used, sizeof out - used, "%.*s|", (int)n, token);
    bl_data_pieces_fini(&pieces);
    return out;
}

static const char *chars(const char *text) { return cut(BELAY_TOKENS_CHAR, false, text); }
static const char *words(const char *text) { return cut(BELAY_TOKENS_WORD, false, text); }

static void char_tokens_are_grapheme_clusters(void **state)
{
    (void)state;
    assert_string_equal(chars(""), "|");
    assert_string_equal(chars("abc d"), "|a|b|c| |d|");
    assert_string_equal(chars("a\r\nb"), "|a|\r\n|b|");
    assert_string_equal(chars("x\xCC\x82y"), "|x\xCC\x82|y|"); /* x + circumflex */
    assert_string_equal(chars("\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA!"),
                        "|\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA|!|");              /* a flag */
    assert_string_equal(chars("\xE1\x84\x80\xE1\x85\xA1"), "|\xEA\xB0\x80|"); /* hangul jamo */
}

static void texts_are_brought_to_nfkc_and_folded(void **state)
{
    (void)state;
    assert_string_equal(chars("\xEF\xAC\x81"), "|f|i|");   /* the ligature fi */
    assert_string_equal(chars("e\xCC\x81"), "|\xC3\xA9|"); /* e + acute is one code point */
    assert_string_equal(chars("\xC3\x89"), "|\xC3\xA9|");  /* capital e acute */
    assert_string_equal(chars("Stra\xC3\x9F"
                              "e"),
                        "|s|t|r|a|s|s|e|");                  /* sharp s */
    assert_string_equal(chars("co\xC2\xADop"), "|c|o|o|p|"); /* a soft hyphen vanishes */
    assert_string_equal(chars("\xEF\xBC\xA1"), "|a|");       /* fullwidth A */
    assert_string_equal(cut(BELAY_TOKENS_CHAR, true, "\xC3\x89Z"), "|\xC3\x89|Z|");
}

static void words_are_runs_of_letters_numbers_and_connectors(void **state)
{
    (void)state;
    assert_string_equal(words(""), "|");
    assert_string_equal(words(" \t\n"), "|");
    assert_string_equal(words("Hello, World!"), "|hello|,|world|!|");
    assert_string_equal(words("snake_case x2 3.14"), "|snake_case|x2|3|.|14|");
    assert_string_equal(words("na\xC3\xAFve caf\xC3\xA9"), "|na\xC3\xAFve|caf\xC3\xA9|");
    assert_string_equal(words("a+b=c"), "|a|+|b|=|c|");
}

static void apostrophes_inside_a_word_belong_to_it(void **state)
{
    (void)state;
    assert_string_equal(words("don't"), "|don't|");
    assert_string_equal(words("l\xE2\x80\x99"
                              "eau"),
                        "|l\xE2\x80\x99"
                        "eau|");
    assert_string_equal(words("'quoted' dogs' _'a"), "|'|quoted|'|dogs|'|_|'|a|");
    assert_string_equal(words("a''b"), "|a|'|'|b|");
}

static void wide_letters_are_words_of_their_own(void **state)
{
    (void)state;
    assert_string_equal(words("\xE6\x97\xA5\xE6\x9C\xACgo"), "|\xE6\x97\xA5|\xE6\x9C\xAC|go|");
    assert_string_equal(words("go\xE6\x97\xA5"), "|go|\xE6\x97\xA5|");
}

static void marks_stay_with_what_is_before_them(void **state)
{
    (void)state;
    assert_string_equal(words("x\xCC\x82y"), "|x\xCC\x82y|");
    assert_string_equal(words("+\xCC\x82x"), "|+\xCC\x82|x|");
    assert_string_equal(words("\xCC\x82 a"), "|\xCC\x82|a|");
    assert_string_equal(words("d\xCC\x82't"), "|d\xCC\x82't|");
}

static void texts_that_are_no_text_are_refused(void **state)
{
    (void)state;
    bl_data_pieces pieces = {0};
    check_error(bl_data_pieces_set(&pieces, BELAY_TOKENS_CHAR, false, "ab\xFF", 3, &error), &error,
                "belay: byte 3 of the text is not UTF-8 (0xFF) (data.text)\n"
                "    try: Save the file as UTF-8 without NUL bytes.\n");
    check_error(bl_data_pieces_set(&pieces, BELAY_TOKENS_CHAR, false, "a\0b", 3, &error), &error,
                "belay: byte 2 of the text is NUL (data.text)\n"
                "    try: Save the file as UTF-8 without NUL bytes.\n");
    check_error(bl_data_pieces_set(&pieces, BELAY_TOKENS_WORD, false, "\xED\xA0\x80", 3, &error), &error,
                "belay: byte 1 of the text is not UTF-8 (0xED) (data.text)\n"
                "    try: Save the file as UTF-8 without NUL bytes.\n");
    bl_data_pieces_fini(&pieces);
}

/* ---- vocabularies ----------------------------------------------------------------------------------------------- */

static bl_data_vocabulary vocabulary_of(const char *text, int64_t min_count, int64_t max_tokens)
{
    bl_data_strings counts = {0};
    bl_data_pieces pieces = {0};
    bl_data_vocabulary v = {.kind = BELAY_TOKENS_CHAR};
    check_ok(bl_data_count_tokens(&counts, &pieces, v.kind, false, text, (int64_t)strlen(text), &error), &error);
    check_ok(bl_data_vocabulary_fill(&v, &counts, min_count, max_tokens, &error), &error);
    bl_data_strings_fini(&counts);
    bl_data_pieces_fini(&pieces);
    return v;
}

static void assert_vocabulary(const char *text, int64_t min_count, int64_t max_tokens, const char *tokens)
{
    bl_data_vocabulary v = vocabulary_of(text, min_count, max_tokens);
    char *json;
    check_ok(bl_data_labels_to_json(&v.tokens, &json, &error), &error);
    assert_string_equal(json, tokens);
    bl_free(json);
    bl_data_vocabulary_fini(&v);
}

static void tokens_are_ordered_by_count_then_bytes(void **state)
{
    (void)state;
    assert_vocabulary("bca cb c zz", 1, 100, "[\" \",\"c\",\"b\",\"z\",\"a\"]");
    assert_vocabulary("zz cb c bca", 1, 100, "[\" \",\"c\",\"b\",\"z\",\"a\"]");
}

static void rare_tokens_and_those_past_the_limit_are_left_out(void **state)
{
    (void)state;
    assert_vocabulary("bca cb c zz", 2, 100, "[\" \",\"c\",\"b\",\"z\"]");
    assert_vocabulary("bca cb c zz", 1, 3, "[\" \",\"c\",\"b\"]");
    assert_vocabulary("bca cb c zz", 9, 3, "[]");
}

static void ids_start_behind_padding_and_unknown(void **state)
{
    (void)state;
    bl_data_vocabulary v = vocabulary_of("aab", 1, 100);
    bl_data_pieces pieces = {0};
    int64_t ids[4] = {-7, -7, -7, -7}, n_ids;
    check_ok(bl_data_encode(&v, &pieces, "bAx", 3, ids, 4, &n_ids, &error), &error);
    assert_int_equal(n_ids, 3);
    assert_int_equal(ids[0], 3);
    assert_int_equal(ids[1], 2);
    assert_int_equal(ids[2], 1);
    assert_int_equal(ids[3], -7);
    check_ok(bl_data_encode(&v, &pieces, "abab", 4, ids, 2, &n_ids, &error), &error);
    assert_int_equal(n_ids, 2);
    assert_int_equal(ids[0], 2);
    assert_int_equal(ids[1], 3);
    assert_int_equal(ids[2], 1);
    bl_data_pieces_fini(&pieces);
    bl_data_vocabulary_fini(&v);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static void a_vocabulary_comes_back_from_its_json(void **state)
{
    (void)state;
    bl_data_vocabulary v = vocabulary_of("\"\\\xC3\xA9\xC3\xA9", 1, 100), back = {0};
    char *json, *again;
    check_ok(bl_data_vocabulary_to_json(&v, &json, &error), &error);
    assert_string_equal(json, "{\"version\":1,\"kind\":\"char\",\"keep_case\":false,\"tokens\":[\"\xC3\xA9\",\"\\\"\","
                              "\"\\\\\"]}");
    check_ok(bl_data_vocabulary_from_json(&back, json, (int64_t)strlen(json), &error), &error);
    check_ok(bl_data_vocabulary_to_json(&back, &again, &error), &error);
    assert_string_equal(again, json);
    bl_free(json);
    bl_free(again);
    bl_data_vocabulary_fini(&v);
    bl_data_vocabulary_fini(&back);
}

static void assert_refused(const char *json, const char *headline)
{
    bl_data_vocabulary v = {0};
    char expected[512];
    snprintf(expected, sizeof expected,
             "belay: the tokenizer's JSON%s (file.format)\n"
             "    try: Check the file at the place named; it may be cut short or of another kind.\n",
             headline);
    check_error(bl_data_vocabulary_from_json(&v, json, (int64_t)strlen(json), &error), &error, expected);
    bl_data_vocabulary_fini(&v);
}

static void every_value_of_the_json_is_checked(void **state)
{
    (void)state;
#define GOOD "\"version\":1,\"kind\":\"word\",\"keep_case\":true"
    assert_refused("[]", ": is not an object");
    assert_refused("{}", ": version is not 1");
    assert_refused("{\"version\":2}", ": version is not 1");
    assert_refused("{\"version\":\"1\"}", ": version is not 1");
    assert_refused("{\"version\":1}", ": kind is neither \"char\" nor \"word\"");
    assert_refused("{\"version\":1,\"kind\":0}", ": kind is neither \"char\" nor \"word\"");
    assert_refused("{\"version\":1,\"kind\":\"chars\"}", ": kind is neither \"char\" nor \"word\"");
    assert_refused("{\"version\":1,\"kind\":\"char\",\"keep_case\":0}", ": keep_case is neither true nor false");
    assert_refused("{" GOOD "}", ": tokens: is not an array of texts");
    assert_refused("{" GOOD ",\"tokens\":{}}", ": tokens: is not an array of texts");
    assert_refused("{" GOOD ",\"tokens\":[\"a\",1]}", ": tokens: entry 1 is not a text of at least one byte");
    assert_refused("{" GOOD ",\"tokens\":[\"\"]}", ": tokens: entry 0 is not a text of at least one byte");
    assert_refused("{" GOOD ",\"tokens\":[\"a\",\"b\",\"a\"]}", ": tokens: entry 2 is the same as entry 0");
#undef GOOD
}

static void labels_come_back_from_their_json_checked(void **state)
{
    (void)state;
    bl_data_strings set = {0};
    check_ok(bl_data_labels_from_json(&set, "[\"de\",\"en\"]", 11, &error), &error);
    assert_int_equal(set.n, 2);
    assert_int_equal(bl_data_strings_find(&set, "en", 2), 1);
    bl_data_strings_fini(&set);
    check_error(bl_data_labels_from_json(&set, "[]", 2, &error), &error,
                "belay: the labels' JSON: has no entries (file.format)\n"
                "    try: Check the file at the place named; it may be cut short or of another kind.\n");
    bl_data_strings_fini(&set);
    check_error(bl_data_labels_from_json(&set, "[\"a\",null]", 10, &error), &error,
                "belay: the labels' JSON: entry 1 is not a text of at least one byte (file.format)\n"
                "    try: Check the file at the place named; it may be cut short or of another kind.\n");
    bl_data_strings_fini(&set);
}

static void assert_label_order(const char *const *given, int n, const char *expected)
{
    bl_data_strings counts = {0}, labels = {0};
    char *json;
    for (int i = 0; i < n; i++)
        assert_true(bl_data_strings_add(&counts, given[i], (int64_t)strlen(given[i])) >= 0);
    check_ok(bl_data_labels_fill(&labels, &counts, &error), &error);
    check_ok(bl_data_labels_to_json(&labels, &json, &error), &error);
    assert_string_equal(json, expected);
    bl_free(json);
    bl_data_strings_fini(&counts);
    bl_data_strings_fini(&labels);
}

static void labels_are_ordered_by_bytes_or_by_value(void **state)
{
    (void)state;
    assert_label_order((const char *const[]){"it", "de", "fr", "de"}, 4, "[\"de\",\"fr\",\"it\"]");
    assert_label_order((const char *const[]){"10", "9", "0", "100"}, 4, "[\"0\",\"9\",\"10\",\"100\"]");
    assert_label_order((const char *const[]){"10", "9", "07"}, 3, "[\"07\",\"10\",\"9\"]");
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static belay_code job(void)
{
    bl_data_strings counts = {0};
    bl_data_pieces pieces = {0};
    bl_data_vocabulary v = {0}, back = {0};
    char *json = NULL;
    int64_t ids[4], n_ids;
    belay_code code = bl_data_count_tokens(&counts, &pieces, BELAY_TOKENS_CHAR, false, "abcabx", 6, &error);
    if (code == BELAY_OK)
        code = bl_data_vocabulary_fill(&v, &counts, 1, 100, &error);
    if (code == BELAY_OK)
        code = bl_data_vocabulary_to_json(&v, &json, &error);
    if (code == BELAY_OK)
        code = bl_data_vocabulary_from_json(&back, json, (int64_t)strlen(json), &error);
    if (code == BELAY_OK)
        code = bl_data_encode(&back, &pieces, "xyz", 3, ids, 4, &n_ids, &error);
    bl_free(json);
    bl_data_strings_fini(&counts);
    bl_data_pieces_fini(&pieces);
    bl_data_vocabulary_fini(&v);
    bl_data_vocabulary_fini(&back);
    return code;
}

static void every_failing_allocation_is_named(void **state)
{
    (void)state;
    int64_t n = 0;
    for (;; n++) {
        bl_memory_fail_at(n);
        belay_code code = job();
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (!failed)
            break;
        assert_int_equal(code, BELAY_MEM_EXHAUSTED);
    }
    check_ok(job(), &error);
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(char_tokens_are_grapheme_clusters),
        cmocka_unit_test(texts_are_brought_to_nfkc_and_folded),
        cmocka_unit_test(words_are_runs_of_letters_numbers_and_connectors),
        cmocka_unit_test(apostrophes_inside_a_word_belong_to_it),
        cmocka_unit_test(wide_letters_are_words_of_their_own),
        cmocka_unit_test(marks_stay_with_what_is_before_them),
        cmocka_unit_test(texts_that_are_no_text_are_refused),
        cmocka_unit_test(tokens_are_ordered_by_count_then_bytes),
        cmocka_unit_test(rare_tokens_and_those_past_the_limit_are_left_out),
        cmocka_unit_test(ids_start_behind_padding_and_unknown),
        cmocka_unit_test(a_vocabulary_comes_back_from_its_json),
        cmocka_unit_test(every_value_of_the_json_is_checked),
        cmocka_unit_test(labels_come_back_from_their_json_checked),
        cmocka_unit_test(labels_are_ordered_by_bytes_or_by_value),
        cmocka_unit_test(every_failing_allocation_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
