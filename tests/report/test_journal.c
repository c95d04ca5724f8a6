/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: what a process that was killed in the middle of a step leaves behind. */
#include "support/told.h"

#include <belay/devices.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/record.h"
#include "tensor/context.h"

static char path[128];

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/belay-test-journal-%ld", (long)getpid());
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

/* ---- a process that dies --------------------------------------------------------------------------------------------- */

/* Where it is killed. */
enum { AFTER_EMBEDDING, IN_FORWARD, IN_BACKWARD, AFTER_BACKWARD, AFTER_SCOPE, N_POINTS };
static int line_of_embedding, line_of_function, kill_at;

static void die_at(int point)
{
    if (point == kill_at)
        kill(getpid(), SIGKILL);
}

static void twice_forward(belay_function_call *call, void *state, const belay_tensor *in, int n_in, belay_tensor *out,
                          int n_out)
{
    (void)call, (void)state, (void)n_in, (void)n_out;
    out[0] = belay_affine(in[0], 2, 0);
    die_at(IN_FORWARD);
}

static void twice_backward(belay_function_call *call, void *state, const belay_tensor *grad_out, int n_out,
                           belay_tensor *grad_in, int n_in)
{
    (void)call, (void)state, (void)n_in, (void)n_out;
    grad_in[0] = belay_affine(grad_out[0], 2, 0);
    die_at(IN_BACKWARD);
}

static const belay_function twice = {.name = "twice", .forward = twice_forward, .backward = twice_backward};

static void step(belay_context *context, belay_tensor weight, uint32_t position)
{
    const int64_t ids[] = {1, 0, 2, 1};
    belay_position_set(context, 1, position);
    belay_scope scope = belay_scope_open(context);
    belay_tensor tokens = belay_tensor_from(context, BELAY_I64, belay_shape2(2, 2), ids, sizeof ids), y;
    belay_tensor_name_set(tokens, "tokens");
    size_t length = bl_layer_push(context, "classifier");
    line_of_embedding = __LINE__ + 1;
    belay_tensor rows = belay_embedding(weight, tokens, NULL);
    die_at(AFTER_EMBEDDING);
    line_of_function = __LINE__ + 1;
    belay_function_apply(context, &twice, NULL, &rows, 1, 0, &y, 1);
    bl_layer_pop(context, length);
    belay_backward(belay_sum(y, NULL));
    die_at(AFTER_BACKWARD);
    belay_scope_close(scope);
    die_at(AFTER_SCOPE);
}

/* The lines are noted by running the same steps to their end. */
static void run(int n_steps, bool has_file)
{
    belay_context *context =
        belay_open(&(belay_options){.journal = has_file ? path : NULL, .no_journal = !has_file, .threads = 1});
    belay_tensor weight = told_leaf(context, belay_shape2(3, 2), (const float[]){1, 2, 3, 4, 5, 6});
    belay_tensor_name_set(weight, "embedding.weight");
    int wanted = kill_at;
    for (int i = 0; i < n_steps; i++) {
        kill_at = i == n_steps - 1 ? wanted : -1;
        step(context, weight, (uint32_t)i);
    }
    belay_close(context);
}

