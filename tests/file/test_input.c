/* SPDX-License-Identifier: Apache-2.0 */
/* Logs are read from files, pipes and standard input, packed or not; what is broken gives what can be had and says so. */
#include "file_support.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <zlib.h>
#include <zstd.h>

#include "file/input.h"

static bl_error error;

enum { room = 1 << 21 };
static char got[room + 1];

/* Reads all in pieces of `step` bytes; the text is in `got`, the return value its length. */
static int64_t read_all(const char *path, int64_t step, bl_input_form form, const char *expected_damage)
{
    bl_input *input;
    memset(&error, 0, sizeof error);
    check_ok(bl_input_open(path, &input, &error), &error);
    assert_int_equal(bl_input_form_get(input), form);
    assert_string_equal(bl_input_path(input), path);
    int64_t n = 0, last = step;
    while (n < room) {
        int64_t wanted = step < room - n ? step : room - n;
        int64_t piece = bl_input_read(input, got + n, wanted);
        assert_true(piece >= 0 && piece <= wanted);
        assert_true(piece == 0 || last == step); /* a short piece is the last one */
        if (piece == 0)
            break;
        last = piece;
        n += piece;
    }
    assert_int_equal(bl_input_read(input, got + n, 1), 0);
    if (expected_damage == NULL)
        assert_null(bl_input_damage(input));
    else
        assert_string_equal(bl_input_damage(input) != NULL ? bl_input_damage(input) : "none", expected_damage);
    bl_input_close(input);
    got[n] = '\0';
    return n;
}

static void check_text(const char *path, bl_input_form form, const char *text, const char *expected_damage)
{
    static const int64_t steps[] = {1, 7, 4096, room};
    for (int i = 0; i < 4; i++) {
        int64_t n = read_all(path, steps[i], form, expected_damage);
        assert_string_equal(got, text);
        assert_int_equal(n, strlen(text));
    }
}

static void check_refused(const char *path, const char *expected)
{
    bl_input *input;
    memset(&error, 0, sizeof error);
    check_error(bl_input_open(path, &input, &error), &error, expected);
    assert_null(input);
}

/* Text that packs to several blocks, NUL-ended. */
static char *long_text(size_t n)
{
    char *text = malloc(n + 1);
    unsigned seed = 7;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        text[i] = i % 61 == 60 ? '\n' : (char)('a' + (seed >> 28));
    }
    text[n] = '\0';
    return text;
}

static size_t pack_gzip(const char *text, size_t n, unsigned char *out, size_t capacity)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)text;
    z.avail_in = (unsigned)n;
    z.next_out = out;
    z.avail_out = (unsigned)capacity;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t used = capacity - z.avail_out;
    deflateEnd(&z);
    return used;
}

static size_t pack_zstd(const char *text, size_t n, unsigned char *out, size_t capacity)
{
    size_t used = ZSTD_compress(out, capacity, text, n, 3);
    assert_false(ZSTD_isError(used));
    return used;
}

static unsigned char packed[room];

static void a_plain_file_is_read_as_it_is(void **state)
{
    (void)state;
    put_text("a.gz", "one\ntwo\n");
    check_text("a.gz", BL_INPUT_PLAIN, "one\ntwo\n", NULL);
    put_text("empty", "");
    check_text("empty", BL_INPUT_PLAIN, "", NULL);
    put_text("x", "\x1f");
    check_text("x", BL_INPUT_PLAIN, "\x1f", NULL);
    put_bytes("nul", "a\0b", 3);
    assert_int_equal(read_all("nul", room, BL_INPUT_PLAIN, NULL), 3);
    assert_memory_equal(got, "a\0b", 3);
    put_text("bom", "\xef\xbb\xbfone");
    check_text("bom", BL_INPUT_PLAIN, "one", NULL);
}

static void size_place_and_age_are_told(void **state)
{
    (void)state;
    put_text("a", "0123456789");
    struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 1717932041, .tv_nsec = 123456789}};
    assert_int_equal(utimensat(AT_FDCWD, "a", times, 0), 0);
    bl_input *input;
    check_ok(bl_input_open("a", &input, &error), &error);
    assert_int_equal(bl_input_n_bytes(input), 10);
    assert_int_equal(bl_input_n_taken(input), 0);
    assert_int_equal(bl_input_changed(input), INT64_C(1717932041123456));
    assert_int_equal(bl_input_read(input, got, 4), 4);
    assert_int_equal(bl_input_n_taken(input), 4);
    bl_input_close(input);
}

