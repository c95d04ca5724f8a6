/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of three kinds: what is well formed comes out field by field; what is not is named by file, line and reason.
 */
#include "file_support.h"

#include <sys/resource.h>

#include "base/checked.h"
#include "file/table.h"

static bl_error error;
static const char *const text_and_label[] = {"text", "label"};

static belay_code open_table(const char *path, int64_t row_limit, bl_table **table)
{
    memset(&error, 0, sizeof error);
    return bl_table_open(path, &(bl_table_options){.columns = text_and_label, .n_columns = 2, .row_limit = row_limit},
                         table, &error);
}

static bl_table *must_open(const char *path, const char *content)
{
    bl_table *table;
    put_text(path, content);
    check_ok(open_table(path, 0, &table), &error);
    return table;
}

static bool field_is(bl_table_field field, const char *text)
{
    return field.n_bytes == (int64_t)strlen(text) && memcmp(field.bytes, text, strlen(text)) == 0;
}

static bl_table_row expect_row(bl_table *table, int64_t line, const char *text, const char *label)
{
    bl_table_row row;
    bool has_row;
    check_ok(bl_table_next(table, &row, &has_row, &error), &error);
    assert_true(has_row);
    assert_int_equal(row.line, line);
    assert_true(field_is(row.fields[0], text));
    assert_true(field_is(row.fields[1], label));
    return row;
}

static void expect_end(bl_table *table)
{
    bl_table_row row;
    bool has_row;
    for (int i = 0; i < 2; i++) {
        check_ok(bl_table_next(table, &row, &has_row, &error), &error);
        assert_false(has_row);
    }
}

/* Reads to the first error, which must be this one. */
static void expect_failure(const char *path, const char *content, const char *expected)
{
    bl_table *table;
    put_text(path, content);
    belay_code code = open_table(path, 0, &table);
    bl_table_row row;
    bool has_row = true;
    while (code == BELAY_OK && has_row)
        code = bl_table_next(table, &row, &has_row, &error);
    check_error(code, &error, expected);
    bl_table_close(table);
}

/* ---- what is well formed ---------------------------------------------------------------------------------------- */

static void tsv_fields_are_split_at_tabs_and_taken_literally(void **state)
{
    (void)state;
    bl_table *table = must_open("a.tsv", "id\tlabel\ttext\n1\ten\t\"a\\t b\"\"\n2\t\t\n3\tde\t\xc3\xbc,x");
    expect_row(table, 2, "\"a\\t b\"\"", "en");
    expect_row(table, 3, "", "");
    expect_row(table, 4, "\xc3\xbc,x", "de");
    expect_end(table);
    assert_int_equal(bl_table_kind_get(table), BL_TABLE_TSV);
    check_ok(bl_table_check_rows(table, &error), &error);
    bl_table_close(table);
}

static void csv_follows_rfc_4180(void **state)
{
    (void)state;
    bl_table *table = must_open("a.csv", "\"text\",id,\"label\"\r\n"
                                         "plain,1,en\r\n"
                                         "\"a, b\",2,\"d\"\"e\"\r\n"
                                         "\"two\r\nlines\",3,fr\r\n"
                                         "\"\",4,\"\"\"\"\r\n"
                                         ",5,\r\n"
                                         "a b ,6,\"\n\n\"\r\n"
                                         "last,7,it");
    expect_row(table, 2, "plain", "en");
    expect_row(table, 3, "a, b", "d\"e");
    expect_row(table, 4, "two\r\nlines", "fr");
    expect_row(table, 6, "", "\"");
    expect_row(table, 7, "", "");
    expect_row(table, 8, "a b ", "\n\n");
    expect_row(table, 11, "last", "it");
    expect_end(table);
    bl_table_close(table);
}

static void a_quoted_field_may_end_the_file(void **state)
{
    (void)state;
    bl_table *table = must_open("a.csv", "text,label\nx,\"y\"");
    expect_row(table, 2, "x", "y");
    expect_end(table);
    bl_table_close(table);
    table = must_open("a.csv", "text,label\nx,\"y\"\r");
    expect_row(table, 2, "x", "y");
    expect_end(table);
    bl_table_close(table);
}