static bl_journal_reader *killed(int point, int n_steps)
{
    kill_at = -1;
    run(1, false);
    pid_t child = fork();
    if (child == 0) {
        kill_at = point;
        run(n_steps, true);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    bl_journal_reader *reader;
    bl_error error;
    assert_int_equal(bl_journal_reader_open(path, &reader, &error), BELAY_OK);
    const bl_journal_head *head = bl_journal_reader_head(reader);
    assert_int_equal(head->pid, child);
    assert_int_equal(head->closed, 0);
    return reader;
}

/* ---- what is left ---------------------------------------------------------------------------------------------------- */

static void expect_site(const bl_journal_reader *reader, uint32_t site, int line)
{
#ifdef BL_HAVE_LIBDW
    char words[300], expected[64];
    bl_journal_reader_describe_site(reader, site, words, sizeof words);
    snprintf(expected, sizeof expected, "test_journal.c:%d", line);
    assert_string_equal(words, expected);
#else
    (void)line;
    assert_int_not_equal(bl_journal_reader_site(reader, site), 0);
#endif
}

static bl_launch_record last_launch(const bl_journal_reader *reader, const char *op)
{
    bl_launch_record launch;
    assert_true(bl_journal_reader_launch(reader, 0, &launch));
    assert_string_equal(bl_journal_reader_op(reader, launch.op), op);
    assert_int_equal(launch.epoch, 1);
    return launch;
}

static bool lives(const bl_journal_reader *reader, const char *name, int64_t n_bytes)
{
    for (int64_t place = 0; place < bl_journal_reader_n_places(reader); place++) {
        bl_storage_record storage;
        if (bl_journal_reader_alive(reader, place, &storage) && storage.n_bytes == (uint64_t)n_bytes &&
            strcmp(bl_journal_reader_text(reader, storage.name), name) == 0)
            return true;
    }
    return false;
}

static int n_alive(const bl_journal_reader *reader)
{
    int n = 0;
    bl_storage_record storage;
    for (int64_t place = 0; place < bl_journal_reader_n_places(reader); place++)
        n += bl_journal_reader_alive(reader, place, &storage);
    return n;
}

/* Births less deaths, as long as the ring holds them all. */
static int n_born_and_not_dead(const bl_journal_reader *reader)
{
    int n = 0;
    uint64_t last = bl_journal_reader_head(reader)->n_storages;
    for (uint64_t serial = 1; serial <= last; serial++) {
        bl_storage_record event;
        assert_true(bl_journal_reader_storage(reader, serial, &event));
        n += event.is_death != 0 ? -1 : 1;
    }
    return n;
}

static void a_kill_after_an_op_leaves_its_launch_whole(void **state)
{
    (void)state;
    bl_journal_reader *reader = killed(AFTER_EMBEDDING, 3);
    bl_launch_record launch = last_launch(reader, "embedding");
    assert_int_equal(launch.position, 2);
    assert_int_equal(launch.is_backward, 0);
    assert_int_equal(launch.n_operands, 3);
    assert_string_equal(bl_journal_reader_text(reader, launch.layer), "classifier");
    const struct {
        const char *name;
        int dtype, rank, is_output;
        int64_t size[2], n_bytes;
    } operands[] = {{"embedding.weight", BELAY_F32, 2, 0, {3, 2}, 24},
                    {"tokens", BELAY_I64, 1, 0, {4, 0}, 32},
                    {"", BELAY_F32, 2, 1, {4, 2}, 32}};
    for (int k = 0; k < 3; k++) {
        const bl_operand_record *o = &launch.operand[k];
        assert_string_equal(bl_journal_reader_text(reader, o->name), operands[k].name);
        assert_int_equal(o->dtype, operands[k].dtype);
        assert_int_equal(o->rank, operands[k].rank);
        assert_int_equal(o->is_output, operands[k].is_output);
        assert_int_equal(o->n_bytes, operands[k].n_bytes);
        assert_memory_equal(o->size, operands[k].size, (size_t)o->rank * sizeof o->size[0]);
        assert_int_not_equal(o->address, 0);
    }
    expect_site(reader, launch.site, line_of_embedding);
    assert_true(lives(reader, "embedding.weight", 24));
    assert_true(lives(reader, "embedding.weight.grad", 24));
    assert_true(lives(reader, "tokens", 32));
    assert_int_equal(n_alive(reader), 4);
    bl_journal_reader_close(reader);
}

static void a_kill_inside_a_users_function_is_told_with_the_line_that_applied_it(void **state)
{
    (void)state;
    bl_journal_reader *reader = killed(IN_FORWARD, 1);
    bl_launch_record launch = last_launch(reader, "affine");
    assert_int_equal(launch.is_backward, 0);
    assert_string_equal(bl_journal_reader_text(reader, launch.layer), "classifier");
    expect_site(reader, launch.site, line_of_function);
    bl_journal_reader_close(reader);
}

static void a_kill_in_backward_is_told_with_the_line_of_the_forward_call(void **state)
{
    (void)state;
    bl_journal_reader *reader = killed(IN_BACKWARD, 1);
    bl_launch_record launch = last_launch(reader, "affine");
    assert_int_equal(launch.is_backward, 1);
    assert_string_equal(bl_journal_reader_text(reader, launch.layer), "classifier");
    expect_site(reader, launch.site, line_of_function);
    bl_journal_reader_close(reader);
}

static void storages_alive_are_births_without_deaths(void **state)
{
    (void)state;
    for (int point = 0; point < N_POINTS; point++) {
        bl_journal_reader *reader = killed(point, 1);
        if (bl_journal_reader_head(reader)->n_storages <= BL_RING_STORAGES)
            assert_int_equal(n_alive(reader), n_born_and_not_dead(reader));
        assert_true(lives(reader, "embedding.weight", 24));
        bl_journal_reader_close(reader);
    }
    bl_journal_reader *reader = killed(AFTER_SCOPE, 1);
    assert_int_equal(n_alive(reader), 2); /* the weight and its gradient */
    bl_journal_reader_close(reader);
}

static void what_lives_long_is_listed_after_the_rings_have_wrapped(void **state)
{
    (void)state;
    bl_journal_reader *reader = killed(AFTER_SCOPE, 1 + BL_RING_STORAGES / 8);
    const bl_journal_head *head = bl_journal_reader_head(reader);
    bl_launch_record launch;
    assert_true(head->n_storages > BL_RING_STORAGES);
    assert_true(head->n_launches > BL_RING_LAUNCHES);
    assert_false(bl_journal_reader_launch(reader, head->n_launches - BL_RING_LAUNCHES, &launch));
    assert_true(bl_journal_reader_launch(reader, head->n_launches - BL_RING_LAUNCHES + 1, &launch));
    assert_false(bl_journal_reader_launch(reader, head->n_launches + 1, &launch));
    assert_true(lives(reader, "embedding.weight", 24));
    assert_int_equal(n_alive(reader), 2);
    assert_int_equal(head->n_unlisted, 0);
    bl_journal_reader_close(reader);
}

static void a_context_closed_in_order_says_so(void **state)
{
    (void)state;
    kill_at = -1;
    run(1, true);
    bl_journal_reader *reader;
    bl_error error;
    assert_int_equal(bl_journal_reader_open(path, &reader, &error), BELAY_OK);
    assert_int_equal(bl_journal_reader_head(reader)->closed, 1);
    assert_int_equal(n_alive(reader), 0);
    bl_journal_reader_close(reader);
}

/* ---- streams --------------------------------------------------------------------------------------------------------- */

static bl_journal_reader *opened(void)
{
    bl_journal_reader *reader;
    bl_error error;
    assert_int_equal(bl_journal_reader_open(path, &reader, &error), BELAY_OK);
    return reader;
}

static bl_stream_record stream_of(const bl_journal_reader *reader, int row)
{
    bl_stream_record stream;
    assert_true(bl_journal_reader_stream(reader, row, &stream));
    return stream;
}

static void a_launch_on_cpu_has_ended_when_its_call_returns(void **state)
{
    (void)state;
    belay_context *context = belay_open(&(belay_options){.journal = path});
    for (uint64_t n = 1; n <= 3; n++) {
        belay_zeros(context, BELAY_F32, belay_shape1(1));
        bl_journal_reader *reader = opened();
        bl_launch_record launch;
        assert_true(bl_journal_reader_launch(reader, 0, &launch));
        bl_stream_record stream = stream_of(reader, (int)launch.stream);
        assert_int_equal(launch.number, n);
        assert_int_equal(stream.passed, n);
        assert_string_equal(stream.device, "cpu");
        assert_true(stream.is_synchronous);
        bl_journal_reader_close(reader);
    }
    assert_int_equal(belay_close(context), 0);
}

static void a_software_device_shows_how_far_each_stream_has_got(void **state)
{
    (void)state;
    belay_context *context = belay_open(&(belay_options){.device = "sim:0", .journal = path});
    belay_stream side = belay_stream_open(context, "side");
    belay_zeros(context, BELAY_F32, belay_shape1(1));
    (void)belay_stream_use(side);
    belay_zeros(context, BELAY_F32, belay_shape1(1));
    belay_zeros(context, BELAY_F32, belay_shape1(1));
    assert_int_equal(belay_synchronise(context), BELAY_OK);
    bl_journal_reader *reader = opened();
    for (int row = 0; row < 2; row++) {
        bl_stream_record stream = stream_of(reader, row);
        assert_int_equal(stream.number, row);
        assert_int_equal(stream.put, row + 1);
        assert_int_equal(stream.passed, row + 1);
        assert_string_equal(stream.device, "sim:0");
        assert_string_equal(bl_journal_reader_text(reader, stream.name), row == 0 ? "" : "side");
        assert_false(stream.is_synchronous);
    }
    bl_launch_record launch;
    assert_true(bl_journal_reader_launch(reader, 0, &launch));
    assert_int_equal(launch.number, 2);
    bl_stream_record closed;
    bl_journal_reader_close(reader);
    belay_stream_close(side);
    reader = opened();
    assert_false(bl_journal_reader_stream(reader, 1, &closed));
    bl_journal_reader_close(reader);
    /* Another stream in its row and under its number counts on, and its launches begin behind. */
    (void)belay_stream_open(context, NULL);
    reader = opened();
    bl_stream_record next = stream_of(reader, 1);
    assert_int_equal(next.opened_after, 3);
    assert_int_equal(next.passed, 2);
    assert_int_equal(next.put, 2);
    bl_journal_reader_close(reader);
    assert_int_equal(belay_close(context), 0);
}

static void a_launch_of_no_items_or_one_that_was_refused_is_in_no_stream(void **state)
{
    (void)state;
    belay_context *context = belay_open(&(belay_options){.device = "sim:0", .journal = path});
    belay_zeros(context, BELAY_F32, belay_shape1(0));
    bl_journal_reader *reader = opened();
    bl_launch_record launch;
    if (bl_journal_reader_launch(reader, 0, &launch)) /* an empty tensor may need no launch at all */
        assert_int_equal(launch.number, 0);
    bl_journal_reader_close(reader);
    belay_ones(context, BELAY_F32, belay_shape1(1));
    bl_journal_launch_refused(context->journal, context->n_launches);
    reader = opened();
    assert_true(bl_journal_reader_launch(reader, 0, &launch));
    assert_int_equal(launch.number, 0);
    bl_journal_reader_close(reader);
    assert_int_equal(belay_close(context), 0);
}

/* ---- tables that are full -------------------------------------------------------------------------------------------- */

static void more_storages_than_the_table_holds_are_counted(void **state)
{
    (void)state;
    enum { MORE = 10 };
    belay_context *context = belay_open(&(belay_options){.journal = path});
    belay_scope scope = belay_scope_open(context);
    for (int i = 0; i < BL_TABLE_ALIVE + MORE; i++)
        belay_tensor_from(context, BELAY_F32, belay_shape1(1), "abcd", 4);
    bl_journal_reader *reader;
    bl_error error;
    assert_int_equal(bl_journal_reader_open(path, &reader, &error), BELAY_OK);
    assert_int_equal(n_alive(reader), BL_TABLE_ALIVE);
    assert_int_equal(bl_journal_reader_head(reader)->n_unlisted, MORE);
    bl_journal_reader_close(reader);
    belay_scope_close(scope);
    belay_tensor_from(context, BELAY_F32, belay_shape1(1), "abcd", 4);
    assert_int_equal(bl_journal_reader_open(path, &reader, &error), BELAY_OK);
    assert_int_equal(n_alive(reader), 1);
    bl_journal_reader_close(reader);
    assert_int_equal(belay_close(context), 0);
}

static void a_full_table_of_texts_gives_no_text_and_no_fault(void **state)
{
    (void)state;
    belay_context *context = told_open();
    belay_tensor x = belay_zeros(context, BELAY_F32, belay_shape1(1));
    char name[1000];
    memset(name, 'x', sizeof name);
    for (int i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "%d", i);
        name[strlen(name)] = 'x';
        name[sizeof name - 1] = '\0';
        belay_tensor_name_set(x, name);
    }
    assert_string_equal(belay_tensor_name(x), "");
    belay_tensor_name_set(x, "s");
    assert_int_equal(strlen(belay_tensor_name(x)), 1);
    told_close(context);
}

