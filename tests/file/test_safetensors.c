/* SPDX-License-Identifier: Apache-2.0 */
/* A safetensors file is believed in nothing until all of its header is proved; what is written is read again bit for
 * bit and lies as PyTorch needs it. */
#include "file_support.h"

#include "base/checked.h"
#include "file/atomic.h"
#include "file/safetensors.h"

static bl_error error;

/* A file of that header and n_data bytes 0, 1, 2, ... */
static void put_file(const char *path, const char *header, size_t n_data)
{
    uint64_t n_header = strlen(header);
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(&n_header, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, n_header, file), n_header);
    for (size_t i = 0; i < n_data; i++)
        fputc((int)(i & 0xFF), file);
    assert_int_equal(fclose(file), 0);
}

static bl_safetensors *must_open(const char *path)
{
    bl_safetensors *file;
    check_ok(bl_safetensors_open(path, &file, &error), &error);
    return file;
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

static void entries_come_in_the_order_of_their_bytes_and_by_name(void **state)
{
    (void)state;
    put_file("a.safetensors",
             "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]},"
             "\"__metadata__\":{\"format\":\"pt\",\"key\":\"a\\n\\u00fc\"},"
             "\"empty\":{\"dtype\":\"F64\",\"shape\":[3,0],\"data_offsets\":[28,28]},"
             "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
             "\"scalar\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[28,29],\"more\":1}}   ",
             29);
    bl_safetensors *file = must_open("a.safetensors");
    assert_int_equal(bl_safetensors_n_entries(file), 4);
    assert_string_equal(bl_safetensors_entry_at(file, 0)->name, "a");
    assert_string_equal(bl_safetensors_entry_at(file, 1)->name, "b");
    assert_string_equal(bl_safetensors_entry_at(file, 2)->name, "empty");
    assert_string_equal(bl_safetensors_entry_at(file, 3)->name, "scalar");
    assert_null(bl_safetensors_entry_at(file, 4));
    assert_null(bl_safetensors_entry_at(file, -1));
    const bl_safetensors_entry *entry = bl_safetensors_find(file, "b");
    assert_non_null(entry);
    assert_int_equal(entry->dtype, BL_SAFETENSORS_F32);
    assert_int_equal(entry->rank, 2);
    assert_int_equal(entry->shape[0], 2);
    assert_int_equal(entry->shape[1], 3);
    assert_int_equal(entry->n_elements, 6);
    assert_int_equal(entry->n_bytes, 24);
    assert_int_equal(bl_safetensors_find(file, "scalar")->n_elements, 1);
    assert_int_equal(bl_safetensors_find(file, "empty")->n_elements, 0);
    assert_null(bl_safetensors_find(file, "c"));
    assert_null(bl_safetensors_find(file, "__metadata__"));
    assert_string_equal(bl_safetensors_path(file), "a.safetensors");
    bl_safetensors_close(file);
    bl_safetensors_close(NULL);
}

static void metadata_are_found_by_key_and_by_number(void **state)
{
    (void)state;
    put_file("a.safetensors", "{\"__metadata__\":{\"format\":\"pt\",\"key\":\"a\\n\\u00fc\"}}", 0);
    bl_safetensors *file = must_open("a.safetensors");
    assert_int_equal(bl_safetensors_n_entries(file), 0);
    assert_int_equal(bl_safetensors_n_metadata(file), 2);
    assert_string_equal(bl_safetensors_metadata(file, "key"), "a\n\xc3\xbc");
    assert_null(bl_safetensors_metadata(file, "other"));
    assert_string_equal(bl_safetensors_metadata_key(file, 0), "format");
    assert_string_equal(bl_safetensors_metadata_value(file, 1), "a\n\xc3\xbc");
    assert_null(bl_safetensors_metadata_key(file, 2));
    assert_null(bl_safetensors_metadata_value(file, -1));
    bl_safetensors_close(file);
    put_file("b.safetensors", "{}", 0);
    file = must_open("b.safetensors");
    assert_int_equal(bl_safetensors_n_metadata(file), 0);
    assert_null(bl_safetensors_metadata(file, "key"));
    assert_null(bl_safetensors_metadata_key(file, 0));
    bl_safetensors_close(file);
}

static void bytes_come_whole_and_aligned(void **state)
{
    (void)state;
    put_file("a.safetensors",
             "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
             "\"b\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[3,19]}}",
             19);
    bl_safetensors *file = must_open("a.safetensors");
    const bl_safetensors_entry *entry = bl_safetensors_find(file, "b");
    unsigned char into[16];
    check_ok(bl_safetensors_read(file, entry, into, 16, &error), &error);
    assert_int_equal(into[0], 3);
    assert_int_equal(into[15], 18);
    const void *bytes, *again;
    int64_t n;
    check_ok(bl_safetensors_bytes(file, entry, &bytes, &n, &error), &error);
    assert_int_equal(n, 16);
    assert_int_equal((uintptr_t)bytes % 64, 0);
    assert_memory_equal(bytes, into, 16);
    check_ok(bl_safetensors_bytes(file, entry, &again, &n, &error), &error);
    assert_ptr_equal(bytes, again);
    check_error(bl_safetensors_read(file, entry, into, 15, &error), &error,
                "belay: tensor 'b' of 'a.safetensors' has 16 bytes, its reader has room for 15 (bug.invariant)\n"
                "    try: Please report it with the text of this message.\n");
    bl_safetensors_close(file);
}

static void every_dtype_is_known_with_its_size(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int size;
    } rows[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2},
                {"I8", 1},  {"U64", 8}, {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1}};
    assert_int_equal(BL_COUNT(rows), BL_SAFETENSORS_N_DTYPES);
    for (int i = 0; i < BL_COUNT(rows); i++) {
        char header[256];
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[5],\"data_offsets\":[0,%d]}}",
                 rows[i].name, 5 * rows[i].size);
        put_file("a.safetensors", header, (size_t)(5 * rows[i].size));
        bl_safetensors *file = must_open("a.safetensors");
        bl_safetensors_dtype dtype = bl_safetensors_find(file, "t")->dtype;
        assert_string_equal(bl_safetensors_dtype_name(dtype), rows[i].name);
        assert_int_equal(bl_safetensors_dtype_size(dtype), rows[i].size);
        bl_safetensors_close(file);
    }
    assert_int_equal(bl_safetensors_dtype_size(BL_SAFETENSORS_N_DTYPES), 0);
    assert_string_equal(bl_safetensors_dtype_name(BL_SAFETENSORS_N_DTYPES), "unknown");
}

