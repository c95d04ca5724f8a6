/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the logs of one run, up to four files between lines of "%%%%": explain ends, tells the same twice, and
 * no control byte leaves it, whatever the form. */
#define _GNU_SOURCE /* memmem, memfd_create */
#include "fuzz_support.h"

#include <sys/mman.h>

#include "triage/tell.h"

enum { MOST_FILES = 4 };

/* Line feeds alone may stand in a report: no other control, no DEL, none of U+0080 to U+009F. */
static bool is_plain(const char *text, int64_t n_bytes)
{
    for (int64_t i = 0; i < n_bytes; i++) {
        unsigned char byte = (unsigned char)text[i], next = i + 1 < n_bytes ? (unsigned char)text[i + 1] : 0;
        int length = bl_utf8_length(text + i, n_bytes - i);
        if ((byte < 0x20 && byte != '\n') || byte == 0x7f || length == 0 || (byte == 0xc2 && next < 0xa0))
            return false;
        i += length - 1;
    }
    return true;
}

static int write_file(const uint8_t *data, size_t size, char path[64])
{
    int fd = memfd_create("rank", MFD_CLOEXEC);
    fuzz_require(fd >= 0 && write(fd, data, size) == (ssize_t)size, "the input can be written to a file");
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

/* Cuts the input into files. */
static int cut(const uint8_t *data, size_t size, int fds[MOST_FILES], char paths[MOST_FILES][64])
{
    static const char mark[] = "\n%%%%\n";
    size_t length = sizeof mark - 1;
    int n = 0;
    while (n < MOST_FILES) {
        const uint8_t *end = n + 1 < MOST_FILES ? memmem(data, size, mark, length) : NULL;
        size_t n_file = end != NULL ? (size_t)(end - data) : size;
        fds[n] = write_file(data, n_file, paths[n]);
        n++;
        if (end == NULL)
            break;
        data += n_file + length;
        size -= n_file + length;
    }
    return n;
}

static void check_text(void (*tell)(const bl_explain *, bl_text *), const bl_explain *explain)
{
    bl_text first = {0}, second = {0};
    tell(explain, &first);
    tell(explain, &second);
    fuzz_require(!first.failed && first.n_bytes > 0 && is_plain(first.bytes, first.n_bytes), "a report is plain text");
    fuzz_require(strcmp(first.bytes, second.bytes) == 0, "what was found can be told twice");
    bl_text_fini(&first);
    bl_text_fini(&second);
}

static void check_json(const bl_explain *explain)
{
    json_t *document = json_object();
    fuzz_require(document != NULL && bl_tell_json(explain, document), "findings become JSON");
    char *text = json_dumps(document, JSON_COMPACT);
    fuzz_require(text != NULL && strlen(text) > 2, "the document can be written");
    free(text);
    json_decref(document);
}

static void check_findings(const bl_explain *explain)
{
    const bl_findings *findings = bl_explain_findings(explain);
    for (int v = 0; v < findings->n_verdicts; v++) {
        const bl_verdict *verdict = &findings->verdicts[v];
        fuzz_require(verdict->n_evidence > 0, "a verdict has evidence");
        for (int i = 0; i < verdict->n_evidence; i++)
            fuzz_require(verdict->evidence[i]->file < bl_explain_case(explain)->n_sources, "evidence lies in a file");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bl_log_tools tools;
    char paths[MOST_FILES][64];
    const char *list[MOST_FILES];
    int fds[MOST_FILES];
    bl_error error = {.code = BELAY_OK};
    bl_explain *explain = NULL;
    fuzz_require(tools.scan != NULL || bl_log_tools_init(&tools, &error) == BELAY_OK, "patterns compile");
    int n = cut(data, size, fds, paths);
    for (int i = 0; i < n; i++)
        list[i] = paths[i];
    bl_explain_options options = {.paths = list, .n_paths = n, .tools = &tools};
    belay_code code = bl_explain_run(&options, &explain, &error);
    fuzz_require(code == error.code && (code == BELAY_OK) == (explain != NULL), "code, error and findings agree");
    if (code == BELAY_OK) {
        check_findings(explain);
        check_text(bl_tell_text, explain);
        check_text(bl_tell_html, explain);
        check_json(explain);
    }
    bl_explain_free(explain);
    for (int i = 0; i < n; i++)
        close(fds[i]);
    return 0;
}
