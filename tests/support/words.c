/* SPDX-License-Identifier: Apache-2.0 */
#include "support/words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "report/site.h"

/* What a test expects does not change with its own lines: none is quoted, but where a test asks for it. */
__attribute__((constructor)) static void quote_nothing(void) { bl_report_site_source_set(false); }

#ifdef BL_HAVE_LIBDW
void words_expect_equal(const char *got, const char *expected, const char *file, int line)
{
    _assert_string_equal(got, expected, file, line);
}

bool words_have(const char *got, const char *part) { return strstr(got, part) != NULL; }
#else
enum { MAX_WORDS = 1 << 16 };

/* "test_x.c:12", "test_x.c:", "test_x+0x1a" */
static bool is_site(const char *word, size_t length)
{
    for (size_t i = 1; i + 2 < length; i++) {
        const char *rest = word + i + 3;
        size_t n = length - i - 3;
        if (memcmp(word + i, ".c:", 3) == 0 || memcmp(word + i, ".h:", 3) == 0)
            return strspn(rest, "0123456789") >= n;
        if (memcmp(word + i, "+0x", 3) == 0)
            return n > 0 && strspn(rest, "0123456789abcdef") >= n;
    }
    return false;
}

static void blur(const char *text, char *out)
{
    assert_true(strlen(text) < MAX_WORDS);
    while (*text != '\0') {
        size_t length = strcspn(text, " ,\n");
        bool site = is_site(text, length);
        memcpy(out, site ? "SITE" : text, site ? 4 : length);
        out += site ? 4 : length;
        text += length;
        if (*text != '\0')
            *out++ = *text++;
    }
    *out = '\0';
}

void words_expect_equal(const char *got, const char *expected, const char *file, int line)
{
    static char a[MAX_WORDS], b[MAX_WORDS];
    blur(got, a);
    blur(expected, b);
    _assert_string_equal(a, b, file, line);
}

bool words_have(const char *got, const char *part)
{
    static char a[MAX_WORDS], b[MAX_WORDS];
    blur(got, a);
    blur(part, b);
    return strstr(a, b) != NULL;
}
#endif