static void jsonl_gives_texts_numbers_and_booleans(void **state)
{
    (void)state;
    bl_table *table = must_open("a.jsonl", "{\"text\": \"a\\n\\u00fc\", \"label\": 3}\n"
                                           "{\"label\": true, \"more\": [1, {\"x\": null}], \"text\": \"\"}\n"
                                           "  \t\r\n"
                                           " {\"text\": \"x\", \"label\": -9223372036854775808}\r\n"
                                           "{\"text\": 0.1, \"label\": false}");
    expect_row(table, 1, "a\n\xc3\xbc", "3");
    expect_row(table, 2, "", "true");
    expect_row(table, 4, "x", "-9223372036854775808");
    expect_row(table, 5, "0.10000000000000001", "false");
    expect_end(table);
    bl_table_close(table);
}

static void a_byte_order_mark_and_empty_lines_are_skipped(void **state)
{
    (void)state;
    const char *content[] = {"\xEF\xBB\xBF\n\r\ntext\tlabel\n\n\nx\ty\n\n\n",
                             "\xEF\xBB\xBF\n\r\ntext,label\n\n\nx,y\n\n\n",
                             "\xEF\xBB\xBF\n\r\n\n\n\n{\"text\":\"x\",\"label\":\"y\"}\n\n\n"};
    const char *paths[] = {"a.tsv", "a.csv", "a.jsonl"};
    for (int i = 0; i < 3; i++) {
        bl_table *table = must_open(paths[i], content[i]);
        expect_row(table, 6, "x", "y");
        expect_end(table);
        bl_table_rewind(table);
        expect_row(table, 6, "x", "y");
        bl_table_close(table);
    }
}

static void one_column_may_be_asked_for_twice(void **state)
{
    (void)state;
    const char *const twice[] = {"label", "text", "label"};
    bl_table *table;
    bl_table_row row;
    bool has_row;
    put_text("a.csv", "text,label\n\"x\"\"\",\"y\"\"\"\n");
    check_ok(bl_table_open("a.csv", &(bl_table_options){.columns = twice, .n_columns = 3}, &table, &error), &error);
    check_ok(bl_table_next(table, &row, &has_row, &error), &error);
    assert_true(field_is(row.fields[0], "y\""));
    assert_true(field_is(row.fields[1], "x\""));
    assert_true(field_is(row.fields[2], "y\""));
    bl_table_close(table);
}

static void the_kind_comes_from_the_name_unless_it_is_given(void **state)
{
    (void)state;
    bl_table *table = must_open("A.TSV", "text\tlabel\nx\ty\n");
    expect_row(table, 2, "x", "y");
    bl_table_close(table);
    put_text("noname", "text,label\nx,y\n");
    bl_table_options options = {.kind = BL_TABLE_CSV, .columns = text_and_label, .n_columns = 2};
    check_ok(bl_table_open("noname", &options, &table, &error), &error);
    expect_row(table, 2, "x", "y");
    bl_table_close(table);
    check_error(open_table("noname", 0, &table), &error,
                "belay: 'noname' is no table: its name must end in .tsv, .csv or .jsonl (conf.value)\n"
                "    try: Rename the file after what it holds, or convert it to one of the three.\n");
    assert_null(table);
}

/* Every row is found again by what it told of itself, in any order. */
static void check_seek(const char *path, const char *content, int n_rows)
{
    bl_table *table = must_open(path, content);
    int64_t offsets[16], lines[16];
    char texts[16][64];
    bl_table_row row;
    bool has_row;
    for (int i = 0; i < n_rows; i++) {
        check_ok(bl_table_next(table, &row, &has_row, &error), &error);
        assert_true(has_row);
        offsets[i] = row.offset;
        lines[i] = row.line;
        snprintf(texts[i], sizeof texts[i], "%.*s", (int)row.fields[0].n_bytes, row.fields[0].bytes);
    }
    expect_end(table);
    for (int i = 0; i < 3 * n_rows; i++) {
        int pick = i * 7 % n_rows;
        bl_table_seek(table, offsets[pick], lines[pick]);
        check_ok(bl_table_next(table, &row, &has_row, &error), &error);
        assert_true(has_row);
        assert_int_equal(row.offset, offsets[pick]);
        assert_int_equal(row.line, lines[pick]);
        assert_true(field_is(row.fields[0], texts[pick]));
    }
    bl_table_close(table);
}