static void packed_files_are_told_by_their_first_bytes(void **state)
{
    (void)state;
    char *text = long_text(300000);
    size_t n = pack_gzip(text, 300000, packed, room);
    put_bytes("gzip.log", packed, n);
    check_text("gzip.log", BL_INPUT_GZIP, text, NULL);
    n = pack_zstd(text, 300000, packed, room);
    put_bytes("zstd.log", packed, n);
    check_text("zstd.log", BL_INPUT_ZSTD, text, NULL);
    free(text);
    n = pack_gzip("", 0, packed, room);
    put_bytes("none.gz", packed, n);
    check_text("none.gz", BL_INPUT_GZIP, "", NULL);
    n = pack_zstd("", 0, packed, room);
    put_bytes("none.zst", packed, n);
    check_text("none.zst", BL_INPUT_ZSTD, "", NULL);
}

static void what_unpacks_to_far_more_comes_whole(void **state)
{
    (void)state;
    char *zeros = calloc(1, room);
    size_t n = pack_gzip(zeros, room - 1, packed, room);
    put_bytes("bomb.gz", packed, n);
    assert_int_equal(read_all("bomb.gz", 4096, BL_INPUT_GZIP, NULL), room - 1);
    n = pack_zstd(zeros, room - 1, packed, room);
    put_bytes("bomb.zst", packed, n);
    assert_int_equal(read_all("bomb.zst", 4096, BL_INPUT_ZSTD, NULL), room - 1);
    free(zeros);
}

static void members_and_frames_follow_each_other(void **state)
{
    (void)state;
    size_t n = pack_gzip("one\n", 4, packed, room);
    n += pack_gzip("", 0, packed + n, room - n);
    n += pack_gzip("two\n", 4, packed + n, room - n);
    memset(packed + n, 0, 512);
    put_bytes("a", packed, n + 512);
    check_text("a", BL_INPUT_GZIP, "one\ntwo\n", NULL);
    memcpy(packed, "\x53\x2a\x4d\x18\x03\x00\x00\x00xyz", 11);
    n = 11 + pack_zstd("one\n", 4, packed + 11, room);
    n += pack_zstd("two\n", 4, packed + n, room - n);
    put_bytes("b", packed, n);
    check_text("b", BL_INPUT_ZSTD, "one\ntwo\n", NULL);
}

static void a_stream_that_is_cut_gives_what_there_is(void **state)
{
    (void)state;
    char *text = long_text(300000);
    size_t n = pack_gzip(text, 300000, packed, room);
    put_bytes("a", packed, n / 2);
    int64_t n_read =
        read_all("a", 4096, BL_INPUT_GZIP, "ends within its gzip stream; what stands before that was read");
    assert_in_range(n_read, 100000, 200000);
    assert_memory_equal(got, text, (size_t)n_read);
    put_bytes("a", packed, n - 1);
    check_text("a", BL_INPUT_GZIP, text, "ends within its gzip stream; what stands before that was read");
    put_bytes("a", packed, 5);
    check_text("a", BL_INPUT_GZIP, "", "ends within its gzip stream; what stands before that was read");
    n = pack_zstd(text, 300000, packed, room);
    put_bytes("b", packed, n - 1);
    n_read = read_all("b", 4096, BL_INPUT_ZSTD, "ends within its Zstandard stream; what stands before that was read");
    assert_in_range(n_read, 131072, 300000);
    assert_memory_equal(got, text, (size_t)n_read);
    free(text);
}

