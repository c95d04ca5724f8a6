/* SPDX-License-Identifier: Apache-2.0 */
/* Escapes and carriage returns first, since they may stand inside of all else; then, of each segment, what stands in
 * front of its text. */
#include "triage/line.h"

#include "triage/line_parts.h"

enum { most_rounds = 12, longest_tag = 40 };

/* ---- escapes ------------------------------------------------------------------------------------------------- */

/* Behind "ESC [": parameters, intermediates and a final byte.  Its length, and that byte; 0 and what is there of it when
 * there is none. */
static int64_t control_length(const char *at, const char *end, char *final)
{
    const char *from = at;
    while (at < end && *at >= 0x30 && *at <= 0x3f)
        at++;
    while (at < end && *at >= 0x20 && *at <= 0x2f)
        at++;
    *final = at < end && *at >= 0x40 && *at <= 0x7e ? *at++ : '\0';
    return at - from;
}

/* Behind "ESC ]" and its like: up to BEL or "ESC \".  Without such an end nothing is taken, so that a text behind a
 * broken escape is not lost. */
static int64_t string_length(const char *at, const char *end)
{
    for (const char *from = at; at < end; at++) {
        if (*at == '\a')
            return at + 1 - from;
        if (*at == 0x1b && end - at > 1 && at[1] == '\\')
            return at + 2 - from;
    }
    return 0;
}

static int64_t escape_length(const char *at, const char *end, bool *moves)
{
    if (end - at < 2)
        return 1;
    if (at[1] == '[') {
        char final;
        int64_t n = control_length(at + 2, end, &final);
        *moves = final != '\0' && !bl_is_one_of(final, "mKhlnst");
        return 2 + n;
    }
    if (bl_is_one_of(at[1], "]PX^_"))
        return 2 + string_length(at + 2, end);
    const char *behind = at + 1;
    while (behind < end && *behind >= 0x20 && *behind <= 0x2f)
        behind++;
    return behind + (behind < end && *behind >= 0x30 && *behind <= 0x7e) - at;
}

/* Colours whose escape byte was lost or spelled out on the way: "[36m", "^[[36m". */
static int64_t bare_colour_length(const char *at, const char *end)
{
    const char *from = at;
    if (*at == '^' && end - at > 3 && at[1] == '[' && at[2] == '[')
        at += 2;
    if (*at != '[')
        return 0;
    for (at++; at < end && (bl_is_digit(*at) || *at == ';'); at++)
        if (at - from > 16)
            return 0;
    bool is_colour = at < end && *at == 'm' && (at[-1] != '[' || from[0] == '^');
    return is_colour && !(end - at > 1 && at[1] == ']') ? at + 1 - from : 0;
}

typedef enum look { LOOK_PLAIN, LOOK_ESCAPED, LOOK_BARE } look;

/* Whether a line can stay where it is; LOOK_BARE when "[0m" tells that colours have lost their escape byte. */
static look look_over(const char *bytes, int64_t n_bytes)
{
    look found = LOOK_PLAIN;
    for (int64_t i = 0; i < n_bytes; i++) {
        if (bytes[i] == '\r' || bytes[i] == '\b' || bytes[i] == 0x1b)
            found = found == LOOK_PLAIN ? LOOK_ESCAPED : found;
        else if (bytes[i] == 'm' && i >= 2 && bytes[i - 1] == '0' && bytes[i - 2] == '[' &&
                 !(i >= 3 && bytes[i - 3] == 0x1b))
            found = LOOK_BARE;
    }
    return found;
}

/* ---- the front of a segment ---------------------------------------------------------------------------------- */

/* A name in brackets that is none of ours, when a time stamp is behind it: "[titan] 2025-07-14 09:31:02". */
static bool take_tag(bl_front *front, bl_cursor *c)
{
    bl_cursor d = *c;
    if (front->has_stamp || !bl_take_char(&d, '['))
        return false;
    while (d.at < d.end && d.at - c->at < longest_tag && *d.at != ']' && *d.at != '[')
        d.at++;
    if (!bl_take_char(&d, ']'))
        return false;
    (void)bl_take_blanks(&d);
    if (!bl_line_take_time(front, &d))
        return false;
    *c = d;
    return true;
}

static bool take_front(bl_front *front, bl_cursor *c)
{
    bl_cursor d = *c;
    (void)bl_take_blanks(&d);
    /* Blanks in front of a text belong to it. */
    if (!bl_line_take_label(front, c) && !bl_line_take_label(front, &d) && !bl_line_take_time(front, &d) &&
        !bl_line_take_origin(front, &d) && !take_tag(front, &d))
        return false;
    if (d.at > c->at)
        *c = d;
    return true;
}

