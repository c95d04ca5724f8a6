/* SPDX-License-Identifier: Apache-2.0 */
/* Illegal accesses as ordinary returns; what is not ours goes where it went before.  A scene is a program of its own:
 * this one, called with its name, so that no other test has put its handler anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/trap.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif
#else
enum { IS_SANITIZED = 0 };
#endif

enum { N_PAGES = 64, N_THREADS = 4 };

#define BARE __attribute__((noinline, no_sanitize_address, no_sanitize_thread))

/* Accesses that nothing else looks at, at addresses that the compiler must not know. */
BARE static unsigned char peek(uintptr_t address)
{
    volatile uintptr_t at = address;
    return *(volatile unsigned char *)at;
}

BARE static void poke(uintptr_t address)
{
    volatile uintptr_t at = address;
    *(volatile unsigned char *)at = 1;
}

BARE static float peek_f32(const void *address) { return *(const volatile float *)address; }
BARE static void poke_f32(void *address, float value) { *(volatile float *)address = value; }

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static char *reserve(void)
{
    char *range = mmap(NULL, N_PAGES * page_size(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(range, MAP_FAILED);
    return range;
}

static char *open_range(void)
{
    char *range = reserve();
    assert_true(bl_trap_range_add(range, N_PAGES * page_size()));
    return range;
}

static void close_range_of_pages(char *range)
{
    bl_trap_range_remove(range);
    assert_int_equal(munmap(range, N_PAGES * page_size()), 0);
}

/* Whether the kernel can read a byte there: no signal is needed to learn it. */
static bool is_readable(const void *address)
{
    int end[2];
    assert_int_equal(pipe(end), 0);
    bool yes = write(end[1], address, 1) == 1;
    assert_true(yes || errno == EFAULT);
    (void)close(end[0]);
    (void)close(end[1]);
    return yes;
}

static bool is_write_told(void)
{
#if defined(__x86_64__)
    return true;
#else
    return false;
#endif
}

static void assert_touch(const void *range, const void *address, uint64_t count, bool is_write)
{
    bl_trap_touch touch;
    assert_true(bl_trap_take(range, &touch));
    if (range != NULL)
        assert_ptr_equal(touch.range, range);
    assert_int_equal(touch.address, (uintptr_t)address);
    assert_int_equal(touch.count, count);
    assert_int_equal(touch.is_write_known, is_write_told());
    assert_int_equal(touch.is_write, is_write && is_write_told());
}

/* ---- bodies ---------------------------------------------------------------------------------------------------------- */

typedef struct steps {
    uintptr_t address;
    bool writes;
    int n; /* how far it came */
    bl_trap_access inner;
    bool inner_ended;
} steps;

static void walk(void *state)
{
    steps *s = state;
    s->n = 1;
    if (s->address != 0 && s->writes)
        poke(s->address);
    else if (s->address != 0)
        (void)peek(s->address);
    s->n = 2;
}

static void assert_ended(uintptr_t address, bool writes)
{
    steps s = {.address = address, .writes = writes};
    bl_trap_access access = {0};
    assert_false(bl_trap_run(walk, &s, &access));
    assert_int_equal(s.n, 1);
    assert_int_equal(access.address, address);
    assert_int_equal(access.is_write_known, is_write_told());
    assert_int_equal(access.is_write, writes && is_write_told());
}

static void a_body_without_an_illegal_access_comes_to_its_end(void **state)
{
    (void)state;
    steps s = {0};
    bl_trap_access access = {.address = 77};
    assert_true(bl_trap_run(walk, &s, &access));
    assert_int_equal(s.n, 2);
    assert_int_equal(access.address, 77);
}

static void an_illegal_access_ends_the_body_and_tells_where(void **state)
{
    (void)state;
    char *range = reserve();
    sigset_t before, after;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    for (int i = 0; i < 500; i++)
        assert_ended((uintptr_t)range + 17 + (size_t)i, i % 2 == 1);
    assert_ended(8, false);
    assert_ended(8, true);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    for (int number = 1; number < 32; number++)
        assert_int_equal(sigismember(&after, number), sigismember(&before, number));
    assert_int_equal(munmap(range, N_PAGES * page_size()), 0);
}

static void a_write_to_what_may_only_be_read_ends_the_body(void **state)
{
    (void)state;
    char *page = mmap(NULL, page_size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    steps s = {.address = (uintptr_t)page};
    bl_trap_access access;
    assert_true(bl_trap_run(walk, &s, &access));
    assert_ended((uintptr_t)page, true);
    assert_int_equal(munmap(page, page_size()), 0);
}

static void bytes_past_the_end_of_a_mapped_file_end_the_body(void **state)
{
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    char *page = mmap(NULL, page_size(), PROT_READ, MAP_SHARED, fileno(file), 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    assert_ended((uintptr_t)page + 5, false); /* SIGBUS */
    assert_int_equal(munmap(page, page_size()), 0);
    (void)fclose(file);
}

#if defined(__x86_64__)
static void an_address_that_the_machine_does_not_tell_is_none(void **state)
{
    (void)state;
    steps s = {.address = UINT64_C(0x8000000000000000)};
    bl_trap_access access;
    assert_false(bl_trap_run(walk, &s, &access));
    assert_int_equal(access.address, 0);
    assert_false(access.is_write_known);
}
#endif

static void what_cannot_be_read_is_told_without_a_signal(void **state)
{
    (void)state;
    static const char byte = 1;
    char *range = reserve();
    assert_true(bl_trap_is_readable((uintptr_t)&byte));
    assert_false(bl_trap_is_readable((uintptr_t)range));
    assert_int_equal(mprotect(range, page_size(), PROT_READ), 0);
    assert_true(bl_trap_is_readable((uintptr_t)range + page_size() - 1));
    assert_false(bl_trap_is_readable((uintptr_t)range + page_size()));
    assert_int_equal(munmap(range, N_PAGES * page_size()), 0);
    assert_false(bl_trap_is_readable((uintptr_t)range));
    assert_false(bl_trap_is_readable(0));
    assert_false(bl_trap_is_readable(UINT64_MAX));
}

static void walk_in_two(void *state)
{
    steps *s = state, inner = {.address = 8};
    s->inner_ended = !bl_trap_run(walk, &inner, &s->inner);
    walk(state);
}

static void the_innermost_body_ends_and_the_outer_goes_on(void **state)
{
    (void)state;
    steps s = {0};
    bl_trap_access access = {0};
    assert_true(bl_trap_run(walk_in_two, &s, &access));
    assert_int_equal(s.n, 2);
    assert_true(s.inner_ended);
    assert_int_equal(s.inner.address, 8);
    s = (steps){.address = 16};
    assert_false(bl_trap_run(walk_in_two, &s, &access));
    assert_int_equal(s.n, 1);
    assert_int_equal(access.address, 16);
}

/* An access while its signal is blocked would end the process. */
static void a_thread_that_blocks_all_signals_runs_bodies_as_any_other(void **state)
{
    (void)state;
    sigset_t all, before, after;
    sigfillset(&all);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &all, &before), 0);
    assert_ended(8, false);
    the_innermost_body_ends_and_the_outer_goes_on(NULL);
    a_body_without_an_illegal_access_comes_to_its_end(NULL);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, &after), 0);
    assert_int_equal(sigismember(&after, SIGSEGV), 1);
    assert_int_equal(sigismember(&after, SIGBUS), 1);
}

