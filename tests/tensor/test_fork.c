/* SPDX-License-Identifier: Apache-2.0 */
/* A forked child: what its parent opened is refused by name and left as it is; contexts of its own work. */
#include "support/told.h"

#include <belay/data.h>
#include <belay/debug.h>
#include <belay/devices.h>
#include <belay/launch.h>
#include <belay/nn.h>
#include <belay/optim.h>
#include <belay/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report/site.h"

/* What the parent has and the child is given. */
typedef struct family {
    belay_context *context;
    belay_tensor tensor;
    belay_module *module;
    belay_optimizer *optimizer;
    belay_loader *batches;
    belay_scope scope;
    long parent;
} family;

static family f;
static int line; /* of the child's last call */

#define HERE (line = __LINE__)

/* What a child wants known when it has ended: its status, and all that it was told. */
typedef int (*child)(void);

/* Runs `run` in a child; its words come back as what was told. */
static int in_child(child run)
{
    int pipes[2], status;
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(pipes[0]);
        int code = run();
        ssize_t n = write(pipes[1], told(), strlen(told()));
        ssize_t m = write(pipes[1], &line, sizeof line);
        _exit(n < 0 || m < 0 ? 99 : code);
    }
    close(pipes[1]);
    char words[1 << 14];
    size_t used = 0;
    for (ssize_t n = 1; n > 0; used += (size_t)n)
        n = read(pipes[0], words + used, sizeof words - 1 - used);
    close(pipes[0]);
    used -= sizeof line;
    memcpy(&line, words + used, sizeof line);
    words[used] = '\0';
    told_clear();
    told_remember(NULL, BELAY_OK, words);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    f.parent = (long)pid; /* the child's number, for its words */
    return WEXITSTATUS(status);
}

static void expect_fork(long child_id)
{
    told_expect("belay: a context that process %ld opened was used in process %ld, which was forked from it "
                "(place.fork)\n"
                "    called at: test_fork.c:%d\n" TOLD_START "%s",
                (long)getpid(), child_id, line, told_try(BELAY_PLACE_FORK));
}

static void open_family(void)
{
    static const float values[] = {1, 2, 3, 4};
    static const int64_t ids[] = {1, 2, 3, 4}, labels[] = {0, 1};
    bl_report_site_source_set(false);
    f.context = told_open();
    f.tensor = told_f32(f.context, belay_shape2(2, 2), values);
    f.module = belay_linear_module(f.context, &(belay_linear_module_options){.in = 2, .out = 2});
    f.optimizer = belay_sgd(f.module, &(belay_sgd_options){.lr = 0.5f});
    belay_dataset *data = belay_dataset_ids(f.context, ids, labels, 2, &(belay_ids_options){.seq = 2});
    f.batches = belay_loader_new(data, &(belay_loader_options){.batch = 1, .workers = 2});
    f.scope = belay_scope_open(f.context);
}

/* The parent goes on as if there had been no child. */
static void close_family(void)
{
    float values[4];
    belay_batch batch;
    assert_int_equal(belay_n_faults(f.context), 0);
    assert_true(belay_loader_next(f.batches, &batch));
    assert_int_equal(batch.code, BELAY_OK);
    told_read(belay_add(f.tensor, f.tensor), values, 4);
    assert_float_equal(values[3], 8, 0);
    belay_scope_close(f.scope);
    told_close(f.context);
}

static __attribute__((noinline)) int add(void)
{
    belay_tensor sum = (HERE, belay_add(f.tensor, f.tensor));
    return belay_tensor_is_nil(sum) ? 0 : 1;
}

static void an_operation_on_the_parents_tensors_is_refused_and_named(void **state)
{
    (void)state;
    open_family();
    assert_int_equal(in_child(add), 0);
    expect_fork(f.parent);
    close_family();
}

static int add_in_a_loop(void)
{
    for (int i = 0; i < 1000; i++)
        (void)add();
    belay_fault fault;
    bool is_kept = belay_fault_first(f.context, &fault) && fault.code == BELAY_PLACE_FORK;
    return is_kept && belay_n_faults(f.context) == 1 ? 0 : 1;
}

static void a_line_is_named_once_however_often_it_runs(void **state)
{
    (void)state;
    open_family();
    assert_int_equal(in_child(add_in_a_loop), 0);
    expect_fork(f.parent);
    close_family();
}