static void files_of_other_writers_are_read(void **state)
{
    (void)state;
    static const char *const names[] = {"cat_dim1", "cross_entropy_mean", "lr_step"};
    for (int i = 0; i < BL_COUNT(names); i++) {
        char path[512];
        snprintf(path, sizeof path, BELAY_SOURCE_DIR "/tests/file/data/%s.safetensors", names[i]);
        bl_safetensors *file = must_open(path);
        assert_string_equal(bl_safetensors_metadata(file, "case"), names[i]);
        assert_string_equal(bl_safetensors_metadata(file, "format"), "pt");
        assert_true(bl_safetensors_n_entries(file) > 0);
        for (int64_t k = 0; k < bl_safetensors_n_entries(file); k++) {
            const void *bytes;
            int64_t n;
            const bl_safetensors_entry *entry = bl_safetensors_entry_at(file, k);
            check_ok(bl_safetensors_bytes(file, entry, &bytes, &n, &error), &error);
            assert_ptr_equal(bl_safetensors_find(file, entry->name), entry);
        }
        bl_safetensors_close(file);
    }
}

/* ---- what is refused ------------------------------------------------------------------------------------------- */

#define FORMAT_ADVICE "    try: Check the file at the place named; it may be cut short or of another kind.\n"

static void expect_refused(const char *header, size_t n_data, const char *reason)
{
    char expected[1024];
    bl_safetensors *file;
    put_file("a.safetensors", header, n_data);
    snprintf(expected, sizeof expected, "belay: 'a.safetensors' is no whole safetensors file: %s (file.format)\n%s",
             reason, strstr(reason, "\n") == NULL ? FORMAT_ADVICE : "");
    belay_code code = bl_safetensors_open("a.safetensors", &file, &error);
    assert_null(file);
    check_error(code, &error, expected);
}