static void a_row_is_found_again_by_its_offset(void **state)
{
    (void)state;
    check_seek("a.tsv", "\xEF\xBB\xBFtext\tlabel\none\t1\n\ntwo\t2\r\nthree\t3", 3);
    check_seek("a.csv", "text,label\n\"o\"\"ne\",1\n\n\"t\nw\no\",2\r\nthree,3\n\"\",4", 4);
    check_seek("a.jsonl", "{\"text\":\"one\",\"label\":1}\n\n{\"text\":\"two\",\"label\":2}\n", 2);
}

static void many_rows_come_out_as_they_went_in(void **state)
{
    (void)state;
    enum { n_rows = 20000 };
    FILE *file = fopen("a.csv", "w");
    fprintf(file, "label,text\n");
    for (int i = 0; i < n_rows; i++)
        fprintf(file, "%d,\"%*s\"\"\n%d\"\n", i, i % 97, "", i);
    fclose(file);
    bl_table *table;
    check_ok(open_table("a.csv", 0, &table), &error);
    for (int i = 0; i < n_rows; i++) {
        char text[256], label[16];
        snprintf(text, sizeof text, "%*s\"\n%d", i % 97, "", i);
        snprintf(label, sizeof label, "%d", i);
        expect_row(table, 2 + 2 * (int64_t)i, text, label);
    }
    expect_end(table);
    bl_table_close(table);
}

/* ---- files without rows -------------------------------------------------------------------------------------------
 */

static void expect_empty(const char *path, const char *content, const char *expected)
{
    bl_table *table = must_open(path, content);
    expect_end(table);
    check_error(bl_table_check_rows(table, &error), &error, expected);
    bl_table_close(table);
}

#define EMPTY_ADVICE "    try: Give at least one sample: of a file, check that it has rows below its header.\n"

static void a_file_without_rows_says_so(void **state)
{
    (void)state;
    expect_empty("a.tsv", "", "belay: 'a.tsv' is empty (data.empty)\n" EMPTY_ADVICE);
    expect_empty("a.csv", "\xEF\xBB\xBF", "belay: 'a.csv' is empty (data.empty)\n" EMPTY_ADVICE);
    expect_empty("a.jsonl", "\n \n", "belay: 'a.jsonl' is empty (data.empty)\n" EMPTY_ADVICE);
    expect_empty("a.tsv", "text\tlabel", "belay: 'a.tsv' has a header and no rows (data.empty)\n" EMPTY_ADVICE);
    expect_empty("a.csv", "text,label\r\n\r\n", "belay: 'a.csv' has a header and no rows (data.empty)\n" EMPTY_ADVICE);
}

/* ---- what is not well formed --------------------------------------------------------------------------------------
 */

static void files_that_cannot_be_read_are_named(void **state)
{
    (void)state;
    bl_table *table;
    mkdir("folder", 0777);
    check_error(open_table("missing.tsv", 0, &table), &error,
                "belay: cannot open 'missing.tsv': No such file or directory (file.open)\n"
                "    try: Check that the path exists and may be read.\n");
    check_error(open_table("folder", 0, &table), &error,
                "belay: cannot open 'folder': it is a directory (file.open)\n"
                "    try: Check that the path exists and may be read.\n");
}

#define COLUMN_ADVICE                                                                                                  \
    "    try: Name the columns of the texts and the labels (options text and label; --text and --label).\n"

static void a_missing_column_names_those_present(void **state)
{
    (void)state;
    expect_failure("a.tsv", "id\twords\tLabel\n1\tx\ty\n",
                   "belay: 'a.tsv' has no column 'text' (data.column)\n"
                   "    columns present: 'id', 'words', 'Label'\n" COLUMN_ADVICE);
    expect_failure("a.csv", "text,\" label\",\"a\"\"\x1b\"\nx,y,z\n",
                   "belay: 'a.csv' has no column 'label' (data.column)\n"
                   "    columns present: 'text', ' label', 'a\"\\x1B'\n" COLUMN_ADVICE);
    expect_failure("a.jsonl", "{\"id\": 1, \"text\": \"x\"}\n",
                   "belay: 'a.jsonl' has no column 'label' (data.column)\n"
                   "    columns present: 'id', 'text'\n" COLUMN_ADVICE);
    expect_failure("a.jsonl", "{}\n",
                   "belay: 'a.jsonl' has no column 'text' (data.column)\n"
                   "    columns present: none\n" COLUMN_ADVICE);
}