static void a_damaged_stream_says_where(void **state)
{
    (void)state;
    size_t n = pack_gzip("one two three four five\n", 24, packed, room);
    packed[n - 8] ^= 1;
    put_bytes("a", packed, n);
    check_text("a", BL_INPUT_GZIP, "one two three four five\n",
               "is damaged near byte 40 of its gzip stream (incorrect data check); what stands before was read");
    n = pack_gzip("one\n", 4, packed, room);
    memcpy(packed + n, "rest", 4);
    put_bytes("b", packed, n + 4);
    check_text("b", BL_INPUT_GZIP, "one\n",
               "goes on behind its gzip stream with bytes of another kind, which were not read");
    n = pack_zstd("one\n", 4, packed, room);
    memcpy(packed + n, "rest", 4);
    put_bytes("c", packed, n + 4);
    check_text("c", BL_INPUT_ZSTD, "one\n",
               "goes on behind its Zstandard stream with bytes of another kind, which were not read");
    packed[6] ^= 0x06; /* the kind of the first block */
    put_bytes("d", packed, n);
    read_all("d", 4096, BL_INPUT_ZSTD,
             "is damaged near byte 6 of its Zstandard stream (Data corruption detected); what stands before was read");
}

static void a_window_past_the_limit_is_not_followed(void **state)
{
    (void)state;
    /* A frame header without a content size whose window is 2^31 bytes, and an empty last block. */
    put_bytes("a", "\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00", 9);
    check_text("a", BL_INPUT_ZSTD, "",
               "asks for a window of more than 128 MiB and was not read on; unpack it first (zstd -d --long=31)");
}

static void utf16_becomes_utf8(void **state)
{
    (void)state;
    static const char little[] = "\xff\xfe"
                                 "a\0"
                                 "\n\0"
                                 "\xe4\0"
                                 "\xac\x20"
                                 "\x3d\xd8\x00\xde"
                                 "\x3d\xd8"
                                 "b\0"
                                 "\x00\xde"
                                 "c\0";
    put_bytes("a", little, sizeof little - 1);
    check_text("a", BL_INPUT_UTF16,
               "a\n\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xef\xbf\xbd"
               "b\xef\xbf\xbd"
               "c",
               NULL);
    static const char big[] = "\xfe\xff"
                              "\0a"
                              "\0\n"
                              "\x20\xac"
                              "\0";
    put_bytes("b", big, sizeof big - 1);
    check_text("b", BL_INPUT_UTF16, "a\n\xe2\x82\xac", "ends within a UTF-16 character");
    static const char half[] = "\xff\xfe"
                               "a\0"
                               "\x3d\xd8";
    put_bytes("c", half, sizeof half - 1);
    check_text("c", BL_INPUT_UTF16, "a", "ends within a UTF-16 character");
}

#define OPEN_ADVICE "    try: Check that the path exists and may be read.\n"

static void what_is_no_stream_is_named(void **state)
{
    (void)state;
    mkdir("folder", 0777);
    check_refused("folder", "belay: cannot open 'folder': it is a directory (file.open)\n" OPEN_ADVICE);
    check_refused("/dev/zero", "belay: cannot open '/dev/zero': it is a character device (file.open)\n" OPEN_ADVICE);
    check_refused("missing", "belay: cannot open 'missing': No such file or directory (file.open)\n" OPEN_ADVICE);
    check_refused("", "belay: cannot open '': No such file or directory (file.open)\n" OPEN_ADVICE);
}

static void other_packings_are_named_with_what_unpacks_them(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int n;
        const char *kind, *command;
    } rows[] = {
        {"\xfd\x37\x7a\x58\x5a\x00rest", 10, "packed with xz", "xz -dc"},
        {"BZh91AY&SYrest", 14, "packed with bzip2", "bzip2 -dc"},
        {"\x04\x22\x4d\x18rest", 8, "packed with lz4", "lz4 -dc"},
        {"PK\x03\x04rest", 8, "a zip archive", "unzip -p"},
        {"7z\xbc\xaf\x27\x1crest", 10, "a 7z archive", "7z x -so"},
        {"LPKSHHRHrest", 12, "a binary journal of systemd", "journalctl -k -o short-precise --file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char expected[256];
        put_bytes("a.log", rows[i].bytes, (size_t)rows[i].n);
        snprintf(expected, sizeof expected,
                 "belay: cannot read 'a.log': it is %s (file.format)\n"
                 "    try: Make text of it first: %s FILE | belay explain -\n",
                 rows[i].kind, rows[i].command);
        check_refused("a.log", expected);
    }
}