/* ---- ranges ---------------------------------------------------------------------------------------------------------- */

static void a_touch_returns_no_number_and_is_told_once(void **state)
{
    (void)state;
    char *range = open_range();
    bl_trap_touch none;
    for (int round = 0; round < 3; round++) {
        char *at = range + 5 * page_size() + 64;
        assert_true(isnan(peek_f32(at)));
        assert_true(isnan(peek_f32(at + 4))); /* the page lies there */
        assert_true(is_readable(at));
        assert_touch(range, at, 1, false);
        assert_false(bl_trap_take(range, &none));
        assert_false(bl_trap_take(NULL, &none));
        assert_false(is_readable(at));
    }
    close_range_of_pages(range);
}

static void a_write_returns_and_is_lost(void **state)
{
    (void)state;
    char *range = open_range(), *at = range + page_size() - 4;
    poke_f32(at, 1.5f);
    assert_true(isnan(peek_f32(at - 4)));
    assert_touch(range, at, 1, true);
    assert_true(isnan(peek_f32(at)));
    poke_f32(at, 1.5f); /* after a read: the page that lies there takes no write */
    assert_touch(range, at, is_write_told() ? 2 : 1, false);
    close_range_of_pages(range);
}

static void every_page_of_a_long_touch_goes_away_again(void **state)
{
    (void)state;
    char *range = open_range();
    size_t page = page_size();
    for (size_t i = N_PAGES - 1; i > 0; i--)
        (void)peek((uintptr_t)range + i * page + i);
    assert_touch(range, range + (N_PAGES - 1) * page + N_PAGES - 1, N_PAGES - 1, false);
    for (size_t i = 0; i < N_PAGES; i++)
        assert_false(is_readable(range + i * page));
    close_range_of_pages(range);
}