static void a_long_list_of_columns_is_cut(void **state)
{
    (void)state;
    bl_table *table;
    FILE *file = fopen("a.tsv", "w");
    for (int i = 0; i < 5000; i++)
        fprintf(file, "%scolumn number %d", i > 0 ? "\t" : "", i);
    fclose(file);
    assert_int_equal(open_table("a.tsv", 0, &table), BELAY_DATA_COLUMN);
    assert_non_null(strstr(error.facts, "columns present: 'column number 0', 'column number 1', "));
    assert_string_equal(error.facts + strlen(error.facts) - 6, ", ...\n");
}

static void a_column_that_stands_twice_is_named(void **state)
{
    (void)state;
    expect_failure("a.tsv", "text\tlabel\ttext\n",
                   "belay: 'a.tsv' has two columns 'text' (data.column)\n"
                   "    they are columns 1 and 3\n"
                   "    try: Rename one of them.\n");
}

static void a_ragged_row_tells_both_counts(void **state)
{
    (void)state;
    const char *advice = "    try: Fix the row at the file and line named.\n";
    char expected[512];
    snprintf(expected, sizeof expected,
             "belay: a.tsv:3: the row has 1 field, the header has 2 (data.row)\n    the row begins: x y\n%s", advice);
    expect_failure("a.tsv", "text\tlabel\na\tb\nx y\n", expected);
    snprintf(expected, sizeof expected,
             "belay: a.csv:4: the row has 3 fields, the header has 2 (data.row)\n"
             "    the row begins: \"x\"\"\",y,\"z\\x0A\"\n%s",
             advice);
    expect_failure("a.csv", "text,label\n\"a\n\",b\n\"x\"\"\",y,\"z\n\"\n", expected);
}

static void quotes_out_of_place_are_named(void **state)
{
    (void)state;
    const char *advice = "    try: Put the whole field in quotes and double the quotes within it.\n";
    char expected[512];
    snprintf(expected, sizeof expected,
             "belay: a.csv:3: a quote stands inside a field that does not start with one (file.format)\n%s", advice);
    expect_failure("a.csv", "text,label\na,b\n5\" disk,c\n", expected);
    snprintf(expected, sizeof expected, "belay: a.csv:2: text follows a closing quote (file.format)\n%s", advice);
    expect_failure("a.csv", "text,label\n\"a\"b,c\n", expected);
    expect_failure("a.csv", "text,label\n\"a\"\rb,c\n", expected);
    snprintf(expected, sizeof expected, "belay: a.csv:4: text follows a closing quote (file.format)\n%s", advice);
    expect_failure("a.csv", "text,label\n\"a\n\n\" ,c\n", expected);
    snprintf(expected, sizeof expected, "belay: a.csv:4: a quote opens here and is never closed (file.format)\n%s",
             advice);
    expect_failure("a.csv", "text,label\na,b\n\"x\ny\",\"z\n\n\n", expected);
}

static void bytes_that_are_not_text_are_named(void **state)
{
    (void)state;
    const char *advice = "    try: Save the file as UTF-8 without NUL bytes.\n";
    char expected[512];
    snprintf(expected, sizeof expected,
             "belay: a.tsv:2: byte 12 of the line is 0xFF, which is not UTF-8 (data.text)\n%s", advice);
    expect_failure("a.tsv", "text\tlabel\nhello world\xff\tx\n", expected);
    snprintf(expected, sizeof expected,
             "belay: a.csv:3: byte 2 of the line is 0xC3, which is not UTF-8 (data.text)\n%s", advice);
    expect_failure("a.csv", "text,label\n\"a\nb\xc3\",x\n", expected);
    snprintf(expected, sizeof expected,
             "belay: a.jsonl:1: byte 11 of the line is 0xED, which is not UTF-8 (data.text)\n%s", advice);
    expect_failure("a.jsonl", "{\"text\": \"\xed\xa0\x80\"}", expected);
    expect_failure("a.tsv", "\xff\xfet\n",
                   "belay: a.tsv:1: byte 1 of the line is 0xFF, which is not UTF-8 (data.text)\n"
                   "    try: This looks like UTF-16; save the file as UTF-8.\n");
    snprintf(expected, sizeof expected, "belay: a.jsonl:1: column 18: a text holds \\u0000, a NUL (data.text)\n%s",
             advice);
    expect_failure("a.jsonl", "{\"text\": \"a\\u0000\", \"label\": 1}", expected);
}