static void refused_with_fact(const char *header, size_t n_data, const char *reason, const char *fact)
{
    char expected[1024];
    bl_safetensors *file;
    put_file("a.safetensors", header, n_data);
    snprintf(expected, sizeof expected,
             "belay: 'a.safetensors' is no whole safetensors file: %s (file.format)\n    %s\n" FORMAT_ADVICE, reason,
             fact);
    check_error(bl_safetensors_open("a.safetensors", &file, &error), &error, expected);
}

static void a_header_that_is_no_header_is_named(void **state)
{
    (void)state;
    expect_refused("", 0, "its header does not start with '{'");
    expect_refused("[]", 0, "its header does not start with '{'");
    expect_refused(" {}", 0, "its header does not start with '{'");
    refused_with_fact("{\"a\":}", 0, "its header is not JSON", "header:1: column 6: unexpected token near '}'");
    refused_with_fact("{}\t}", 0, "its header is not JSON", "header:1: column 4: end of file expected near '}'");
    refused_with_fact("{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
                      "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
                      1, "its header is not JSON", "header:1: column 60: duplicate object key near '\"\\u0061\"'");
    refused_with_fact("{\"a\\u0000\":1}", 0, "its header is not JSON",
                      "header:1: column 10: a text holds \\u0000, a NUL");
    expect_refused("{\"a\":1}", 0, "the header's 'a' is no object");
    expect_refused("{\"__metadata__\":[]}", 0, "its __metadata__ is no object");
    expect_refused("{\"__metadata__\":{\"a\\u001b\":1}}", 0, "its metadata 'a\\x1B' is no text");
}

#define ENTRY(name, dtype, shape, offsets)                                                                             \
    "\"" name "\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void an_entry_that_is_no_tensor_is_named(void **state)
{
    (void)state;
    expect_refused("{\"a\":{}}", 0, "tensor 'a' has no dtype");
    expect_refused("{" ENTRY("a", "1", "[]", "[0,1]") "}", 1, "tensor 'a' has no dtype");
    refused_with_fact("{" ENTRY("a", "\"F8\\n\"", "[]", "[0,1]") "}", 1,
                      "tensor 'a' has the dtype 'F8\\x0A', which Belay does not know",
                      "known: F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL");
    expect_refused("{" ENTRY("a", "\"U8\"", "1", "[0,1]") "}", 1, "tensor 'a' has no shape");
    expect_refused("{" ENTRY("a", "\"U8\"", "[2,-1]", "[0,1]") "}", 1, "tensor 'a': axis 1 of its shape is no size");
    expect_refused("{" ENTRY("a", "\"U8\"", "[1.0]", "[0,1]") "}", 1, "tensor 'a': axis 0 of its shape is no size");
    expect_refused("{" ENTRY("a", "\"U8\"", "[4294967296,4294967296]", "[0,1]") "}", 1,
                   "the shape of tensor 'a' passes 2^63 bytes");
    expect_refused("{" ENTRY("a", "\"F64\"", "[2305843009213693952]", "[0,1]") "}", 1,
                   "the shape of tensor 'a' passes 2^63 bytes");
    expect_refused("{" ENTRY("a", "\"F32\"", "[2,3]", "[0,20]") "}", 20,
                   "tensor 'a' has 6 elements of F32, 24 bytes, but holds 20");
    expect_refused("{" ENTRY("a", "\"U8\"", "[1]", "[0]") "}", 1, "tensor 'a' has no two data_offsets");
    expect_refused("{" ENTRY("a", "\"U8\"", "[1]", "[0,1,2]") "}", 1, "tensor 'a' has no two data_offsets");
    expect_refused("{" ENTRY("a", "\"U8\"", "[1]", "{}") "}", 1, "tensor 'a' has no two data_offsets");
    expect_refused("{" ENTRY("a", "\"U8\"", "[1]", "[0,\"1\"]") "}", 1, "tensor 'a' has no two data_offsets");
    expect_refused("{" ENTRY("a", "\"U8\"", "[1]", "[1,2]") "}", 1,
                   "tensor 'a' lies at bytes 1 to 2 of the data, which has 1");
    expect_refused("{" ENTRY("a", "\"U8\"", "[1]", "[1,0]") "}", 1,
                   "tensor 'a' lies at bytes 1 to 0 of the data, which has 1");
    expect_refused("{" ENTRY("a", "\"U8\"", "[1]", "[-1,0]") "}", 1,
                   "tensor 'a' lies at bytes -1 to 0 of the data, which has 1");
    expect_refused("{" ENTRY("a", "\"U8\"", "[1]", "[9223372036854775806,9223372036854775807]") "}", 1,
                   "tensor 'a' lies at bytes 9223372036854775806 to 9223372036854775807 of the data, which has 1");
}