static void each_range_has_its_own_note(void **state)
{
    (void)state;
    char *a = open_range(), *b = open_range();
    bl_trap_touch none;
    poke((uintptr_t)b + 9);
    (void)peek((uintptr_t)a + 3);
    assert_touch(b, b + 9, 1, true);
    assert_false(bl_trap_take(b, &none));
    assert_true(is_readable(a + 3));
    assert_touch(NULL, a + 3, 1, false);
    (void)peek((uintptr_t)a);
    close_range_of_pages(a); /* what was not told is forgotten */
    assert_false(bl_trap_take(NULL, &none));
    close_range_of_pages(b);
}

static void a_kernel_that_touches_a_range_is_ended(void **state)
{
    (void)state;
    char *range = open_range();
    bl_trap_touch none;
    assert_ended((uintptr_t)range + 100, true);
    assert_false(bl_trap_take(NULL, &none));
    assert_false(is_readable(range + 100));
    close_range_of_pages(range);
}

static void what_is_no_range_is_refused(void **state)
{
    (void)state;
    char *range = reserve();
    size_t page = page_size();
    assert_false(bl_trap_range_add(NULL, page));
    assert_false(bl_trap_range_add(range, 0));
    assert_false(bl_trap_range_add(range + 8, page));
    assert_false(bl_trap_range_add(range, page + 8));
    assert_false(bl_trap_range_add(range, page << 32));
    for (size_t i = 0; i < BL_TRAP_RANGES; i++)
        assert_int_equal(bl_trap_range_add(range + i % N_PAGES * page, page), true);
    assert_false(bl_trap_range_add(range, page));
    for (size_t i = 0; i < BL_TRAP_RANGES; i++)
        bl_trap_range_remove(range + i % N_PAGES * page);
    bl_trap_range_remove(range);
    bl_trap_range_remove(NULL);
    assert_int_equal(munmap(range, N_PAGES * page), 0);
}

/* ---- threads --------------------------------------------------------------------------------------------------------- */

typedef struct worker {
    char *range, *own;
    uint64_t n_ended, n_nan;
} worker;

static void *work(void *state)
{
    worker *w = state;
    for (size_t i = 0; i < 200; i++) {
        steps s = {.address = (uintptr_t)w->own + i, .writes = i % 2 == 0};
        bl_trap_access access;
        w->n_ended += !bl_trap_run(walk_in_two, &s, &access) && access.address == s.address && s.inner.address == 8;
        w->n_nan += isnan(peek_f32(w->range + i % N_PAGES * page_size())) != 0;
        bl_trap_touch touch;
        (void)bl_trap_take(w->range, &touch);
    }
    return NULL;
}