static void a_nul_is_named_wherever_it_stands(void **state)
{
    (void)state;
    for (int at = 0; at < 20; at++) {
        char content[40] = "text\tlabel\n0123456789012345678901\tx\n", expected[512];
        size_t n = strlen(content);
        content[11 + at] = '\0';
        put_bytes("a.tsv", content, n);
        bl_table *table;
        belay_code code = open_table("a.tsv", 0, &table);
        snprintf(expected, sizeof expected,
                 "belay: a.tsv:2: byte %d of the line is 0x00, a NUL (data.text)\n"
                 "    try: Save the file as UTF-8 without NUL bytes.\n",
                 at + 1);
        check_error(code, &error, expected);
    }
}

static void json_that_is_not_a_row_is_named(void **state)
{
    (void)state;
    const char *format_advice = "    try: Check the file at the place named; it may be cut short or of another kind.\n";
    const char *row_advice = "    try: Fix the row at the file and line named.\n";
    const char *good = "{\"text\":\"x\",\"label\":1}\n";
    struct {
        const char *line, *what;
        bool is_format;
    } rows[] = {
        {"{\"text\":\"x\"", "column 11: '}' expected near end of file (file.format)", true},
        {"{\"text\":\"x\",\"text\":\"y\"}", "column 18: duplicate object key near '\"text\"' (file.format)", true},
        {"text,label", "column 4: '[' or '{' expected near 'text' (file.format)", true},
        {"{\"text\":\"x\",\"label\":99999999999999999999}",
         "column 40: too big integer near '99999999999999999999' (file.format)", true},
        {"[1, 2]", "the row is an array, wanted an object (data.row)", false},
        {"{\"text\":\"x\",\"label\":null}", "'label' is null, wanted a text, a number or a boolean (data.row)", false},
        {"{\"text\":{},\"label\":1}", "'text' is an object, wanted a text, a number or a boolean (data.row)", false},
        {"{\"text\":\"x\"}", "the row has no 'label' (data.row)\n    columns present: 'text'", false},
    };
    for (int i = 0; i < BL_COUNT(rows); i++) {
        char content[512], expected[1024];
        snprintf(content, sizeof content, "%s\n%s\n", good, rows[i].line);
        snprintf(expected, sizeof expected, "belay: a.jsonl:3: %s\n%s", rows[i].what,
                 rows[i].is_format ? format_advice : row_advice);
        expect_failure("a.jsonl", content, expected);
    }
}

/* ---- limits ---------------------------------------------------------------------------------------------------------
 */

static void a_row_up_to_the_limit_passes_and_one_more_byte_does_not(void **state)
{
    (void)state;
    const char *ends[] = {"\n", "\r\n", ""};
    const char *advice = "    try: Split the row, or check that the file is the table it should be.\n";
    for (int kind = 0; kind < 2; kind++)
        for (int end = 0; end < 3; end++)
            for (int extra = 0; extra < 40; extra++) {
                char content[512], filler[64] = "", expected[512];
                memset(filler, 'x', (size_t)(18 + extra));
                filler[18 + extra] = '\0';
                const char *separator = kind == 0 ? "\t" : ",";
                const char *path = kind == 0 ? "a.tsv" : "a.csv";
                snprintf(content, sizeof content, "text%slabel\n%s%sy%s", separator, filler, separator, ends[end]);
                put_text(path, content);
                bl_table *table;
                belay_code code = open_table(path, 20, &table);
                if (extra == 0) {
                    check_ok(code, &error);
                    expect_row(table, 2, filler, "y");
                    expect_end(table);
                } else {
                    snprintf(expected, sizeof expected, "belay: %s:2: the row is longer than 20 bytes (file.limit)\n%s",
                             path, advice);
                    check_error(code, &error, expected);
                }
                bl_table_close(table);
            }
}

static void a_quote_that_runs_into_the_limit_is_named(void **state)
{
    (void)state;
    bl_table *table;
    put_text("a.csv", "text,label\na\n,\"open\nand so on and on and on and on\n");
    assert_int_equal(open_table("a.csv", 16, &table), BELAY_DATA_ROW);
    put_text("a.csv", "text,label\n\"a\n\",\"open\nand so on and on and on and on\n");
    check_error(open_table("a.csv", 16, &table), &error,
                "belay: a.csv:2: the row is longer than 16 bytes (file.limit)\n"
                "    a quote that opens on line 3 is not closed before\n"
                "    try: Split the row, or check that the file is the table it should be.\n");
}