static void a_label_is_found_in_the_journal(void **state)
{
    (void)state;
    belay_context *context = belay_open(&(belay_options){.journal = path});
    belay_site_push(context, "train.py:12");
    belay_zeros(context, BELAY_F32, belay_shape1(1));
    belay_site_pop(context);
    bl_journal_reader *reader;
    bl_error error;
    bl_launch_record launch;
    char words[64];
    assert_int_equal(bl_journal_reader_open(path, &reader, &error), BELAY_OK);
    assert_true(bl_journal_reader_launch(reader, 0, &launch));
    bl_journal_reader_describe_site(reader, launch.site, words, sizeof words);
    assert_string_equal(words, "train.py:12");
    bl_journal_reader_describe_site(reader, 0, words, sizeof words);
    assert_string_equal(words, "unknown");
    bl_journal_reader_describe_site(reader, 999999, words, sizeof words);
    assert_string_equal(words, "unknown");
    bl_journal_reader_close(reader);
    assert_int_equal(belay_close(context), 0);
}

/* ---- damaged files --------------------------------------------------------------------------------------------------- */

static void read_everything(const bl_journal_reader *reader)
{
    bl_launch_record launch;
    bl_storage_record storage;
    char words[64];
    for (uint64_t serial = 0; serial < 40; serial++) {
        bl_journal_reader_storage(reader, serial, &storage);
        if (!bl_journal_reader_launch(reader, serial, &launch))
            continue;
        assert_non_null(bl_journal_reader_op(reader, launch.op));
        assert_non_null(bl_journal_reader_text(reader, launch.layer));
        for (int k = 0; k < launch.n_operands; k++)
            assert_true(launch.operand[k].rank <= BL_MAX_RANK);
        if (serial == 0)
            bl_journal_reader_describe_site(reader, launch.site, words, sizeof words);
    }
    bl_stream_record stream;
    for (int row = -1; row <= bl_journal_reader_n_streams(reader); row++)
        if (bl_journal_reader_stream(reader, row, &stream))
            assert_true(row >= 0 && row < BL_TABLE_STREAMS && strlen(stream.device) < sizeof stream.device);
    int64_t n = bl_journal_reader_n_places(reader);
    for (int64_t place = 0; place < n; place += 1 + n / 50)
        bl_journal_reader_alive(reader, place, &storage);
}

