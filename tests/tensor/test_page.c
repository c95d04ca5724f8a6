/* SPDX-License-Identifier: Apache-2.0 */
/* The pages that cite tests cite tests that exist. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

static void add_file(const char *path, bl_text *out)
{
    char line[4096];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        bl_text_add(out, line);
    fclose(file);
}

static void add_tests(bl_text *out)
{
    glob_t found;
    assert_int_equal(glob(BELAY_SOURCE_DIR "/tests/*/test_*.c", 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        add_file(found.gl_pathv[i], out);
    globfree(&found);
}

/* A name in backticks with three underscores or more is a test's, unless it is a call's. */
static size_t name_length(const char *at)
{
    size_t length = 0, underscores = 0;
    while (islower((unsigned char)at[length]) || isdigit((unsigned char)at[length]) || at[length] == '_')
        underscores += at[length++] == '_';
    bool is_call = strncmp(at, "belay_", 6) == 0;
    return at[length] == '`' && underscores >= 3 && !is_call ? length : 0;
}

static int count_cited(const char *page, const char *tests)
{
    bl_text text = {0};
    int n = 0;
    add_file(page, &text);
    for (const char *at = strchr(bl_text_get(&text), '`'); at != NULL; at = strchr(at + 1, '`')) {
        char definition[300];
        int length = (int)name_length(at + 1);
        if (length == 0)
            continue;
        snprintf(definition, sizeof definition, "static void %.*s(void **state)", length, at + 1);
        if (strstr(tests, definition) == NULL)
            fail_msg("%s cites %.*s, which no test is called", page, length, at + 1);
        n++;
    }
    bl_text_fini(&text);
    return n;
}

static void every_test_that_a_page_cites_exists(void **state)
{
    (void)state;
    bl_text tests = {0};
    add_tests(&tests);
    assert_true(count_cited(BELAY_SOURCE_DIR "/docs/lifetime.md", bl_text_get(&tests)) > 30);
    assert_true(count_cited(BELAY_SOURCE_DIR "/docs/numerics.md", bl_text_get(&tests)) >= 2);
    bl_text_fini(&tests);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_test_that_a_page_cites_exists)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