static void bytes_that_are_shared_or_nobodys_are_named(void **state)
{
    (void)state;
    expect_refused("{" ENTRY("a", "\"U8\"", "[3]", "[0,3]") "," ENTRY("b", "\"U8\"", "[2]", "[2,4]") "}", 4,
                   "tensors 'a' and 'b' overlap");
    expect_refused("{" ENTRY("a", "\"U8\"", "[3]", "[0,3]") "," ENTRY("b", "\"U8\"", "[3]", "[0,3]") "}", 3,
                   "tensors 'a' and 'b' overlap");
    expect_refused("{" ENTRY("a", "\"U8\"", "[3]", "[0,3]") "," ENTRY("b", "\"U8\"", "[2]", "[5,7]") "}", 7,
                   "2 bytes before tensor 'b' belong to none");
    expect_refused("{" ENTRY("a", "\"U8\"", "[3]", "[1,4]") "}", 4, "1 bytes before tensor 'a' belong to none");
    expect_refused("{" ENTRY("a", "\"U8\"", "[3]", "[0,3]") "}", 5, "2 bytes at its end belong to no tensor");
    expect_refused("{}", 3, "3 bytes at its end belong to no tensor");
}

static void too_many_axes_and_too_long_a_header_are_refused(void **state)
{
    (void)state;
    bl_safetensors *file;
    put_file("a.safetensors", "{" ENTRY("a", "\"U8\"", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1);
    check_error(bl_safetensors_open("a.safetensors", &file, &error), &error,
                "belay: 'a.safetensors': tensor 'a' has 17 axes, the reader takes 16 (file.limit)\n"
                "    try: Split the data, or raise the limit that the message names.\n");
    uint64_t length = 100000001;
    put_bytes("b.safetensors", &length, 8);
    assert_int_equal(truncate("b.safetensors", 200000000), 0);
    check_error(bl_safetensors_open("b.safetensors", &file, &error), &error,
                "belay: 'b.safetensors': its header has 100000001 bytes, the reader takes 100000000 (file.limit)\n"
                "    try: Split the data, or raise the limit that the message names.\n");
    length = UINT64_MAX;
    put_bytes("c.safetensors", &length, 8);
    check_error(
        bl_safetensors_open("c.safetensors", &file, &error), &error,
        "belay: 'c.safetensors' is no whole safetensors file: its header should have 18446744073709551615 bytes, "
        "but only 0 follow its length (file.format)\n" FORMAT_ADVICE);
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

static const unsigned char some_bytes[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                           13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24};
static const int64_t shape_3[] = {3}, shape_2x2[] = {2, 2}, shape_0[] = {0, 7};

/* Bytes are their offset; for sources that are asked. */
static belay_code count_up(void *user, int64_t offset, void *into, int64_t n_bytes, bl_error *reason)
{
    (void)reason;
    for (int64_t i = 0; i < n_bytes; i++)
        ((unsigned char *)into)[i] = (unsigned char)(offset + i + *(int *)user);
    return BELAY_OK;
}

static int shift = 3;

static const bl_safetensors_source sources[] = {
    {.name = "bytes", .dtype = BL_SAFETENSORS_U8, .rank = 1, .shape = shape_3, .bytes = some_bytes},
    {.name = "half", .dtype = BL_SAFETENSORS_F16, .rank = 1, .shape = shape_3, .bytes = some_bytes},
    {.name = "none", .dtype = BL_SAFETENSORS_F32, .rank = 2, .shape = shape_0},
    {.name = "wide \"\\\n", .dtype = BL_SAFETENSORS_I64, .rank = 1, .shape = shape_3, .bytes = some_bytes},
    {.name = "float", .dtype = BL_SAFETENSORS_F32, .rank = 2, .shape = shape_2x2, .fill = count_up, .user = &shift},
    {.name = "scalar", .dtype = BL_SAFETENSORS_F64, .bytes = some_bytes},
};
static const bl_safetensors_pair pairs[] = {{"format", "pt"}, {"labels", "[\"a\",\n\"\xc3\xbc\"]"}};

static belay_code write_sources(const char *path)
{
    return bl_safetensors_write(path, sources, BL_COUNT(sources), pairs, BL_COUNT(pairs), &error);
}

static void what_is_written_lies_as_the_format_says(void **state)
{
    (void)state;
    check_ok(write_sources("a.safetensors"), &error);
    size_t n;
    char *bytes = get_bytes("a.safetensors", &n);
    const char *header = "{\"__metadata__\":{\"format\":\"pt\",\"labels\":\"[\\\"a\\\",\\u000a\\\"\xc3\xbc\\\"]\"},"
                         "\"wide \\\"\\\\\\u000a\":{\"dtype\":\"I64\",\"shape\":[3],\"data_offsets\":[0,24]},"
                         "\"scalar\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[24,32]},"
                         "\"none\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[32,32]},"
                         "\"float\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[32,48]},"
                         "\"half\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[48,54]},"
                         "\"bytes\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[54,57]}}";
    uint64_t length;
    memcpy(&length, bytes, 8);
    assert_int_equal(length % 8, 0);
    assert_true(length >= strlen(header) && length < strlen(header) + 8);
    assert_memory_equal(bytes + 8, header, strlen(header));
    for (size_t i = strlen(header); i < length; i++)
        assert_int_equal(bytes[8 + i], ' ');
    assert_int_equal(n, 8 + length + 57);
    free(bytes);
}

static void what_is_written_is_read_again(void **state)
{
    (void)state;
    check_ok(write_sources("a.safetensors"), &error);
    bl_safetensors *file = must_open("a.safetensors");
    assert_int_equal(bl_safetensors_n_entries(file), BL_COUNT(sources));
    assert_string_equal(bl_safetensors_metadata(file, "labels"), pairs[1].value);
    for (int i = 0; i < BL_COUNT(sources); i++) {
        const bl_safetensors_entry *entry = bl_safetensors_find(file, sources[i].name);
        assert_non_null(entry);
        assert_int_equal(entry->offset % bl_safetensors_dtype_size(entry->dtype), 0);
        assert_int_equal(entry->dtype, sources[i].dtype);
        assert_int_equal(entry->rank, sources[i].rank);
        for (int axis = 0; axis < entry->rank; axis++)
            assert_int_equal(entry->shape[axis], sources[i].shape[axis]);
        const void *bytes;
        int64_t n;
        check_ok(bl_safetensors_bytes(file, entry, &bytes, &n, &error), &error);
        if (sources[i].bytes != NULL)
            assert_memory_equal(bytes, sources[i].bytes, (size_t)n);
        else if (n > 0)
            for (int k = 0; k < 16; k++)
                assert_int_equal(((const unsigned char *)bytes)[k], k + 3);
    }
    bl_safetensors_close(file);
}

static void equal_arguments_give_equal_files(void **state)
{
    (void)state;
    size_t n_first, n_second;
    check_ok(write_sources("a.safetensors"), &error);
    check_ok(write_sources("b.safetensors"), &error);
    char *first = get_bytes("a.safetensors", &n_first), *second = get_bytes("b.safetensors", &n_second);
    assert_int_equal(n_first, n_second);
    assert_memory_equal(first, second, n_first);
    free(first);
    free(second);
}

static void a_large_source_is_asked_in_pieces(void **state)
{
    (void)state;
    const int64_t shape[] = {3, 1000001};
    const bl_safetensors_source source = {
        .name = "t", .dtype = BL_SAFETENSORS_U8, .rank = 2, .shape = shape, .fill = count_up, .user = &shift};
    check_ok(bl_safetensors_write("a.safetensors", &source, 1, NULL, 0, &error), &error);
    bl_safetensors *file = must_open("a.safetensors");
    const void *bytes;
    int64_t n;
    check_ok(bl_safetensors_bytes(file, bl_safetensors_entry_at(file, 0), &bytes, &n, &error), &error);
    assert_int_equal(n, 3000003);
    for (int64_t i = 0; i < n; i++)
        if (((const unsigned char *)bytes)[i] != (unsigned char)(i + 3))
            fail_msg("byte %lld is wrong", (long long)i);
    bl_safetensors_close(file);
}

static belay_code fill_never(void *user, int64_t offset, void *into, int64_t n_bytes, bl_error *reason)
{
    (void)user;
    (void)into;
    return bl_error_set(reason, BELAY_PLACE_ABSENT, "no bytes at %lld, %lld wanted", (long long)offset,
                        (long long)n_bytes);
}

static void expect_unwritable(const bl_safetensors_source *tensors, int64_t n, const bl_safetensors_pair *metadata,
                              int64_t n_metadata, const char *what)
{
    char expected[512];
    belay_code code = bl_safetensors_write("a.safetensors", tensors, n, metadata, n_metadata, &error);
    snprintf(expected, sizeof expected, "belay: %s (%s)\n    try: %s\n", what, belay_code_name(code),
             belay_code_advice(code));
    check_error(code, &error, expected);
    assert_file_is("a.safetensors", "old");
    assert_int_equal(n_files_here(), 1);
}

static void what_cannot_be_written_is_named_before_a_byte_is(void **state)
{
    (void)state;
    const int64_t negative[] = {-1}, huge[] = {INT64_MAX};
    bl_safetensors_source good = sources[0], two[] = {sources[0], sources[0]}, bad;
    put_text("a.safetensors", "old");
    expect_unwritable(two, 2, NULL, 0, "the tensor name 'bytes' for 'a.safetensors' is given twice");
    bad = good, bad.name = "a\xff";
    expect_unwritable(&bad, 1, NULL, 0, "the tensor name 'a\\xFF' for 'a.safetensors' is not UTF-8");
    bad = good, bad.name = "__metadata__";
    expect_unwritable(&bad, 1, NULL, 0, "no tensor for 'a.safetensors' can have the name '__metadata__'");
    bad = good, bad.rank = 17;
    expect_unwritable(&bad, 1, NULL, 0, "tensor 'bytes' for 'a.safetensors' has 17 axes; the format here takes 16");
    bad = good, bad.shape = negative;
    expect_unwritable(&bad, 1, NULL, 0, "the shape of tensor 'bytes' for 'a.safetensors' is no size");
    bad = good, bad.shape = huge, bad.dtype = BL_SAFETENSORS_F32;
    expect_unwritable(&bad, 1, NULL, 0, "the shape of tensor 'bytes' for 'a.safetensors' is no size");
    bad = good, bad.dtype = BL_SAFETENSORS_N_DTYPES;
    expect_unwritable(&bad, 1, NULL, 0, "tensor 'bytes' for 'a.safetensors' has dtype number 13, which is none");
    bad = good, bad.bytes = NULL;
    expect_unwritable(&bad, 1, NULL, 0, "tensor 'bytes' for 'a.safetensors' has no bytes");
    two[0].name = "other", two[0].shape = huge, two[1].shape = huge;
    expect_unwritable(two, 2, NULL, 0, "the tensors for 'a.safetensors' pass 2^63 bytes together");
    const bl_safetensors_pair twice[] = {{"k", "1"}, {"k", "2"}}, wrong = {"k", "\xff"}, none = {"k", NULL};
    expect_unwritable(&good, 1, twice, 2, "the metadata key 'k' for 'a.safetensors' is given twice");
    expect_unwritable(&good, 1, &wrong, 1, "the metadata value '\\xFF' for 'a.safetensors' is not UTF-8");
    expect_unwritable(&good, 1, &none, 1, "the metadata value for 'a.safetensors' is NULL");
    bad = good, bad.bytes = NULL, bad.fill = fill_never;
    expect_unwritable(&bad, 1, NULL, 0, "no bytes at 0, 3 wanted");
}

/* ---- sweeps ----------------------------------------------------------------------------------------------------- */

static void a_file_cut_at_any_byte_is_refused(void **state)
{
    (void)state;
    size_t n = 0;
    check_ok(write_sources("a.safetensors"), &error);
    char *bytes = get_bytes("a.safetensors", &n);
    for (size_t cut = 0; cut < n; cut++) {
        bl_safetensors *file;
        put_bytes("cut.safetensors", bytes, cut);
        assert_int_equal(bl_safetensors_open("cut.safetensors", &file, &error), BELAY_FILE_FORMAT);
        assert_null(file);
        assert_int_equal(strncmp(error.what, "'cut.safetensors' is no whole safetensors file: ", 48), 0);
    }
    free(bytes);
}

/* Flips every bit of the header: the file opens with entries inside of it, or is refused. */
static void a_header_with_any_bit_flipped_is_refused_or_sound(void **state)
{
    (void)state;
    size_t n = 0;
    check_ok(write_sources("a.safetensors"), &error);
    char *bytes = get_bytes("a.safetensors", &n);
    for (size_t at = 0; at < n - 57; at++)
        for (int bit = 0; bit < 8; bit++) {
            bl_safetensors *file;
            bytes[at] = (char)(bytes[at] ^ 1 << bit);
            put_bytes("flip.safetensors", bytes, n);
            bytes[at] = (char)(bytes[at] ^ 1 << bit);
            if (bl_safetensors_open("flip.safetensors", &file, &error) != BELAY_OK)
                continue;
            for (int64_t i = 0; i < bl_safetensors_n_entries(file); i++) {
                const void *tensor;
                int64_t n_bytes;
                check_ok(bl_safetensors_bytes(file, bl_safetensors_entry_at(file, i), &tensor, &n_bytes, &error),
                         &error);
            }
            bl_safetensors_close(file);
        }
    free(bytes);
}

static void each_fail_point_leaves_the_old_file_or_the_new_one(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        put_text("a.safetensors", "old");
        bl_file_fail_at(n, BL_FILE_FAIL_ENOSPC);
        belay_code code = write_sources("a.safetensors");
        bool reached = bl_file_fail_reached();
        bl_file_fail_at(-1, BL_FILE_FAIL_EIO);
        assert_int_equal(n_files_here(), 1);
        if (!reached) {
            check_ok(code, &error);
            assert_true(n >= 10);
            break;
        }
        assert_int_equal(code, BELAY_FILE_WRITE);
        char *bytes = get_bytes("a.safetensors", NULL);
        if (strcmp(bytes, "old") != 0)
            bl_safetensors_close(must_open("a.safetensors"));
        free(bytes);
    }
}

static belay_code write_and_read(void)
{
    TRY(write_sources("a.safetensors"));
    bl_safetensors *file;
    TRY(bl_safetensors_open("a.safetensors", &file, &error));
    const void *bytes;
    int64_t n;
    belay_code code = bl_safetensors_bytes(file, bl_safetensors_entry_at(file, 0), &bytes, &n, &error);
    bl_safetensors_close(file);
    return code;
}

static void each_failing_allocation_is_named_and_leaks_nothing(void **state)
{
    (void)state;
    for (int64_t n = 0;; n++) {
        bl_memory_fail_at(n);
        belay_code code = write_and_read();
        bool failed = bl_memory_failed();
        bl_memory_fail_at(-1);
        if (!failed) {
            check_ok(code, &error);
            assert_true(n >= 30);
            break;
        }
        assert_int_equal(code, BELAY_MEM_EXHAUSTED);
        assert_true(strcmp(error.what, "no memory to write 'a.safetensors'") == 0 ||
                    strcmp(error.what, "no memory to read 'a.safetensors'") == 0 ||
                    strcmp(error.what, "no memory to read a tensor of 'a.safetensors'") == 0);
    }
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, enter_scratch, leave_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(entries_come_in_the_order_of_their_bytes_and_by_name),
        IN_SCRATCH(metadata_are_found_by_key_and_by_number),
        IN_SCRATCH(bytes_come_whole_and_aligned),
        IN_SCRATCH(every_dtype_is_known_with_its_size),
        IN_SCRATCH(files_of_other_writers_are_read),
        IN_SCRATCH(a_header_that_is_no_header_is_named),
        IN_SCRATCH(an_entry_that_is_no_tensor_is_named),
        IN_SCRATCH(bytes_that_are_shared_or_nobodys_are_named),
        IN_SCRATCH(too_many_axes_and_too_long_a_header_are_refused),
        IN_SCRATCH(what_is_written_lies_as_the_format_says),
        IN_SCRATCH(what_is_written_is_read_again),
        IN_SCRATCH(equal_arguments_give_equal_files),
        IN_SCRATCH(a_large_source_is_asked_in_pieces),
        IN_SCRATCH(what_cannot_be_written_is_named_before_a_byte_is),
        IN_SCRATCH(a_file_cut_at_any_byte_is_refused),
        IN_SCRATCH(a_header_with_any_bit_flipped_is_refused_or_sound),
        IN_SCRATCH(each_fail_point_leaves_the_old_file_or_the_new_one),
        IN_SCRATCH(each_failing_allocation_is_named_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
