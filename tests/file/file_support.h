/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of room `file` share: a scratch folder, files with given bytes, whole-text comparison of errors. */
#ifndef TESTS_FILE_SUPPORT_H
#define TESTS_FILE_SUPPORT_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/memory.h"

static char scratch[64];

/* Tests run inside an empty folder, so that paths in errors are short and the same everywhere. */
static inline int enter_scratch(void **state)
{
    (void)state;
    strcpy(scratch, "/tmp/belay-file-XXXXXX");
    return mkdtemp(scratch) != NULL && chdir(scratch) == 0 ? 0 : -1;
}

/* Removes all that is in the current folder. */
static inline void empty_here(void)
{
    DIR *listing = opendir(".");
    if (listing == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || unlink(name) == 0 || chdir(name) != 0)
            continue;
        empty_here();
        if (chdir("..") == 0)
            rmdir(name);
    }
    closedir(listing);
}

static inline int leave_scratch(void **state)
{
    (void)state;
    empty_here();
    return chdir("/") == 0 && rmdir(scratch) == 0 ? 0 : -1;
}

static inline int n_files_here(void)
{
    int n = 0;
    DIR *listing = opendir(".");
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(listing);
    return n;
}

static inline void put_bytes(const char *path, const void *bytes, size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n_bytes, file), n_bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void put_text(const char *path, const char *text) { put_bytes(path, text, strlen(text)); }

/* The whole file, NUL-ended, on the heap of libc. */
static inline char *get_bytes(const char *path, size_t *n_bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    size_t n = (size_t)ftell(file);
    rewind(file);
    char *bytes = calloc(1, n + 1);
    assert_int_equal(fread(bytes, 1, n, file), n);
    fclose(file);
    if (n_bytes != NULL)
        *n_bytes = n;
    return bytes;
}

static inline void assert_file_is(const char *path, const char *text)
{
    char *bytes = get_bytes(path, NULL);
    assert_non_null(bytes);
    assert_string_equal(bytes, text);
    free(bytes);
}

/* An error as the command line prints it. */
static inline void render_error(const bl_error *error, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "belay: %s (%s)\n", error->what, belay_code_name(error->code));
    for (const char *line = error->facts; *line != '\0' && used < size;) {
        const char *end = strchr(line, '\n');
        used += (size_t)snprintf(text + used, size - used, "    %.*s\n", (int)(end - line), line);
        line = end + 1;
    }
    if (used < size)
        snprintf(text + used, size - used, "    try: %s\n", bl_error_advice(error));
}

static inline void check_error(belay_code code, const bl_error *error, const char *expected)
{
    char text[4096];
    assert_int_not_equal(code, BELAY_OK);
    assert_int_equal(code, error->code);
    render_error(error, text, sizeof text);
    assert_string_equal(text, expected);
}

/* For calls that must succeed: prints why when they do not. */
static inline void check_ok(belay_code code, const bl_error *error)
{
    char text[4096];
    if (code == BELAY_OK)
        return;
    render_error(error, text, sizeof text);
    fail_msg("%s", text);
}

#endif