static void every_flipped_byte_of_the_head_is_refused_or_read_safely(void **state)
{
    (void)state;
    kill_at = -1;
    run(1, true);
    int fd = open(path, O_RDWR);
    bl_journal_head head;
    assert_int_equal(pread(fd, &head, sizeof head, 0), sizeof head);
    int n_refused = 0;
    for (size_t at = 0; at < sizeof head; at++)
        for (int bit = 0; bit < 8; bit += 7) {
            unsigned char byte = ((const unsigned char *)&head)[at], flipped = (unsigned char)(byte ^ 1 << bit);
            assert_int_equal(pwrite(fd, &flipped, 1, (off_t)at), 1);
            bl_journal_reader *reader;
            bl_error error;
            belay_code code = bl_journal_reader_open(path, &reader, &error);
            assert_true(code == BELAY_OK || code == BELAY_FILE_FORMAT);
            assert_true((reader != NULL) == (code == BELAY_OK));
            n_refused += code != BELAY_OK;
            if (code == BELAY_OK)
                read_everything(reader);
            bl_journal_reader_close(reader);
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
        }
    assert_true(n_refused > 8 * 2 + 4 * 2); /* magic and version at least */
    close(fd);
}

static void refused(const char *why)
{
    bl_journal_reader *reader;
    bl_error error;
    char what[300];
    assert_int_equal(bl_journal_reader_open(path, &reader, &error), BELAY_FILE_FORMAT);
    assert_null(reader);
    snprintf(what, sizeof what, "%s is no journal", path);
    assert_string_equal(error.what, what);
    assert_string_equal(error.facts, why);
}