/* Each kind of handle, and each kind of call. */
static int count_refused(void)
{
    float values[4];
    belay_batch batch;
    int n = 0;
    n += belay_is_open(f.context);
    n += belay_tensor_read(f.tensor, values, sizeof values) != BELAY_PLACE_FORK;
    n += belay_tensor_write(f.tensor, values, sizeof values) != BELAY_PLACE_FORK;
    n += belay_tensor_n_elements(f.tensor) != 0;
    n += !belay_tensor_is_nil(belay_zeros(f.context, BELAY_F32, belay_shape1(2)));
    n += !belay_tensor_is_nil(belay_keep(f.tensor));
    n += !belay_tensor_is_nil(belay_forward(f.module, f.tensor));
    n += belay_module_n_parameters(f.module) != 0;
    n += !belay_module_is_nil(f.module);
    n += belay_loader_next(f.batches, &batch);
    n += belay_loader_n_workers(f.batches) != 0;
    n += belay_optimizer_n_applied(f.optimizer) != 0;
    n += belay_checkpoint_save(f.module, "never.safetensors", NULL, 0) != BELAY_PLACE_FORK;
    n += belay_memory_get(f.context).in_use != 0;
    n += belay_device_get(f.context)[0] != '\0';
    belay_optimizer_step(f.optimizer);
    belay_backward(f.tensor);
    belay_fault_raise(f.context, BELAY_DATA_ROW, "not told");
    belay_position_set(f.context, 1, 1);
    belay_site_push(f.context, "label");
    belay_site_pop(f.context);
    belay_loader_close(f.batches);
    belay_module_free(f.module);
    belay_optimizer_free(f.optimizer);
    belay_tensor_free(f.tensor);
    belay_scope_close(f.scope);
    const char *words = told();
    int n_told = 0;
    for (; (words = strstr(words, "(place.fork)")) != NULL; words++)
        n_told++;
    told_clear();
    return n > 0 ? n : n_told == 25 ? 0 : 100 + n_told;
}

static void every_call_with_what_the_parent_opened_gives_nothing(void **state)
{
    (void)state;
    open_family();
    assert_int_equal(in_child(count_refused), 0);
    told_clear();
    assert_int_equal(access("never.safetensors", F_OK), -1);
    close_family();
}

static belay_stream stream;
static belay_event event;
static belay_host host;
static belay_bounds bounds;
static belay_device_guard guard;

static void never(belay_context *context, void *arg)
{
    (void)context, (void)arg;
    abort();
}

BELAY_KERNEL(nothing, "*: x[NM]! ->", work, item) { (void)work, (void)item; }

/* Devices, streams, events, host memory, kernels, guards. */
static int count_refused_devices(void)
{
    belay_bounds_answer answer;
    int n = 0;
    n += belay_device_set(f.context, "cpu") != BELAY_PLACE_FORK;
    n += belay_device_guard_open(f.context, "cpu").context != 0;
    n += belay_tensor_device(f.tensor)[0] != '\0';
    n += !belay_tensor_is_nil(belay_tensor_to(f.tensor, "sim:1"));
    n += belay_n_moved(f.context) != 0;
    n += belay_synchronise(f.context) != BELAY_PLACE_FORK;
    n += belay_device_synchronise(f.context, "cpu") != BELAY_PLACE_FORK;
    n += belay_device_empty_cache(f.context, NULL) != BELAY_PLACE_FORK;
    n += belay_device_is_lost(f.context, "cpu");
    n += !belay_stream_is_nil(belay_stream_open(f.context, "side"));
    n += !belay_stream_is_nil(belay_stream_current(f.context));
    n += !belay_stream_is_nil(belay_stream_use(stream));
    n += belay_event_record(stream).serial != 0;
    n += belay_stream_wait(stream, event) != BELAY_PLACE_FORK;
    n += belay_event_is_done(event);
    n += belay_event_synchronise(event) != BELAY_PLACE_FORK;
    n += belay_stream_synchronise(stream) != BELAY_PLACE_FORK;
    n += !belay_host_is_nil(belay_host_new(f.context, 8));
    n += belay_host_data(host) != NULL;
    n += belay_host_n_bytes(host) != 0;
    n += belay_tensor_write_later(f.tensor, host, 0, 16) != BELAY_PLACE_FORK;
    n += belay_tensor_read_later(f.tensor, host, 0, 16) != BELAY_PLACE_FORK;
    n += belay_debug_setup(f.context, NULL) != BELAY_PLACE_FORK;
    n += belay_guarded(f.context, never, NULL) != BELAY_PLACE_FORK;
    n += !belay_tensor_is_nil(belay_check_bounds(f.tensor, 0, 1).edges);
    n += belay_bounds_get(bounds, &answer) != BELAY_PLACE_FORK;
    belay_launch(f.context, &nothing, &(belay_launch_options){.n_items = 1, .operand = {f.tensor}});
    belay_device_guard_close(guard);
    belay_stream_close(stream);
    belay_host_free(host);
    const char *words = told();
    int n_told = 0;
    for (; (words = strstr(words, "(place.fork)")) != NULL; words++)
        n_told++;
    told_clear();
    return n > 0 ? n : n_told == 30 ? 0 : 100 + n_told;
}

static void every_call_about_the_parents_devices_gives_nothing(void **state)
{
    (void)state;
    open_family();
    guard = belay_device_guard_open(f.context, "cpu");
    stream = belay_stream_open(f.context, "side");
    event = belay_event_record(stream);
    host = belay_host_new(f.context, 16);
    bounds = belay_check_bounds(f.tensor, 0, 1);
    assert_int_equal(in_child(count_refused_devices), 0);
    told_clear();
    assert_int_equal(belay_host_n_bytes(host), 16);
    belay_host_free(host);
    belay_stream_close(stream);
    belay_device_guard_close(guard);
    close_family();
}

