/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks come in order, whole and unharmed while the consumer holds them, read by a thread or not. */
#include "file_support.h"

#include "file/ahead.h"

enum { front = 100, block = 1000, n_large = 3000000 };

static bl_error error;

static char byte_at(int64_t i) { return (char)(i * 31 + i / 251); }

static void check_block(const char *bytes, int64_t n, int64_t from)
{
    for (int64_t i = 0; i < n; i++)
        if (bytes[i] != byte_at(from + i))
            fail_msg("byte %lld differs", (long long)(from + i));
}

/* Reads the file; the block before is looked at again after each, as is what was written in front of it. */
static void check_file(bl_ahead *ahead, int64_t n_bytes)
{
    bl_input *input;
    check_ok(bl_input_open("a", &input, &error), &error);
    bl_ahead_start(ahead, input);
    char *before = NULL;
    int64_t n_before = 0, at = 0, n = block;
    while (n == block) {
        char *bytes = bl_ahead_next(ahead, &n);
        memset(bytes - front, (int)(at % 100), front);
        check_block(bytes, n, at);
        if (before != NULL) {
            check_block(before, n_before, at - n_before);
            assert_int_equal(before[-front], (at - n_before) % 100);
            assert_int_equal(before[-1], (at - n_before) % 100);
        }
        before = bytes;
        n_before = n;
        at += n;
    }
    assert_int_equal(at, n_bytes);
    bl_ahead_stop(ahead);
    bl_input_close(input);
}

static void files_of_any_size_are_read(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 999, 1000, 1001, 2000, 5000, n_large, n_large + 1000, n_large + 17};
    char *bytes = malloc(n_large + 1000);
    bl_ahead *ahead = bl_ahead_new(front, block);
    assert_non_null(ahead);
    for (int64_t i = 0; i < n_large + 1000; i++)
        bytes[i] = byte_at(i);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        put_bytes("a", bytes, (size_t)sizes[i]);
        check_file(ahead, sizes[i]);
    }
    bl_ahead_free(ahead);
    free(bytes);
}

static void reading_can_be_stopped_at_any_block(void **state)
{
    (void)state;
    char *bytes = calloc(1, n_large);
    put_bytes("a", bytes, n_large);
    free(bytes);
    bl_ahead *ahead = bl_ahead_new(front, block);
    for (int n_blocks = 0; n_blocks < 12; n_blocks++) {
        bl_input *input;
        int64_t n;
        check_ok(bl_input_open("a", &input, &error), &error);
        bl_ahead_start(ahead, input);
        for (int i = 0; i < n_blocks; i++)
            assert_int_equal(bl_ahead_next(ahead, &n)[block - 1], 0);
        bl_ahead_stop(ahead);
        bl_input_close(input);
    }
    bl_ahead_free(ahead);
}

static void without_memory_there_is_no_reader(void **state)
{
    (void)state;
    bl_ahead *ahead = NULL;
    for (int n = 0; ahead == NULL; n++) {
        bl_memory_fail_at(n);
        ahead = bl_ahead_new(front, block);
        assert_int_equal(ahead == NULL, bl_memory_failed());
        bl_memory_fail_at(-1);
    }
    bl_ahead_free(ahead);
    assert_null(bl_ahead_new(INT64_MAX, block));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_of_any_size_are_read, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(reading_can_be_stopped_at_any_block, enter_scratch, leave_scratch),
        cmocka_unit_test(without_memory_there_is_no_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
