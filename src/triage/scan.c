/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk is a block of the input, and in front of it the rest of a line that the chunk before it ended with:
 *
 *   rest of a line | block ............................. last feed | rest of a line -> next chunk
 *
 * The whole lines between are a region.  It is searched at once, but only when the chunk behind it is there too: then it
 * is known which of its lines are the last of all.  A rest that is longer than a block becomes a "long
 * line": it is searched block by block, and only what bl_cut keeps of it stays.  Such lines are rare, and are handed over
 * whether they hit or not: whether they are among the last ones is not known before it is too late. */
#include "triage/scan.h"

#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/memory.h"
#include "file/ahead.h"
#include "triage/scan_cut.h"
#include "triage/search.h"

#ifdef BELAY_SMALL
enum { block_bytes = 5000 };
#else
enum { block_bytes = 256 * 1024 };
#endif
enum { most_positions = bl_cut_windows, stamp_bytes = 4096, most_learned = 4096 };

typedef struct span {
    const char *at;
    int64_t n;
} span;

struct bl_scan {
    char **list; /* the anchors, for the search of our own */
    int64_t *n_bytes;
    int n_anchors;
    int64_t longest;
    bl_search_hs *hs;
    bl_search_plain *plain;
    bl_ahead *ahead;
    bl_cut *cut;
    bool *marked; /* anchors that hit the line at hand */
    int *hits;    /* the same as a list */
    int n_hits;
};

/* One run. */
typedef struct pass {
    bl_scan *scan;
    const bl_scan_sink *sink;
    bl_scan_total *total;
    bl_error *error;
    belay_code code;

    const char *region, *region_end;
    int64_t region_offset; /* in the stream */
    const char *cursor;    /* begin of a line in the region; what stands before was told and counted */
    int64_t number;        /* of the line at the cursor */
    const char *tail;      /* lines of the region from here on are among the last of all */

    const char *line, *line_end; /* the line that hits fall into, NULL for none */
    int64_t positions[most_positions];
    int n_positions;

    bool is_long; /* a long line goes on; it has number `number` and begins at long_offset */
    int64_t long_offset;
    int64_t piece_from; /* in the long line */
    int64_t n_overlap;
} pass;

/* ---- making -------------------------------------------------------------------------------------------------- */

static belay_code refuse_anchor(const char *anchor, bl_error *error)
{
    bl_error_set(error, BELAY_CONF_VALUE, "the anchor '%s' has %zu bytes, which may be %d to %d and no line feed",
                 anchor, strlen(anchor), bl_scan_anchor_min, bl_scan_anchor_max);
    return BELAY_CONF_VALUE;
}

static belay_code copy_anchors(bl_scan *scan, const char *const *anchors, bl_literals *literals, bl_error *error)
{
    literals->shortest = bl_scan_anchor_max;
    for (int i = 0; i < scan->n_anchors; i++) {
        int64_t n = (int64_t)strlen(anchors[i]);
        if (n < bl_scan_anchor_min || n > bl_scan_anchor_max || strchr(anchors[i], '\n') != NULL)
            return refuse_anchor(anchors[i], error);
        scan->list[i] = bl_strdup(anchors[i]);
        if (scan->list[i] == NULL)
            return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to search logs");
        scan->n_bytes[i] = n;
        scan->longest = bl_max_i64(scan->longest, n);
        literals->shortest = bl_min_i64(literals->shortest, n);
    }
    literals->longest = scan->longest;
    return BELAY_OK;
}

