/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing what was told.  In a build without libdw a site is a program and an offset, where the tests expect file and
 * line: there, and only there, all sites are taken for the same. */
#ifndef TESTS_SUPPORT_WORDS_H
#define TESTS_SUPPORT_WORDS_H

#include <stdbool.h>

#define assert_words_equal(got, expected) words_expect_equal(got, expected, __FILE__, __LINE__)
void words_expect_equal(const char *got, const char *expected, const char *file, int line);

bool words_have(const char *got, const char *part);

#endif
