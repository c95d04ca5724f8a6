/* SPDX-License-Identifier: Apache-2.0 */
/* --hostfile, read before anything is started: what mpirun says of a line that it cannot read names neither the file's
 * purpose nor what would do.  Words that mpirun may know and we do not are left to it. */
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "cli/run.h"
#include "file/reader.h"

enum { LIMIT = 1024 * 1024 };

typedef struct hosts {
    const char *path, *at, *end;
    long long line;
    int64_t n;
    bl_error *error;
} hosts;

static bool sees(const hosts *h, const char *word)
{
    size_t n = strlen(word);
    return h->end - h->at >= (ptrdiff_t)n && memcmp(h->at, word, n) == 0;
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
}

/* Blanks and what mpirun takes for comments, up to the end of the line. */
static void skip(hosts *h)
{
    while (h->at < h->end && *h->at != '\n') {
        if (sees(h, "/*")) {
            while (h->at < h->end && !sees(h, "*/"))
                h->line += *h->at++ == '\n';
            h->at += h->at < h->end ? 2 : 0;
        } else if (*h->at == '#' || sees(h, "//")) {
            while (h->at < h->end && *h->at != '\n')
                h->at++;
        } else if (*h->at == ' ' || *h->at == '\t' || *h->at == '\f' || *h->at == '\v') {
            h->at++;
        } else {
            return;
        }
    }
}

/* The next word, which an equals sign ends, too; *n is 0 at the end of the line. */
static const char *take(hosts *h, int64_t *n)
{
    skip(h);
    const char *begin = h->at;
    while (h->at < h->end && *h->at != '=' && strchr(" \t\f\v\n", *h->at) == NULL)
        h->at++;
    *n = h->at - begin;
    return begin;
}

static belay_code refuse(const hosts *h, const char *word, int64_t n, const char *why)
{
    char quoted[BL_FILE_QUOTE];
    bl_error_set(h->error, BELAY_FILE_FORMAT, "%s:%lld: '%s' %s", h->path, h->line, bl_file_quote(word, n, quoted),
                 why);
    bl_error_fact(h->error, "wanted: HOST or USER@HOST, behind it slots=N if ranks are to be counted; one host a line");
    bl_error_advise(h->error, "Give --hostfile the text file that mpirun is to read.");
    return BELAY_FILE_FORMAT;
}

/* A name, or an address of version 6. */
static bool is_host(const char *word, int64_t n)
{
    const char *at = memchr(word, '@', (size_t)n);
    if (at == word || (n > 0 && word[0] == '+')) /* "+n0": a host of an allocation, by its number */
        return at == NULL && n > 1;
    int64_t i = 0, n_colons = 0, n_others = 0;
    for (i = at != NULL ? at - word + 1 : 0; i < n && (is_name(word[i]) || word[i] == ':'); i++) {
        n_colons += word[i] == ':';
        n_others += word[i] != ':' && strchr("0123456789abcdefABCDEF.", word[i]) == NULL;
    }
    return i == n && n > 0 && word[n - 1] != '@' && (n_colons == 0 || (n_colons > 1 && n_others == 0));
}

static bool is_count(const char *name, int64_t n)
{
    static const char *const counts[] = {"slots", "slot",      "count",     "cpu",
                                         "cpus",  "max_slots", "max-slots", "slots_max"};
    for (int i = 0; i < BL_COUNT(counts); i++)
        if ((int64_t)strlen(counts[i]) == n && memcmp(counts[i], name, (size_t)n) == 0)
            return true;
    return false;
}

static bool is_number(const char *word, int64_t n)
{
    int64_t i = 0;
    while (i < n && word[i] >= '0' && word[i] <= '9')
        i++;
    return n > 0 && n < 10 && i == n;
}

/* "slots=2": what stands behind a host.  *ended: nothing more does. */
static belay_code read_setting(hosts *h, bool *ended)
{
    int64_t n, n_value;
    const char *name = take(h, &n);
    *ended = n == 0 && (h->at == h->end || *h->at == '\n');
    if (*ended)
        return BELAY_OK;
    skip(h);
    if (n == 0 || h->at == h->end || *h->at != '=')
        return refuse(h, n == 0 ? "=" : name, n == 0 ? 1 : n, "behind a host is no NAME=NUMBER such as slots=2");
    h->at++;
    const char *value = take(h, &n_value);
    if (n_value == 0)
        return refuse(h, name, h->at - name, "has no value");
    if (is_count(name, n) && !is_number(value, n_value))
        return refuse(h, name, h->at - name, "is no whole number");
    return BELAY_OK;
}

static belay_code read_line(hosts *h)
{
    int64_t n;
    const char *host = take(h, &n);
    bool ended = n == 0 && (h->at == h->end || *h->at == '\n');
    if (!ended && !is_host(host, n))
        return refuse(h, host, n > 0 ? n : 1, "is no name of a host");
    h->n += !ended;
    while (!ended)
        TRY(read_setting(h, &ended));
    if (h->at < h->end) {
        h->at++;
        h->line++;
    }
    return BELAY_OK;
}

belay_code bl_run_hosts_check(const char *path, bl_error *error)
{
    char *bytes = NULL;
    int64_t n = 0;
    belay_code code = bl_file_read_whole(path, LIMIT, &bytes, &n, error);
    hosts h = {.path = path, .at = bytes, .end = bytes + n, .line = 1, .error = error};
    while (code == BELAY_OK && h.at < h.end)
        code = read_line(&h);
    bl_free(bytes);
    if (code != BELAY_OK && code != BELAY_FILE_FORMAT)
        bl_error_fact(error, "given as the hosts of the ranks, by --hostfile");
    if (code != BELAY_OK || h.n > 0)
        return code;
    bl_error_set(error, BELAY_FILE_FORMAT, "%s names no host", path);
    bl_error_advise(error, "Write one host a line, or leave --hostfile out to use this host alone.");
    return BELAY_FILE_FORMAT;
}
