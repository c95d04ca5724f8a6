/* SPDX-License-Identifier: Apache-2.0 */
/* A manual page of a command whose words are all that roff would take for something else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pages/pages.h"

static const bl_setting_row rows[] = {
    {.name = "x-y",
     .kind = BL_KIND_TEXT,
     .group = BL_GROUP_RUN,
     .words = "'none'",
     .place = "FILE",
     .unit = "",
     .help = ".dot first, a \\backslash, it's `quoted` \"twice\".  ~home ^up e.g. this."},
};

static const bl_command command = {
    .name = "odd",
    .arguments = "RUN [FILE...] --out DATA",
    .says = "say -1 and \\n",
    .more = "",
    .example = ".belay 'a'\nbelay odd -- \\",
    .rows = rows,
    .n_rows = 1,
};

static void every_letter_is_spelled_so_that_roff_prints_it(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    assert_non_null(out);
    pages_man_command(&command, out);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, ".TH BELAY\\-ODD 1 "));
    assert_non_null(strstr(text, "belay\\-odd \\- say \\-1 and \\en\n"));
    assert_non_null(strstr(text, "\\fBbelay odd\\fR \\fIRUN\\fR [\\fIFILE\\fR...] \\fB\\-\\-out\\fR \\fIDATA\\fR "));
    assert_non_null(strstr(text, ".TP\n\\fB\\-\\-x\\-y\\fR \\fIFILE\\fR\n"
                                 "\\&.dot first, a \\ebackslash, it\\(aqs \\(gaquoted\\(ga \\(dqtwice\\(dq. "
                                 "\\(tihome \\(haup e.g. this.\n"
                                 "Default: \\(aqnone\\(aq.\n"));
    assert_non_null(strstr(text, ".EX\n\\&.belay \\(aqa\\(aq\nbelay odd \\-\\- \\e\n.EE\n"));
    free(text);
}

static void arguments_are_the_words_without_options(void **state)
{
    (void)state;
    char word[32];
    assert_true(pages_argument(&command, 0, word, sizeof word));
    assert_string_equal(word, "RUN");
    assert_true(pages_argument(&command, 1, word, sizeof word));
    assert_string_equal(word, "FILE");
    assert_true(pages_argument(&command, 7, word, sizeof word));
    assert_string_equal(word, "FILE");
    assert_true(pages_is_path("FOLDER"));
    assert_false(pages_is_path("NAME"));
    const bl_command none = {.arguments = ""};
    assert_false(pages_argument(&none, 0, word, sizeof word));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_letter_is_spelled_so_that_roff_prints_it),
        cmocka_unit_test(arguments_are_the_words_without_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