static void a_line_of_100_mb_is_refused_in_bounded_memory(void **state)
{
    (void)state;
    put_text("a.tsv", "text\tlabel\n");
    FILE *file = fopen("a.tsv", "r+");
    fseek(file, 100 * 1024 * 1024, SEEK_SET); /* a hole reads as NUL bytes */
    fputc('\n', file);
    fclose(file);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    bl_table *table;
    check_error(open_table("a.tsv", 0, &table), &error,
                "belay: a.tsv:2: the row is longer than 16777216 bytes (file.limit)\n"
                "    try: Split the row, or check that the file is the table it should be.\n");
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 90 * 1024);
}

static void a_header_of_too_many_columns_is_refused(void **state)
{
    (void)state;
    FILE *file = fopen("a.csv", "w");
    for (int i = 0; i < 65537; i++)
        fputs(i > 0 ? ",c" : "c", file);
    fclose(file);
    bl_table *table;
    check_error(open_table("a.csv", 0, &table), &error,
                "belay: a.csv:1: the header has more than 65536 columns (file.limit)\n"
                "    try: Split the data, or raise the limit that the message names.\n");
}

/* ---- memory ---------------------------------------------------------------------------------------------------------
 */

static belay_code read_all(const char *path)
{
    bl_table *table;
    TRY(open_table(path, 0, &table));
    bl_table_row row;
    bool has_row = true;
    belay_code code = BELAY_OK;
    while (code == BELAY_OK && has_row)
        code = bl_table_next(table, &row, &has_row, &error);
    bl_table_close(table);
    return code;
}

static void each_failing_allocation_is_named_and_leaks_nothing(void **state)
{
    (void)state;
    const char *paths[] = {"a.tsv", "a.csv", "a.jsonl"};
    put_text("a.tsv", "text\tlabel\nx\ty\n");
    put_text("a.csv", "text,label\nx,\"y\"\n");
    put_text("a.jsonl", "{\"text\":\"x\",\"label\":2}\n{\"text\":\"x\",\"label\":1.5,\"more\":{\"x\":[true]}}\n");
    for (int i = 0; i < 3; i++)
        for (int64_t n = 0;; n++) {
            char expected[256];
            bl_memory_fail_at(n);
            belay_code code = read_all(paths[i]);
            bool failed = bl_memory_failed();
            bl_memory_fail_at(-1);
            if (!failed) {
                check_ok(code, &error);
                assert_true(n >= 5);
                break;
            }
            snprintf(expected, sizeof expected,
                     "belay: no memory to read '%s' (mem.exhausted)\n"
                     "    try: Use a smaller batch, sequence or model, or a machine with more memory.\n",
                     paths[i]);
            check_error(code, &error, expected);
        }
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, enter_scratch, leave_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(tsv_fields_are_split_at_tabs_and_taken_literally),
        IN_SCRATCH(csv_follows_rfc_4180),
        IN_SCRATCH(a_quoted_field_may_end_the_file),
        IN_SCRATCH(jsonl_gives_texts_numbers_and_booleans),
        IN_SCRATCH(a_byte_order_mark_and_empty_lines_are_skipped),
        IN_SCRATCH(one_column_may_be_asked_for_twice),
        IN_SCRATCH(the_kind_comes_from_the_name_unless_it_is_given),
        IN_SCRATCH(a_row_is_found_again_by_its_offset),
        IN_SCRATCH(many_rows_come_out_as_they_went_in),
        IN_SCRATCH(a_file_without_rows_says_so),
        IN_SCRATCH(files_that_cannot_be_read_are_named),
        IN_SCRATCH(a_missing_column_names_those_present),
        IN_SCRATCH(a_long_list_of_columns_is_cut),
        IN_SCRATCH(a_column_that_stands_twice_is_named),
        IN_SCRATCH(a_ragged_row_tells_both_counts),
        IN_SCRATCH(quotes_out_of_place_are_named),
        IN_SCRATCH(bytes_that_are_not_text_are_named),
        IN_SCRATCH(a_nul_is_named_wherever_it_stands),
        IN_SCRATCH(json_that_is_not_a_row_is_named),
        IN_SCRATCH(a_row_up_to_the_limit_passes_and_one_more_byte_does_not),
        IN_SCRATCH(a_quote_that_runs_into_the_limit_is_named),
        IN_SCRATCH(a_line_of_100_mb_is_refused_in_bounded_memory),
        IN_SCRATCH(a_header_of_too_many_columns_is_refused),
        IN_SCRATCH(each_failing_allocation_is_named_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
