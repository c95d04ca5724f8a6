/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a log, repeated so often that blocks of the small build end within it: both engines tell the same lines,
 * in order. */
#include "fuzz_support.h"

#include "triage/scan.h"

enum { n_repeated = 12000 };

static const char *const anchors[] = {"error",          "NVRM: Xid", "ab",       "abcabc",
                                      "CUDA error: an", "rank3",     "\xff\xfe", "a\rb"};

typedef struct told {
    uint64_t sum; /* of all that was told, in order */
    int64_t last;
} told;

static void add(told *t, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        t->sum = (t->sum ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
}

static belay_code take(void *state, const bl_line_style *style, const bl_scan_line *line, bl_error *error)
{
    told *t = state;
    (void)error;
    fuzz_require(style != NULL && line->number > t->last, "lines come in order, each once");
    fuzz_require(line->n_raw >= 0 && line->n_raw <= bl_scan_line_max && line->n_raw <= line->n_whole + 10,
                 "a line is no longer than promised");
    fuzz_require(memchr(line->raw, '\n', (size_t)line->n_raw) == NULL, "a line ends in front of its feed");
    fuzz_require(line->is_hit == (line->n_anchors > 0), "a hit has anchors");
    for (int i = 0; i < line->n_anchors; i++)
        fuzz_require(line->anchors[i] >= 0 && (i == 0 || line->anchors[i] > line->anchors[i - 1]), "anchors ascend");
    t->last = line->number;
    add(t, &line->number, sizeof line->number);
    add(t, &line->offset, sizeof line->offset);
    add(t, &line->n_whole, sizeof line->n_whole);
    add(t, line->anchors, (size_t)line->n_anchors * sizeof *line->anchors);
    if (line->n_whole <= bl_scan_line_max)
        add(t, line->raw, (size_t)line->n_raw);
    return BELAY_OK;
}

static uint64_t run(bl_scan *scan, const char *path)
{
    bl_input *input;
    bl_error error;
    bl_scan_total total;
    told t = {0};
    bl_scan_sink sink = {.state = &t, .line = take};
    if (bl_input_open(path, &input, &error) != BELAY_OK)
        return 0;
    fuzz_require(bl_scan_run(scan, input, &sink, &total, &error) == BELAY_OK, "a pass comes to its end");
    fuzz_require(total.n_lines >= t.last && total.n_hit_lines <= total.n_lines, "the sums fit together");
    add(&t, &total.n_lines, sizeof total.n_lines);
    add(&t, &total.n_bytes, sizeof total.n_bytes);
    bl_input_close(input);
    return t.sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bl_scan *fast, *plain;
    static uint8_t repeated[n_repeated];
    bl_error error;
    int n = (int)(sizeof anchors / sizeof anchors[0]);
    if (fast == NULL)
        fuzz_require(bl_scan_new(anchors, n, &fast, &error) == BELAY_OK &&
                         bl_scan_new_plain(anchors, n, &plain, &error) == BELAY_OK,
                     "scans can be made");
    /* Bytes that are packed stay as they are. */
    bool is_repeated = size > 1 && data[0] != 0x1f && data[0] != 0x28 && (data[0] & 1) == 0;
    for (size_t i = 0; is_repeated && i < sizeof repeated; i++)
        repeated[i] = data[i % size];
    const char *path = is_repeated ? fuzz_path(repeated, sizeof repeated) : fuzz_path(data, size);
    fuzz_require(run(fast, path) == run(plain, path), "both engines tell the same");
    return 0;
}