static void several_threads_at_once_do_not_meet(void **state)
{
    (void)state;
    char *range = open_range(), *own = reserve();
    worker w[N_THREADS];
    pthread_t thread[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        w[i] = (worker){range, own + (size_t)i * page_size(), 0, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(w[i].n_ended, 200);
        assert_int_equal(w[i].n_nan, 200);
    }
    bl_trap_touch last;
    (void)bl_trap_take(range, &last);
    for (size_t i = 0; i < N_PAGES; i++)
        assert_false(is_readable(range + i * page_size()));
    assert_int_equal(munmap(own, N_PAGES * page_size()), 0);
    close_range_of_pages(range);
}

/* ---- everything else ------------------------------------------------------------------------------------------------- */

static void use_trap(void)
{
    steps s = {.address = 8};
    bl_trap_access access;
    if (bl_trap_run(walk, &s, &access))
        _Exit(90);
}

static void on_info(int number, siginfo_t *info, void *machine)
{
    _Exit(number == SIGSEGV && info->si_addr == (void *)24 && machine != NULL ? 41 : 91);
}

static void on_number(int number) { _Exit(number == SIGSEGV ? 42 : 92); }

static sigjmp_buf before_access;
static void on_number_and_back(int number) { siglongjmp(before_access, number); }

static void put(void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    if (sigaction(SIGSEGV, &action, NULL) != 0)
        _Exit(93);
}

static struct sigaction below;
static volatile sig_atomic_t n_above;

/* One that came later and asks ours for what it does not know. */
static void on_info_above(int number, siginfo_t *info, void *machine)
{
    n_above++;
    if (n_above > 3)
        _Exit(94); /* round and round */
    below.sa_sigaction(number, info, machine);
}

static void put_above(void)
{
    struct sigaction action = {.sa_sigaction = on_info_above, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGSEGV, &action, &below) != 0)
        _Exit(95);
}

static void scene_default(void)
{
    use_trap();
    (void)peek(24);
}

static void scene_default_sent(void)
{
    use_trap();
    (void)raise(SIGSEGV);
}

static void scene_removed_range(void)
{
    char *range = open_range();
    (void)peek((uintptr_t)range);
    bl_trap_range_remove(range);
    (void)peek((uintptr_t)range);
}

static void scene_info(void)
{
    struct sigaction action = {.sa_sigaction = on_info, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGSEGV, &action, NULL) != 0)
        _Exit(96);
    use_trap();
    (void)peek(24);
}

static void scene_number(void)
{
    put(on_number, 0);
    use_trap();
    (void)peek(24);
}

static void scene_number_sent(void)
{
    put(on_number, SA_NODEFER);
    use_trap();
    (void)raise(SIGSEGV);
}

static void send(void *state)
{
    (void)state;
    (void)raise(SIGSEGV);
}

static void scene_sent_to_a_body(void)
{
    put(on_number, 0);
    bl_trap_access access;
    if (!bl_trap_run(send, NULL, &access))
        _Exit(89);
}

static void scene_ignored(void)
{
    put(SIG_IGN, 0);
    use_trap();
    (void)raise(SIGSEGV);
    _Exit(43);
}

static void scene_ignored_access(void)
{
    put(SIG_IGN, 0);
    use_trap();
    (void)peek(24);
}

static void scene_back(void)
{
    put(on_number_and_back, 0);
    use_trap();
    for (volatile int i = 0; i < 5; i++)
        if (sigsetjmp(before_access, 1) == 0)
            (void)peek(24);
    use_trap();
    _Exit(44);
}

static void scene_one_turn(void)
{
    put(on_number_and_back, (int)SA_RESETHAND);
    use_trap();
    if (sigsetjmp(before_access, 1) == 0)
        (void)peek(24);
    (void)peek(24);
}

/* Ours is put over it again, so each believes the other to be the one before. */
static void scene_above(void)
{
    put(on_number, 0);
    use_trap();
    put_above();
    use_trap();
    (void)peek(24);
}