/* Runs `check` with standard input taken from `fd`, which is closed. */
static void with_standard_input(int fd, void (*check)(void))
{
    int old = dup(STDIN_FILENO);
    assert_true(fd >= 0 && old >= 0 && dup2(fd, STDIN_FILENO) == STDIN_FILENO);
    close(fd);
    check();
    assert_int_equal(dup2(old, STDIN_FILENO), STDIN_FILENO);
    close(old);
}

static void expect_one_two(void)
{
    bl_input *input;
    check_ok(bl_input_open("-", &input, &error), &error);
    assert_int_equal(bl_input_n_bytes(input), -1);
    assert_int_equal(bl_input_read(input, got, room), 8);
    assert_memory_equal(got, "one\ntwo\n", 8);
    assert_null(bl_input_damage(input));
    bl_input_close(input);
}

static void expect_file(void) { assert_int_equal(read_all("-", room, BL_INPUT_GZIP, NULL), 4); }

static void expect_folder(void)
{
    check_refused("-", "belay: cannot open 'standard input': it is a directory (file.open)\n" OPEN_ADVICE);
}

static void expect_nothing(void) { read_all("-", room, BL_INPUT_PLAIN, NULL); }

static void expect_fault(void)
{
    read_all("-", room, BL_INPUT_PLAIN, "cannot be read behind byte 0: Transport endpoint is not connected");
}

static void standard_input_is_a_pipe_a_file_or_nothing(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "one\ntwo\n", 8), 8);
    close(ends[1]);
    with_standard_input(ends[0], expect_one_two);
    with_standard_input(open("/dev/null", O_RDONLY), expect_nothing);
    mkdir("folder", 0777);
    with_standard_input(open("folder", O_RDONLY), expect_folder);
    with_standard_input(socket(AF_INET, SOCK_STREAM, 0), expect_fault);
    put_bytes("a", packed, pack_gzip("one\n", 4, packed, room));
    with_standard_input(open("a", O_RDONLY), expect_file);
}

/* A writer that hands over a few bytes at a time. */
static void a_named_pipe_is_waited_for(void **state)
{
    (void)state;
    char *text = long_text(200000);
    assert_int_equal(mkfifo("pipe", 0666), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open("pipe", O_WRONLY);
        for (size_t at = 0; at < 200000; at += 1000)
            if (write(fd, text + at, 1000) != 1000)
                _exit(1);
        _exit(0);
    }
    assert_int_equal(read_all("pipe", room, BL_INPUT_PLAIN, NULL), 200000);
    assert_memory_equal(got, text, 200000);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    free(text);
}

/* The n-th allocation fails for n = 0, 1, ..: a fault that names the file, or what could be read and why not more. */
static void without_memory_the_fault_names_the_file(void **state)
{
    (void)state;
    char *text = long_text(100000);
    put_bytes("a", packed, pack_gzip(text, 100000, packed, room));
    bool failed = true;
    int n_faults = 0;
    for (int n = 0; failed; n++) {
        bl_input *input;
        bl_memory_fail_at(n);
        belay_code code = bl_input_open("a", &input, &error);
        int64_t n_read = code == BELAY_OK ? bl_input_read(input, got, room) : 0;
        failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (code != BELAY_OK) {
            assert_int_equal(code, BELAY_MEM_EXHAUSTED);
            assert_true(strstr(error.what, "'a'") != NULL);
        } else if (failed) {
            assert_string_equal(bl_input_damage(input), "could not be unpacked to its end for want of memory");
        } else {
            assert_int_equal(n_read, 100000);
        }
        n_faults += failed;
        bl_input_close(input);
    }
    assert_true(n_faults >= 4);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_plain_file_is_read_as_it_is, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(size_place_and_age_are_told, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(packed_files_are_told_by_their_first_bytes, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(what_unpacks_to_far_more_comes_whole, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(members_and_frames_follow_each_other, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(a_stream_that_is_cut_gives_what_there_is, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(a_damaged_stream_says_where, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(a_window_past_the_limit_is_not_followed, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(utf16_becomes_utf8, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(what_is_no_stream_is_named, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(other_packings_are_named_with_what_unpacks_them, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(standard_input_is_a_pipe_a_file_or_nothing, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(a_named_pipe_is_waited_for, enter_scratch, leave_scratch),
        cmocka_unit_test_setup_teardown(without_memory_the_fault_names_the_file, enter_scratch, leave_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
