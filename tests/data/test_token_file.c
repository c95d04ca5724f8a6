/* SPDX-License-Identifier: Apache-2.0 */
/* Token files: rows are the file's tokens; what is no token file, and rows that are not in it, are refused by whole
 * text. */
#include "support/told.h"

#include <belay/data.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

enum { N_TOKENS = 11 };

static char folder[] = "/tmp/belay-tokens-XXXXXX";

static int enter_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL && chdir(folder) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
    (void)state;
    unlink("t.bin");
    return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1;
}

/* Header words, then `n_bytes` of tokens 0, 257, 2 * 257, ...: both bytes of a token are its number. */
static void put_file(int32_t magic, int32_t version, int32_t count, int64_t n_bytes)
{
    const int32_t header[256] = {magic, version, count};
    FILE *file = fopen("t.bin", "wb");
    assert_int_equal(fwrite(header, 1, sizeof header, file), sizeof header);
    for (int64_t i = 0; i < n_bytes; i++)
        fputc((int)(i / 2), file);
    assert_int_equal(fclose(file), 0);
}

static void rows_are_the_tokens_of_the_file(void **state)
{
    (void)state;
    put_file(20240520, 1, N_TOKENS, 2 * N_TOKENS);
    belay_context *context = told_open();
    belay_token_file *file = belay_token_file_open(context, "t.bin");
    assert_false(belay_token_file_is_nil(file));
    assert_int_equal(belay_token_file_n_tokens(file), N_TOKENS);
    const int64_t starts[] = {0, 8, 3};
    const uint16_t want[] = {0, 257, 514, 8 * 257, 9 * 257, 10 * 257, 3 * 257, 4 * 257, 5 * 257};
    uint16_t got[9];
    belay_tensor rows = belay_token_file_rows(file, starts, 3, 3);
    belay_shape shape = belay_tensor_shape(rows);
    assert_true(shape.rank == 2 && shape.size[0] == 3 && shape.size[1] == 3);
    assert_int_equal(belay_tensor_dtype(rows), BELAY_U16);
    assert_int_equal(belay_tensor_read(rows, got, sizeof got), BELAY_OK);
    assert_memory_equal(got, want, sizeof got);
    assert_int_equal(belay_tensor_n_elements(belay_token_file_rows(file, NULL, 0, 3)), 0);
    belay_token_file_close(file);
    belay_token_file_open(context, "t.bin"); /* dies with the context */
    told_close(context);
}

/* What was told is this fault alone. */
static void expect_fault(int line, belay_code code, const char *what, const char *advice)
{
    char full[256];
    snprintf(full, sizeof full, "    try: %s\n", advice != NULL ? advice : "");
    told_expect("belay: %s (%s)\n"
                "    called at: test_token_file.c:%d\n" TOLD_START "%s",
                what, belay_code_name(code), line, advice != NULL ? full : told_try(code));
}

static void what_is_no_token_file_is_refused(void **state)
{
    (void)state;
    static const char advice[] =
        "Write it as llm.c's scripts do: 256 int32 (20240520, 1, number of tokens), then uint16.";
    const struct {
        int32_t magic, version, count;
        int64_t n_bytes;
        const char *words;
    } all[] = {
        {20240328, 1, 11, 22, "'t.bin' is no token file: it starts with 20240328, not with 20240520"},
        {20240520, 2, 11, 22, "'t.bin' is no token file: its version is 2, not 1"},
        {20240520, 1, 0, 0, "'t.bin' is no token file: it says that it holds 0 tokens"},
        {20240520, 1, -4, 22, "'t.bin' is no token file: it says that it holds -4 tokens"},
        {20240520, 1, 12, 22, "'t.bin' is no token file: it has 1046 bytes, 12 tokens make 1048"},
        {20240520, 1, 10, 22, "'t.bin' is no token file: it has 1046 bytes, 10 tokens make 1044"},
        {20240520, 1, INT32_MAX, 22, "'t.bin' is no token file: it has 1046 bytes, 2147483647 tokens make 4294968318"},
    };
    belay_context *context = told_open();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        put_file(all[i].magic, all[i].version, all[i].count, all[i].n_bytes);
        int line = __LINE__ + 1;
        assert_true(belay_token_file_is_nil(belay_token_file_open(context, "t.bin")));
        expect_fault(line, BELAY_FILE_FORMAT, all[i].words, advice);
    }
    assert_int_equal(truncate("t.bin", 1000), 0);
    int line = __LINE__ + 1;
    belay_token_file *file = belay_token_file_open(context, "t.bin");
    expect_fault(line, BELAY_FILE_FORMAT, "'t.bin' is no token file: it has 1000 bytes, its header alone has 1024",
                 advice);
    line = __LINE__ + 1;
    belay_token_file_open(context, NULL);
    expect_fault(line, BELAY_CONF_MISSING, "a token file needs its path", NULL);
    belay_token_file_open(context, "not there");
    assert_non_null(strstr(told(), "(file.open)\n"));
    told_clear();
    assert_int_equal(belay_token_file_n_tokens(file), 0);
    assert_true(belay_tensor_is_nil(belay_token_file_rows(file, (const int64_t[]){0}, 1, 1)));
    assert_true(belay_token_file_is_nil(NULL));
    belay_token_file_close(file);
    belay_token_file_close(NULL);
    belay_faults_clear(context);
    told_close(context);
}