/* The text of a segment behind its front. */
static bl_cursor segment_text(const bl_line_style *style, bl_line *line, const char *bytes, int64_t n_bytes)
{
    bl_front front = {.style = style, .line = line};
    bl_cursor c = {bytes, bytes + n_bytes};
    for (int round = 0; round < most_rounds && take_front(&front, &c); round++)
        continue;
    int said = bl_line_said_rank(c.at, c.end - c.at);
    if (said >= 0)
        line->said_rank = said;
    return c;
}

/* ---- segments ------------------------------------------------------------------------------------------------ */

typedef struct builder {
    const bl_line_style *style;
    bl_line *line;
    char *start, *out; /* of the segment that is being written */
} builder;

static void finish_segment(builder *b, bool is_last)
{
    bl_cursor all = {b->start, b->out};
    (void)bl_take_blanks(&all);
    if (all.at == all.end) {
        b->out = b->start;
        return;
    }
    bl_cursor text = segment_text(b->style, b->line, b->start, b->out - b->start);
    int64_t n_text = text.end - text.at;
    memmove(b->start, text.at, (size_t)n_text);
    b->out = b->start + n_text;
    if (n_text == 0)
        return;
    b->line->n_segments++;
    if (!is_last)
        *b->out++ = '\n';
    b->start = b->out;
}

static void build_segments(builder *b, const char *at, const char *end, bool has_bare)
{
    while (at < end) {
        bool breaks = *at == '\r' || *at == '\b';
        int64_t n = breaks        ? 1
                    : *at == 0x1b ? escape_length(at, end, &breaks)
                    : has_bare    ? bare_colour_length(at, end)
                                  : 0;
        if (n == 0)
            *b->out++ = *at++;
        at += n;
        if (breaks)
            finish_segment(b, false);
    }
    finish_segment(b, true);
}

static void parse_text(const bl_line_style *style, const char *raw, int64_t n_raw, char *scratch, bl_line *line)
{
    look found = look_over(raw, n_raw);
    if (found == LOOK_PLAIN) {
        bl_cursor text = segment_text(style, line, raw, n_raw);
        line->text = text.at;
        line->n_text = text.end - text.at;
        return;
    }
    builder b = {style, line, scratch, scratch};
    build_segments(&b, raw, raw + n_raw, found == LOOK_BARE);
    bool has_separator = b.out > scratch && b.out == b.start && b.out[-1] == '\n';
    line->text = scratch;
    line->n_text = b.out - scratch - has_separator;
}

/* What stands in front of the message itself; the time of the record, which has a zone, stays. */
static void parse_message(const bl_line_style *style, int64_t n_text, char *scratch, bl_line *line)
{
    bl_line record = *line;
    parse_text(style, scratch, n_text, scratch, line);
    if (record.time_kind == BL_TIME_NONE)
        return;
    line->time = record.time;
    line->time_kind = record.time_kind;
    line->time_has_zone = record.time_has_zone;
    line->time_has_year = record.time_has_year;
}

/* A line without the colours around all of it. */
static bl_cursor without_frame(const char *raw, int64_t n_raw)
{
    enum { LONGEST = 16 };
    bl_cursor c = {raw, raw + n_raw};
    bool moves = false;
    while (c.at < c.end && *c.at == 0x1b) {
        int64_t n = escape_length(c.at, c.end, &moves);
        if (n <= 0)
            break;
        c.at += n;
    }
    for (const char *at = c.end - 1; at >= c.at && c.end - at <= LONGEST; at--)
        if (*at == 0x1b) {
            c.end = at + escape_length(at, c.end, &moves) == c.end ? at : c.end;
            break;
        }
    return c;
}

void bl_line_parse(const bl_line_style *style, const char *raw, int64_t n_raw, char *scratch, bl_line *line)
{
    int64_t n_text;
    n_raw -= n_raw > 0 && raw[n_raw - 1] == '\n';
    *line = (bl_line){.file = line->file,
                      .number = line->number,
                      .raw = raw,
                      .n_raw = n_raw,
                      .rank = style != NULL ? style->rank : -1,
                      .said_rank = -1,
                      .device = -1,
                      .pid = -1};
    while (n_raw > 0 && raw[n_raw - 1] == '\r')
        n_raw--;
    bl_cursor inner = without_frame(raw, n_raw);
    if (bl_line_unwrap(style, inner.at, inner.end - inner.at, scratch, line, &n_text))
        parse_message(style, n_text, scratch, line);
    else
        parse_text(style, raw, n_raw, scratch, line);
    if (line->n_segments == 0)
        line->n_segments = 1;
}

bool bl_line_segment(const bl_line *line, int64_t *at, const char **bytes, int64_t *n_bytes)
{
    if (*at > line->n_text || (*at == line->n_text && line->n_text > 0))
        return false;
    const char *from = line->text + *at, *end = line->text + line->n_text;
    const char *stop = line->n_segments > 1 ? memchr(from, '\n', (size_t)(end - from)) : NULL;
    *bytes = from;
    *n_bytes = (stop != NULL ? stop : end) - from;
    *at += *n_bytes + 1;
    return true;
}