/* Ours is only asked. */
static void scene_asked(void)
{
    char *range = open_range();
    put_above();
    (void)peek((uintptr_t)range);
    bl_trap_touch touch;
    _Exit(n_above == 1 && bl_trap_take(range, &touch) && touch.count == 1 ? 45 : 97);
}

/* An expected signal is the exit status -1. */
static const struct {
    const char *name;
    void (*play)(void);
    int status;
} scenes[] = {
    {"default", scene_default, -1},
    {"default_sent", scene_default_sent, -1},
    {"removed_range", scene_removed_range, -1},
    {"info", scene_info, 41},
    {"number", scene_number, 42},
    {"number_sent", scene_number_sent, 42},
    {"sent_to_a_body", scene_sent_to_a_body, 42},
    {"ignored", scene_ignored, 43},
    {"ignored_access", scene_ignored_access, -1},
    {"back", scene_back, 44},
    {"one_turn", scene_one_turn, -1},
    {"above", scene_above, 42},
    {"asked", scene_asked, 45},
};

enum { N_SCENES = sizeof scenes / sizeof *scenes };

static void play(const char *name)
{
    struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    for (int i = 0; i < N_SCENES; i++)
        if (strcmp(scenes[i].name, name) == 0)
            scenes[i].play();
    _Exit(98);
}

/* How a scene ended; its words go to `said`. */
static int status_of(const char *name, char said[4096])
{
    int end[2];
    assert_int_equal(pipe(end), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(end[1], 2);
        (void)close(end[0]);
        (void)close(end[1]);
        (void)execl("/proc/self/exe", "test_trap", name, (char *)NULL);
        _Exit(99);
    }
    (void)close(end[1]);
    size_t n = 0;
    char byte;
    while (read(end[0], &byte, 1) == 1)
        if (n < 4095)
            said[n++] = byte;
    said[n] = '\0';
    (void)close(end[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void what_is_not_ours_goes_where_it_went_before(void **state)
{
    (void)state;
    for (int i = 0; i < N_SCENES; i++) {
        char said[4096];
        int status = status_of(scenes[i].name, said);
        bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
        bool is_reported = IS_SANITIZED && strstr(said, "Sanitizer") != NULL && strstr(said, "SEGV") != NULL;
        bool is_right = scenes[i].status < 0 ? is_killed || is_reported
                                             : WIFEXITED(status) && WEXITSTATUS(status) == scenes[i].status;
        if (!is_right)
            fail_msg("scene %s ended with %#x: %s", scenes[i].name, (unsigned)status, said);
    }
}

int main(int n_arguments, char **argument)
{
    if (n_arguments == 2)
        play(argument[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_without_an_illegal_access_comes_to_its_end),
        cmocka_unit_test(an_illegal_access_ends_the_body_and_tells_where),
        cmocka_unit_test(a_write_to_what_may_only_be_read_ends_the_body),
        cmocka_unit_test(bytes_past_the_end_of_a_mapped_file_end_the_body),
#if defined(__x86_64__)
        cmocka_unit_test(an_address_that_the_machine_does_not_tell_is_none),
#endif
        cmocka_unit_test(what_cannot_be_read_is_told_without_a_signal),
        cmocka_unit_test(the_innermost_body_ends_and_the_outer_goes_on),
        cmocka_unit_test(a_thread_that_blocks_all_signals_runs_bodies_as_any_other),
        cmocka_unit_test(a_touch_returns_no_number_and_is_told_once),
        cmocka_unit_test(a_write_returns_and_is_lost),
        cmocka_unit_test(every_page_of_a_long_touch_goes_away_again),
        cmocka_unit_test(each_range_has_its_own_note),
        cmocka_unit_test(a_kernel_that_touches_a_range_is_ended),
        cmocka_unit_test(what_is_no_range_is_refused),
        cmocka_unit_test(several_threads_at_once_do_not_meet),
        cmocka_unit_test(what_is_not_ours_goes_where_it_went_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