static void rows_outside_of_the_file_are_refused(void **state)
{
    (void)state;
    put_file(20240520, 1, N_TOKENS, 2 * N_TOKENS);
    belay_context *context = told_open();
    belay_token_file *file = belay_token_file_open(context, "t.bin");
    const struct {
        int64_t starts[2], n, length;
        const char *words;
    } all[] = {
        {{0, 9}, 2, 3, "row 1 of 3 tokens starts at token 9; 't.bin' has 11"},
        {{-1, 0}, 2, 3, "row 0 of 3 tokens starts at token -1; 't.bin' has 11"},
        {{0, 0}, 1, 12, "row 0 of 12 tokens starts at token 0; 't.bin' has 11"},
        {{INT64_MAX, 0},
         1,
         INT64_MAX,
         "row 0 of 9223372036854775807 tokens starts at token 9223372036854775807; 't.bin' has 11"},
        {{0, 0}, 1, -2, "rows of 't.bin' were asked for by 1 starts and a length of -2"},
        {{0, 0}, -1, 2, "rows of 't.bin' were asked for by -1 starts and a length of 2"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        int line = __LINE__ + 1;
        belay_tensor rows = belay_token_file_rows(file, all[i].starts, all[i].n, all[i].length);
        assert_true(belay_tensor_is_nil(rows));
        expect_fault(line, BELAY_CONF_VALUE, all[i].words, NULL);
    }
    int line = __LINE__ + 1;
    belay_token_file_rows(file, NULL, 2, 2);
    expect_fault(line, BELAY_CONF_VALUE, "rows of 't.bin' were asked for by 2 starts at NULL and a length of 2", NULL);
    assert_int_equal(truncate("t.bin", 1030), 0);
    assert_true(belay_tensor_is_nil(belay_token_file_rows(file, (const int64_t[]){0, 2}, 2, 2)));
    assert_non_null(strstr(told(), "(file.read)\n"));
    told_clear();
    belay_faults_clear(context);
    told_close(context);
}

static void every_failing_allocation_is_a_named_fault(void **state)
{
    (void)state;
    put_file(20240520, 1, N_TOKENS, 2 * N_TOKENS);
    bool was_reached = true;
    for (int64_t n = 0; was_reached; n++) {
        belay_context *context = told_open();
        bl_memory_fail_at(n);
        belay_token_file *file = belay_token_file_open(context, "t.bin");
        belay_tensor rows = belay_token_file_rows(file, (const int64_t[]){0, 4}, 2, 3);
        was_reached = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (belay_tensor_is_nil(rows) && strstr(told(), "(mem.exhausted)\n") == NULL)
            fail_msg("allocation %lld failed and was told as: %s", (long long)n, told());
        belay_close(context);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_tokens_of_the_file),
        cmocka_unit_test(what_is_no_token_file_is_refused),
        cmocka_unit_test(rows_outside_of_the_file_are_refused),
        cmocka_unit_test(every_failing_allocation_is_a_named_fault),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