static int close_it(void) { return (HERE, belay_close(f.context)); }

static void closing_the_parents_context_frees_nothing_and_gives_the_status(void **state)
{
    (void)state;
    struct stat before, after;
    char path[] = "/tmp/belay-fork-XXXXXX";
    int fd = mkstemp(path);
    close(fd);
    unlink(path);
    open_family();
    belay_context *own = f.context;
    f.context = belay_open(&(belay_options){.log = told_remember, .journal = path});
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(in_child(close_it), 3);
    expect_fork(f.parent);
    assert_int_equal(stat(path, &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_size == after.st_size);
    assert_false(belay_tensor_is_nil(belay_zeros(f.context, BELAY_F32, belay_shape1(2))));
    assert_int_equal(belay_close(f.context), 0);
    unlink(path);
    f.context = own;
    close_family();
}

/* Long enough a tensor for several threads, which the child has not. */
static int compute(void)
{
    belay_context *own = belay_open(&(belay_options){.log = told_remember, .no_journal = true, .threads = 2});
    belay_tensor x = belay_ones(own, BELAY_F32, belay_shape2(512, 512));
    double sum = belay_tensor_item(belay_sum(belay_matmul(x, x), NULL));
    int status = belay_close(own);
    return sum == 512.0 * 512.0 * 512.0 && status == 0 ? 0 : 1;
}

static void a_context_of_the_childs_own_computes(void **state)
{
    (void)state;
    open_family();
    assert_int_equal(compute(), 0);
    assert_int_equal(in_child(compute), 0);
    close_family();
}

/* The thread sanitizer's own handler for OpenMP does not outlive a fork of several threads, and its child may start none. */
#if defined __has_feature
#if __has_feature(thread_sanitizer)
#define HAS_NO_EXIT_AFTER_FORK    1
#define HAS_NO_THREADS_AFTER_FORK 1
#endif
#endif

static int compute_on_sim(void)
{
    alarm(60); /* a child that waits for ever fails */
    belay_context *own = belay_open(&(belay_options){.device = "sim:0", .log = told_remember, .no_journal = true});
    belay_tensor x = belay_ones(own, BELAY_F32, belay_shape2(64, 64));
    double sum = belay_tensor_item(belay_sum(belay_matmul(x, x), NULL));
    int status = belay_close(own);
    return sum == 64.0 * 64.0 * 64.0 && status == 0 ? 0 : 1;
}

/* With threads of its own the parent is in the middle of a product, and holds what only one product may hold. */
static void a_child_computes_while_its_parents_device_does(void **state)
{
    (void)state;
#ifdef HAS_NO_THREADS_AFTER_FORK
    skip();
#endif
    enum { N_PRODUCTS = 64 };
    told_clear();
    belay_context *context = belay_open(&(belay_options){.device = "sim:0", .log = told_remember, .no_journal = true});
    belay_tensor x = belay_ones(context, BELAY_F32, belay_shape2(512, 512)), y = x;
    for (int i = 0; i < N_PRODUCTS; i++)
        y = belay_matmul(x, x);
    assert_int_equal(in_child(compute_on_sim), 0);
    assert_string_equal(told(), "");
    assert_true(belay_tensor_item(belay_sum(y, NULL)) == 512.0 * 512.0 * 512.0);
    assert_int_equal(belay_close(context), 0);
}

static int fork_again(void)
{
    belay_context *own = belay_open(&(belay_options){.no_journal = true});
    pid_t pid = fork();
    if (pid == 0)
        _exit(belay_is_open(own) || belay_is_open(f.context) ? 1 : 0);
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 && belay_close(own) == 0 ? 0 : 1;
}

static void a_childs_child_has_neither_the_parents_context_nor_the_childs(void **state)
{
    (void)state;
    open_family();
    assert_int_equal(in_child(fork_again), 0);
    close_family();
}

static void close_at_exit(void) { (void)belay_close(f.context); }

static int leave_by_exit(void)
{
    atexit(close_at_exit);
    exit(0); /* with all handlers, the one above first */
}

static void an_exit_handler_that_closes_ends_well(void **state)
{
    (void)state;
#ifdef HAS_NO_EXIT_AFTER_FORK
    skip();
#endif
    open_family();
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        leave_by_exit();
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close_family();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operation_on_the_parents_tensors_is_refused_and_named),
        cmocka_unit_test(a_line_is_named_once_however_often_it_runs),
        cmocka_unit_test(every_call_with_what_the_parent_opened_gives_nothing),
        cmocka_unit_test(every_call_about_the_parents_devices_gives_nothing),
        cmocka_unit_test(closing_the_parents_context_frees_nothing_and_gives_the_status),
        cmocka_unit_test(a_context_of_the_childs_own_computes),
        cmocka_unit_test(a_child_computes_while_its_parents_device_does),
        cmocka_unit_test(a_childs_child_has_neither_the_parents_context_nor_the_childs),
        cmocka_unit_test(an_exit_handler_that_closes_ends_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
