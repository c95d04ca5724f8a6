/* SPDX-License-Identifier: Apache-2.0 */
/* Return addresses to words. */
#define _GNU_SOURCE /* dladdr */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "report/site.h"

static uintptr_t noted;
__attribute__((noinline)) static void note(void) { noted = (uintptr_t)__builtin_return_address(0); }

static void an_address_with_debug_information_is_file_and_line(void **state)
{
    (void)state;
#ifdef BL_HAVE_LIBDW
    char words[256], expected[64];
    int line = __LINE__ + 1;
    note();
    bl_report_site(noted, words, sizeof words);
    snprintf(expected, sizeof expected, "test_site.c:%d", line);
    assert_string_equal(words, expected);
#else
    skip();
#endif
}

/* The JSON library has no debug information here, but names for what it exports. */
static void an_address_without_is_function_and_offset(void **state)
{
    (void)state;
    char words[256];
    void *library = dlopen("libjansson.so.4", RTLD_NOW);
    assert_non_null(library);
    bl_report_site((uintptr_t)dlsym(library, "json_loads") + 5, words, sizeof words);
    dlclose(library);
    if (strchr(words, ':') != NULL)
        skip(); /* the library's debug information is installed */
    assert_string_equal(words, "json_loads+0x5");
}

static void no_address_is_unknown(void **state)
{
    (void)state;
    char words[256];
    bl_report_site(0, words, sizeof words);
    assert_string_equal(words, "unknown");
    bl_report_site(0x10, words, sizeof words);
    assert_string_equal(words, "0x10");
}

static void a_small_buffer_is_not_left(void **state)
{
    (void)state;
    char words[6] = "xxxxx";
    note();
    bl_report_site(noted, words, 5);
    assert_int_equal(strlen(words), 4);
    assert_int_equal(words[5], '\0');
}

static void an_offset_in_a_file_is_the_same_line(void **state)
{
    (void)state;
#ifdef BL_HAVE_LIBDW
    char words[256], expected[64], self[4096];
    Dl_info info;
    int line = __LINE__ + 1;
    note();
    snprintf(expected, sizeof expected, "test_site.c:%d", line);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = '\0';
    assert_int_not_equal(dladdr((void *)noted, &info), 0);
    unsigned long long start, end, offset = 0;
    char text[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(text, sizeof text, maps) != NULL)
        if (sscanf(text, "%llx-%llx %*s %llx", &start, &end, &offset) == 3 && noted >= start && noted < end)
            break;
    fclose(maps);
    bl_report_site_in(self, noted - start + offset, words, sizeof words);
    assert_string_equal(words, expected);
#else
    skip();
#endif
}

static void a_file_that_is_no_program_gives_its_name_and_the_offset(void **state)
{
    (void)state;
    char words[256];
    bl_report_site_in("/nowhere/libx.so", 0x1234, words, sizeof words);
    assert_string_equal(words, "libx.so+0x1234");
    bl_report_site_in("/dev/null", 16, words, sizeof words);
    assert_string_equal(words, "null+0x10");
    bl_report_site_in("/proc/self/maps", 16, words, sizeof words);
    assert_string_equal(words, "maps+0x10");
}

/* A server for debug information is named and would answer, were it asked. */
static void no_server_is_asked(void **state)
{
    (void)state;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    char url[64], words[256];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    setenv("DEBUGINFOD_URLS", url, 1);
    void *library = dlopen("libjansson.so.4", RTLD_NOW);
    assert_non_null(library);
    bl_report_site((uintptr_t)dlsym(library, "json_loads") + 5, words, sizeof words);
    dlclose(library);
    unsetenv("DEBUGINFOD_URLS");
    assert_int_equal(accept(listener, NULL, NULL), -1);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_with_debug_information_is_file_and_line),
        cmocka_unit_test(an_address_without_is_function_and_offset),
        cmocka_unit_test(no_address_is_unknown),
        cmocka_unit_test(a_small_buffer_is_not_left),
        cmocka_unit_test(an_offset_in_a_file_is_the_same_line),
        cmocka_unit_test(a_file_that_is_no_program_gives_its_name_and_the_offset),
        cmocka_unit_test(no_server_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
