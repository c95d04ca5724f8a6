/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the lines of a log: what is told of a line lies within it and within its limits. */
#include "fuzz_support.h"

#include "triage/line.h"

enum { longest_path = 64 };

static void check_line(const bl_line_style *style, const char *raw, int64_t n_raw)
{
    /* Exactly as much room as is promised to be enough: a sanitizer then sees a byte too many. */
    char *scratch = malloc(n_raw > 0 ? (size_t)n_raw : 1);
    bl_line line = {.file = 3, .number = 5};
    bl_line_parse(style, raw, n_raw, scratch, &line);
    bool in_raw = line.text >= raw && line.text + line.n_text <= raw + n_raw;
    bool in_scratch = line.text >= scratch && line.text + line.n_text <= scratch + n_raw;
    fuzz_require(line.n_text >= 0 && (in_raw || in_scratch), "the text lies in the line or the scratch");
    fuzz_require(line.file == 3 && line.number == 5 && line.raw == raw, "what is the caller's stays");
    fuzz_require(line.rank >= -1 && line.rank < 1000000 && line.said_rank >= -1 && line.said_rank < 1000000 &&
                     line.device >= -1 && line.device < 10000 && line.pid >= -1,
                 "numbers are within their limits");
    fuzz_require((line.time_kind == BL_TIME_NONE) == (line.time == 0 && line.time_kind == BL_TIME_NONE) &&
                     line.time > INT64_C(-100000000000000) && line.time < INT64_C(10000000000000000),
                 "a time is within its limits");
    const char *bytes;
    int64_t at = 0, n, n_segments = 0, sum = 0;
    while (bl_line_segment(&line, &at, &bytes, &n)) {
        fuzz_require(n >= 0 && bytes >= line.text && bytes + n <= line.text + line.n_text,
                     "a segment lies in the text");
        n_segments++;
        sum += n;
    }
    fuzz_require(n_segments == line.n_segments && sum + n_segments - 1 == line.n_text, "the segments are the text");
    free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[longest_path + 1] = "";
    bl_line_style style;
    const char *at = (const char *)data, *end = at + size;
    size_t n_path = size < longest_path ? size : longest_path;
    memcpy(path, data, n_path);
    bl_line_style_init(&style, path);
    for (const char *line = at, *feed; line < end; line = feed + 1) {
        feed = memchr(line, '\n', (size_t)(end - line));
        feed = feed != NULL ? feed : end;
        bl_line_style_learn(&style, line, feed - line);
    }
    bl_line_style_settle(&style);
    for (const char *line = at, *feed; line < end; line = feed + 1) {
        feed = memchr(line, '\n', (size_t)(end - line));
        feed = feed != NULL ? feed : end;
        check_line(&style, line, feed - line);
        check_line(NULL, line, feed - line);
    }
    return 0;
}