static void a_file_that_is_no_journal_is_refused_with_the_reason(void **state)
{
    (void)state;
    kill_at = -1;
    run(1, true);
    int fd = open(path, O_RDWR);
    bl_journal_head head, other;
    assert_int_equal(pread(fd, &head, sizeof head, 0), sizeof head);
    other = head;
    other.magic++;
    assert_int_equal(pwrite(fd, &other, sizeof other, 0), sizeof other);
    refused("its first bytes are not a journal's\n");
    other = head;
    other.version++;
    assert_int_equal(pwrite(fd, &other, sizeof other, 0), sizeof other);
    refused("it was written by another version\n");
    other = head;
    other.launch_bytes += 8;
    assert_int_equal(pwrite(fd, &other, sizeof other, 0), sizeof other);
    refused("its records have another size\n");
    other = head;
    other.stream_bytes -= 8;
    assert_int_equal(pwrite(fd, &other, sizeof other, 0), sizeof other);
    refused("its records have another size\n");
    other = head;
    other.streams.n_bytes = UINT64_MAX / 2;
    assert_int_equal(pwrite(fd, &other, sizeof other, 0), sizeof other);
    refused("a section lies outside of the file\n");
    other = head;
    other.alive.offset = UINT64_MAX - 7;
    assert_int_equal(pwrite(fd, &other, sizeof other, 0), sizeof other);
    refused("a section lies outside of the file\n");
    other = head;
    other.launches.n_bytes = 8;
    assert_int_equal(pwrite(fd, &other, sizeof other, 0), sizeof other);
    refused("a ring has no room for a record\n");
    assert_int_equal(pwrite(fd, &head, sizeof head, 0), sizeof head);
    assert_int_equal(ftruncate(fd, sizeof head - 1), 0);
    refused("it is shorter than a journal's head\n");
    close(fd);
}