static belay_code fill(bl_scan *scan, const char *const *anchors, bool is_plain, bl_error *error)
{
    scan->list = bl_alloc(scan->n_anchors, sizeof *scan->list);
    scan->n_bytes = bl_alloc(scan->n_anchors, sizeof *scan->n_bytes);
    scan->marked = bl_alloc(scan->n_anchors, sizeof *scan->marked);
    scan->hits = bl_alloc(scan->n_anchors, sizeof *scan->hits);
    scan->cut = bl_alloc(1, sizeof *scan->cut);
    scan->ahead = bl_ahead_new(block_bytes + bl_scan_anchor_max, block_bytes);
    bl_literals literals = {.n_bytes = scan->n_bytes, .n = scan->n_anchors};
    if (scan->list == NULL || scan->n_bytes == NULL || scan->marked == NULL || scan->hits == NULL ||
        scan->cut == NULL || scan->ahead == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to search logs");
    TRY(copy_anchors(scan, anchors, &literals, error));
    literals.list = (const char *const *)scan->list;
    if (!is_plain && scan->n_anchors > 0)
        scan->hs = bl_search_hs_new(&literals);
    if (scan->hs == NULL)
        scan->plain = bl_search_plain_new(&literals);
    if (scan->hs == NULL && scan->plain == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to search logs");
    return BELAY_OK;
}

static belay_code make(const char *const *anchors, int n_anchors, bool is_plain, bl_scan **out, bl_error *error)
{
    *out = NULL;
    if (n_anchors < 0 || n_anchors > bl_scan_anchors_max)
        return bl_error_set(error, BELAY_CONF_VALUE, "%d anchors, which may be 0 to %d", n_anchors,
                            bl_scan_anchors_max);
    bl_scan *scan = bl_alloc(1, sizeof *scan);
    if (scan == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to search logs");
    scan->n_anchors = n_anchors;
    belay_code code = fill(scan, anchors, is_plain, error);
    if (code != BELAY_OK)
        bl_scan_free(scan);
    else
        *out = scan;
    return code;
}

belay_code bl_scan_new(const char *const *anchors, int n_anchors, bl_scan **out, bl_error *error)
{
    return make(anchors, n_anchors, false, out, error);
}

belay_code bl_scan_new_plain(const char *const *anchors, int n_anchors, bl_scan **out, bl_error *error)
{
    return make(anchors, n_anchors, true, out, error);
}

void bl_scan_free(bl_scan *scan)
{
    if (scan == NULL)
        return;
    bl_search_hs_free(scan->hs);
    bl_search_plain_free(scan->plain);
    for (int i = 0; scan->list != NULL && i < scan->n_anchors; i++)
        bl_free(scan->list[i]);
    bl_free(scan->list);
    bl_free(scan->n_bytes);
    bl_free(scan->marked);
    bl_free(scan->hits);
    bl_free(scan->cut);
    bl_ahead_free(scan->ahead);
    bl_free(scan);
}

const char *bl_scan_describe(const bl_scan *scan)
{
    return scan->hs != NULL ? bl_search_hs_describe(scan->hs) : "a plain loop, without libhs";
}

static void search(pass *p, const char *bytes, int64_t n_bytes, bl_search_hit hit)
{
    if (p->scan->n_anchors == 0)
        return;
    if (p->scan->hs != NULL)
        bl_search_hs_run(p->scan->hs, bytes, n_bytes, hit, p);
    else
        bl_search_plain_run(p->scan->plain, bytes, n_bytes, hit, p);
}

/* ---- line feeds ---------------------------------------------------------------------------------------------- */

/* Counts in bytes, a lane for each of 32, before any of them can pass 255: compilers make vector code of that. */
int64_t bl_scan_count_feeds(const char *bytes, int64_t n_bytes)
{
    enum { lanes = 32, rounds = 255 };
    int64_t sum = 0, i = 0;
    while (n_bytes - i >= lanes) {
        uint8_t counts[lanes] = {0};
        int64_t n = bl_min_i64((n_bytes - i) / lanes, rounds);
        for (int64_t round = 0; round < n; round++, i += lanes)
            for (int lane = 0; lane < lanes; lane++)
                counts[lane] = (uint8_t)(counts[lane] + (bytes[i + lane] == '\n'));
        for (int lane = 0; lane < lanes; lane++)
            sum += counts[lane];
    }
    for (; i < n_bytes; i++)
        sum += bytes[i] == '\n';
    return sum;
}

/* Behind the last feed in front of `at`, or `from`. */
static const char *line_start(const char *from, const char *at)
{
    while (at > from && at[-1] != '\n')
        at--;
    return at;
}

/* The feed that ends the line at `at`, or `end`. */
static const char *find_feed(const char *at, const char *end)
{
    const char *feed = memchr(at, '\n', (size_t)(end - at));
    return feed != NULL ? feed : end;
}

/* ---- handing over -------------------------------------------------------------------------------------------- */

static void mark(bl_scan *scan, int anchor)
{
    if (scan->marked[anchor])
        return;
    scan->marked[anchor] = true;
    int i = scan->n_hits++;
    for (; i > 0 && scan->hits[i - 1] > anchor; i--)
        scan->hits[i] = scan->hits[i - 1];
    scan->hits[i] = anchor;
}

static void unmark(bl_scan *scan)
{
    for (int i = 0; i < scan->n_hits; i++)
        scan->marked[scan->hits[i]] = false;
    scan->n_hits = 0;
}

static void tell(pass *p, int64_t offset, span raw, int64_t n_whole, bool is_tail)
{
    bl_scan_line line = {.number = p->number,
                         .offset = offset,
                         .raw = raw.at,
                         .n_raw = raw.n,
                         .n_whole = n_whole,
                         .is_hit = p->scan->n_hits > 0,
                         .is_head = p->number <= bl_scan_n_ends,
                         .is_tail = is_tail,
                         .anchors = p->scan->hits,
                         .n_anchors = p->scan->n_hits};
    p->total->n_hit_lines += line.is_hit;
    if (p->code == BELAY_OK)
        p->code = p->sink->line(p->sink->state, &p->total->style, &line, p->error);
    unmark(p->scan);
}

/* A line that lies in the region, and has the number at hand. */
static void tell_line(pass *p, span line)
{
    span raw = line;
    if (line.n > bl_scan_line_max) {
        bl_cut *cut = p->scan->cut;
        bl_cut_begin(cut);
        for (int i = 0; i < p->n_positions; i++)
            bl_cut_hit(cut, line.at, line.n, 0, p->positions[i]);
        bl_cut_add(cut, line.at, line.n);
        raw.at = bl_cut_join(cut, &raw.n);
    }
    p->n_positions = 0;
    tell(p, p->region_offset + (line.at - p->region), raw, line.n, line.at >= p->tail);
    p->number++;
}

static bool is_wanted_plain(const pass *p)
{
    return p->number <= bl_scan_n_ends || p->cursor >= p->tail ||
           p->region_offset + (p->cursor - p->region) < p->sink->whole;
}

/* From the cursor to the begin of a line: lines without a hit. */
static void pass_over(pass *p, const char *to)
{
    while (p->cursor < to && p->code == BELAY_OK) {
        if (is_wanted_plain(p)) {
            const char *feed = find_feed(p->cursor, to);
            tell_line(p, (span){p->cursor, feed - p->cursor});
            p->cursor = feed < to ? feed + 1 : to;
        } else {
            const char *stop = p->tail < to ? p->tail : to;
            p->number += bl_scan_count_feeds(p->cursor, stop - p->cursor) + (stop[-1] != '\n');
            p->cursor = stop;
        }
    }
}

static void finish_hit_line(pass *p)
{
    if (p->line == NULL)
        return;
    tell_line(p, (span){p->line, p->line_end - p->line});
    p->cursor = p->line_end < p->region_end ? p->line_end + 1 : p->region_end;
    p->line = NULL;
}

static void take_hit(void *state, int anchor, int64_t end)
{
    pass *p = state;
    const char *last = p->region + end - 1;
    if (p->code != BELAY_OK || last < p->cursor)
        return;
    if (p->line == NULL || last >= p->line_end) {
        finish_hit_line(p);
        pass_over(p, line_start(p->cursor, last));
        p->line = p->cursor;
        p->line_end = find_feed(last, p->region_end);
    }
    bool is_cut = p->line_end - p->line > bl_scan_line_max;
    if (is_cut && !p->scan->marked[anchor] && p->n_positions < most_positions)
        p->positions[p->n_positions++] = last + 1 - p->line;
    mark(p->scan, anchor);
}

/* Whole lines, the last of which may lack its feed at the end of the stream. */
static void take_region(pass *p, span region, const char *tail)
{
    p->region = p->cursor = region.at;
    p->region_end = region.at + region.n;
    p->tail = tail;
    p->line = NULL;
    if (region.n > 0 && p->code == BELAY_OK) {
        search(p, region.at, region.n, take_hit);
        finish_hit_line(p);
        pass_over(p, p->region_end);
    }
    p->region_offset += region.n;
}

/* ---- long lines ---------------------------------------------------------------------------------------------- */

static void take_long_hit(void *state, int anchor, int64_t end)
{
    pass *p = state;
    if (end <= p->n_overlap)
        return;
    if (!p->scan->marked[anchor])
        bl_cut_hit(p->scan->cut, p->region, p->region_end - p->region, p->piece_from, end);
    mark(p->scan, anchor);
}

/* The next piece of a long line; its first n_overlap bytes were in the piece before too. */
static void take_piece(pass *p, const char *bytes, int64_t n_bytes, int64_t n_overlap)
{
    p->region = bytes;
    p->region_end = bytes + n_bytes;
    p->n_overlap = n_overlap;
    p->piece_from = p->scan->cut->n_whole - n_overlap;
    search(p, bytes, n_bytes, take_long_hit);
    bl_cut_add(p->scan->cut, bytes + n_overlap, n_bytes - n_overlap);
}

static void begin_long(pass *p, const char *bytes, int64_t n_bytes)
{
    p->is_long = true;
    p->long_offset = p->region_offset;
    bl_cut_begin(p->scan->cut);
    take_piece(p, bytes, n_bytes, 0);
}

/* `has_feed`: one byte more of the stream belongs to it. */
static void finish_long(pass *p, bool has_feed)
{
    bl_cut *cut = p->scan->cut;
    p->is_long = false;
    p->region_offset = p->long_offset + cut->n_whole + has_feed;
    span raw;
    raw.at = bl_cut_join(cut, &raw.n);
    tell(p, p->long_offset, raw, cut->n_whole, false);
    p->number++;
}

/* ---- both ends ----------------------------------------------------------------------------------------------- */

static void note_stamp(const bl_line *line, int64_t *time, bl_time_kind *kind)
{
    bool is_better = line->time_kind == BL_TIME_WALL ? *kind != BL_TIME_WALL : *kind == BL_TIME_NONE;
    if (line->time_kind == BL_TIME_NONE || !is_better)
        return;
    *time = line->time;
    *kind = line->time_kind;
}

static void look_at_stamp(pass *p, span line, int64_t *time, bl_time_kind *kind)
{
    char scratch[stamp_bytes];
    bl_line parsed = {.number = 0};
    bl_line_parse(&p->total->style, line.at, bl_min_i64(line.n, stamp_bytes), scratch, &parsed);
    note_stamp(&parsed, time, kind);
}

/* What the first block tells of all lines. */
static void learn(pass *p, const char *bytes, int64_t n_bytes, const bl_input *input)
{
    bl_line_style *style = &p->total->style;
    const char *end = bytes + n_bytes;
    bl_line_style_init(style, bl_input_path(input));
    int64_t changed = bl_input_changed(input);
    style->latest = changed > 0 ? changed : bl_clock_wall() * 1000000;
    int n = 0;
    for (const char *at = bytes, *feed; at < end && n < most_learned; at = feed + 1, n++) {
        feed = find_feed(at, end);
        bl_line_style_learn(style, at, feed - at);
    }
    bl_line_style_settle(style);
    n = 0;
    for (const char *at = bytes, *feed; at < end && n < bl_scan_n_ends; at = feed + 1, n++) {
        feed = find_feed(at, end);
        look_at_stamp(p, (span){at, feed - at}, &p->total->first_time, &p->total->first_time_kind);
    }
}

/* The begin of the last `n` lines of a region, which loses as many; a last time stamp among them is noted. */
static const char *tail_of(pass *p, span region, int *n)
{
    const char *from = region.at + region.n;
    for (; *n > 0 && from > region.at; --*n) {
        const char *feed = from[-1] == '\n' ? from - 1 : from;
        from = line_start(region.at, feed);
        look_at_stamp(p, (span){from, feed - from}, &p->total->last_time, &p->total->last_time_kind);
    }
    return from;
}

/* The last two regions of the stream. */
static void take_last(pass *p, span before, span last)
{
    int n = bl_scan_n_ends;
    const char *tail = tail_of(p, last, &n), *tail_before = tail_of(p, before, &n);
    take_region(p, before, tail_before);
    take_region(p, last, tail);
}

/* ---- the pass ------------------------------------------------------------------------------------------------ */

/* What is in a buffer: a rest or an overlap, and behind it what was read. */
typedef struct chunk {
    char *bytes;
    int64_t n_kept, n;
    bool is_last;
} chunk;

/* Goes on with a long line; where it ends in this chunk, *from is behind its feed. */
static void continue_long(pass *p, const chunk *c, int64_t *from)
{
    const char *feed = find_feed(c->bytes + c->n_kept, c->bytes + c->n);
    int64_t n = feed - c->bytes;
    take_piece(p, c->bytes, n, c->n_kept);
    *from = bl_min_i64(n + 1, c->n);
    if (n < c->n || c->is_last)
        finish_long(p, n < c->n);
}

/* The whole lines of a chunk behind `from` wait for the next chunk, and those that waited are taken; what is left behind
 * them is returned. */
static span take_chunk(pass *p, const chunk *c, int64_t from, span *waiting)
{
    const char *begin = c->bytes + from, *end = c->bytes + c->n;
    const char *stop = c->is_last ? end : line_start(begin, end);
    span region = {begin, stop - begin}, rest = {stop, end - stop};
    if (c->is_last) {
        take_last(p, *waiting, region);
        return rest;
    }
    take_region(p, *waiting, waiting->at + waiting->n);
    *waiting = region;
    if (rest.n <= block_bytes)
        return rest;
    take_region(p, region, stop);
    *waiting = (span){stop, 0};
    begin_long(p, rest.at, rest.n);
    return (span){end, 0};
}

/* The end of a chunk in which an anchor may begin that ends in the next one. */
static span overlap_of(const pass *p, const chunk *c)
{
    int64_t n = bl_min_i64(bl_max_i64(p->scan->longest - 1, 0), c->n);
    return (span){c->bytes + c->n - n, n};
}

static chunk read_chunk(pass *p, bl_input *input, span rest)
{
    int64_t n_read;
    char *bytes = bl_ahead_next(p->scan->ahead, &n_read) - rest.n;
    memcpy(bytes, rest.at, (size_t)rest.n);
    chunk c = {.bytes = bytes, .n_kept = rest.n, .n = rest.n + n_read, .is_last = n_read < block_bytes};
    if (p->total->n_bytes == 0)
        learn(p, bytes, c.n, input);
    p->total->n_bytes += n_read;
    if (n_read > 0)
        p->total->has_last_feed = bytes[c.n - 1] == '\n';
    return c;
}

static void run(pass *p, bl_input *input)
{
    span waiting = {"", 0}, rest = {"", 0};
    chunk c = {.is_last = false};
    while (!c.is_last && p->code == BELAY_OK) {
        int64_t from = 0;
        c = read_chunk(p, input, rest);
        if (p->is_long)
            continue_long(p, &c, &from);
        if (!p->is_long)
            rest = take_chunk(p, &c, from, &waiting);
        if (p->is_long)
            rest = overlap_of(p, &c);
    }
}

belay_code bl_scan_run(bl_scan *scan, bl_input *input, const bl_scan_sink *sink, bl_scan_total *total, bl_error *error)
{
    pass p = {.scan = scan, .sink = sink, .total = total, .error = error, .number = 1};
    *total = (bl_scan_total){0};
    bl_line_style_init(&total->style, bl_input_path(input));
    unmark(scan);
    bl_ahead_start(scan->ahead, input);
    run(&p, input);
    bl_ahead_stop(scan->ahead);
    unmark(scan);
    total->n_lines = p.number - 1;
    return p.code;
}