/* Another process opens its journal in the same place: what a reader has opened stays whole. */
static void a_new_journal_does_not_cut_what_is_being_read(void **state)
{
    (void)state;
    kill_at = -1;
    run(1, true);
    bl_journal_reader *reader;
    bl_error error;
    bl_launch_record launch;
    assert_int_equal(bl_journal_reader_open(path, &reader, &error), BELAY_OK);
    uint64_t last = bl_journal_reader_head(reader)->n_launches;
    belay_context *context = belay_open(&(belay_options){.journal = path});
    assert_true(bl_journal_reader_launch(reader, last, &launch));
    bl_journal_reader_close(reader);
    assert_int_equal(belay_close(context), 0);
}

static void a_link_in_the_journals_place_is_replaced_and_not_followed(void **state)
{
    (void)state;
    char victim[160];
    struct stat status;
    snprintf(victim, sizeof victim, "%s.victim", path);
    int fd = open(victim, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, "precious", 8), 8);
    unlink(path);
    assert_int_equal(symlink(victim, path), 0);
    belay_context *context = belay_open(&(belay_options){.journal = path});
    assert_true(belay_is_open(context));
    assert_int_equal(belay_close(context), 0);
    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(status.st_size, 8);
    close(fd);
    unlink(victim);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_path, remove_path)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_kill_after_an_op_leaves_its_launch_whole),
        TEST(a_kill_inside_a_users_function_is_told_with_the_line_that_applied_it),
        TEST(a_kill_in_backward_is_told_with_the_line_of_the_forward_call),
        TEST(storages_alive_are_births_without_deaths),
        TEST(what_lives_long_is_listed_after_the_rings_have_wrapped),
        TEST(a_context_closed_in_order_says_so),
        TEST(a_launch_on_cpu_has_ended_when_its_call_returns),
        TEST(a_software_device_shows_how_far_each_stream_has_got),
        TEST(a_launch_of_no_items_or_one_that_was_refused_is_in_no_stream),
        TEST(more_storages_than_the_table_holds_are_counted),
        TEST(a_full_table_of_texts_gives_no_text_and_no_fault),
        TEST(a_label_is_found_in_the_journal),
        TEST(every_flipped_byte_of_the_head_is_refused_or_read_safely),
        TEST(a_file_that_is_no_journal_is_refused_with_the_reason),
        TEST(a_new_journal_does_not_cut_what_is_being_read),
        TEST(a_link_in_the_journals_place_is_replaced_and_not_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
