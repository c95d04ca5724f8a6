/* SPDX-License-Identifier: Apache-2.0 */
/* Records that hold a line: one JSON object a line, as journals, containers and structured loggers write it.  The text
 * is its message; rank, process, host and time stand beside it.  A record without such a companion, or one of a
 * conversation, is a text as it stands. */
#include "triage/line_parts.h"

enum { most_members = 256, most_depth = 32 };

typedef struct wrapped {
    const bl_line_style *style;
    bl_line *line;
    char *scratch, *out;
    int message_worth;  /* 0: none yet */
    int64_t n_message;  /* it stands first in the scratch memory */
    bool has_companion; /* a time, a stream or a level */
    bool is_speech;
} wrapped;

typedef struct member {
    bl_cursor key, value; /* a text without its marks, else as it stands */
    bool is_text;
} member;

/* ---- values ------------------------------------------------------------------------------------------------------- */

/* Behind the opening mark; the closing one is passed.  A record may be cut off: then it ends with the line. */
static bl_cursor take_string(bl_cursor *c)
{
    bl_cursor text = {c->at, c->end};
    while (c->at < c->end && *c->at != '"')
        c->at += *c->at == '\\' && c->end - c->at > 1 ? 2 : 1;
    text.end = c->at;
    (void)bl_take_char(c, '"');
    return text;
}

/* A number, word, list or object, up to the comma or bracket behind it. */
static bl_cursor take_other(bl_cursor *c)
{
    bl_cursor value = {c->at, c->end};
    for (int depth = 0; c->at < c->end && depth < most_depth;) {
        char byte = *c->at;
        if (depth == 0 && bl_is_one_of(byte, ",}"))
            break;
        c->at++;
        if (byte == '"')
            (void)take_string(c);
        depth += bl_is_one_of(byte, "[{") - bl_is_one_of(byte, "]}");
    }
    value.end = c->at;
    while (value.end > value.at && value.end[-1] == ' ')
        value.end--;
    return value;
}

static bool take_member(bl_cursor *c, member *m)
{
    (void)bl_take_blanks(c);
    if (!bl_take_char(c, '"'))
        return false;
    m->key = take_string(c);
    (void)bl_take_blanks(c);
    if (!bl_take_char(c, ':'))
        return false;
    (void)bl_take_blanks(c);
    m->is_text = bl_take_char(c, '"');
    m->value = m->is_text ? take_string(c) : take_other(c);
    return true;
}

static bool is_word(bl_cursor text, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(text.end - text.at) == n && memcmp(text.at, word, n) == 0;
}

static bool is_any(bl_cursor text, const char *const *words)
{
    for (; *words != NULL; words++)
        if (is_word(text, *words))
            return true;
    return false;
}

static bool number_of(const member *m, int64_t *number)
{
    bl_cursor c = m->value;
    return bl_take_digits(&c, 1, 18, number) && c.at == c.end;
}

/* ---- text ---------------------------------------------------------------------------------------------------------- */

static int hex_of(char c)
{
    if (bl_is_digit(c))
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Behind "\u": four digits. */
static bool take_unit(bl_cursor *c, unsigned *unit)
{
    *unit = 0;
    if (c->end - c->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        int digit = hex_of(c->at[i]);
        if (digit < 0)
            return false;
        *unit = *unit * 16 + (unsigned)digit;
    }
    c->at += 4;
    return true;
}

/* UTF-8, at most half as long as the escape; halves of pairs are left out. */
static char *put_unit(char *out, unsigned unit)
{
    if (unit < 0x80) {
        *out++ = (char)unit;
    } else if (unit < 0x800) {
        *out++ = (char)(0xc0 | unit >> 6);
        *out++ = (char)(0x80 | (unit & 0x3f));
    } else if (unit < 0xd800 || unit > 0xdfff) {
        *out++ = (char)(0xe0 | unit >> 12);
        *out++ = (char)(0x80 | (unit >> 6 & 0x3f));
        *out++ = (char)(0x80 | (unit & 0x3f));
    }
    return out;
}

/* Line feeds become carriage returns: each line of a message is a segment. */
static char *decode(char *out, bl_cursor text)
{
    static const char escapes[] = "n\rr\rt\tb f ";
    while (text.at < text.end) {
        char byte = *text.at++;
        if (byte != '\\' || text.at == text.end) {
            *out++ = byte;
            continue;
        }
        char named = *text.at++;
        unsigned unit;
        const char *found = named == '\0' ? NULL : strchr(escapes, named);
        if (named == 'u' && take_unit(&text, &unit))
            out = put_unit(out, unit == '\n' ? '\r' : unit);
        else
            *out++ = found != NULL && (found - escapes) % 2 == 0 ? found[1] : named;
    }
    return out;
}

/* The journal writes a message that holds other bytes than text as a list of numbers. */
static char *decode_bytes(char *out, bl_cursor list)
{
    int64_t byte;
    for (list.at++; list.at < list.end; list.at++) {
        bl_cursor digits = list;
        if (!bl_is_digit(*list.at))
            continue;
        if (bl_take_digits(&digits, 1, 3, &byte) && byte < 256)
            *out++ = byte == '\n' ? '\r' : (char)byte;
        while (list.at + 1 < list.end && bl_is_digit(list.at[1]))
            list.at++;
    }
    return out;
}

static void take_message(wrapped *w, const member *m, int worth)
{
    bool is_list = !m->is_text && m->value.at < m->value.end && *m->value.at == '[' && worth == 3;
    if (worth <= w->message_worth || (!m->is_text && !is_list))
        return;
    w->out = is_list ? decode_bytes(w->scratch, m->value) : decode(w->scratch, m->value);
    w->message_worth = worth;
}

/* ---- companions ---------------------------------------------------------------------------------------------------- */

static void note_time(wrapped *w, int64_t time)
{
    w->line->time = time;
    w->line->time_kind = BL_TIME_WALL;
    w->line->time_has_zone = w->line->time_has_year = true;
}

/* Seconds, with a fraction or not, milliseconds, microseconds or nanoseconds since 1970: which, its size tells. */
static void take_count(wrapped *w, const member *m)
{
    bl_cursor c = m->value;
    int64_t number = 0;
    int n = 0;
    for (; n < 16 && bl_is_digit(bl_peek(&c)); n++)
        number = number * 10 + (*c.at++ - '0');
    while (bl_is_digit(bl_peek(&c))) {
        n++;
        c.at++;
    }
    if (n != 10 && n != 13 && n != 16 && n != 19)
        return;
    bool has_fraction = n == 10 && bl_take_char(&c, '.');
    for (int digits = n < 16 ? n : 16; digits < 16; digits++) {
        bool takes = has_fraction && bl_is_digit(bl_peek(&c));
        number = number * 10 + (takes ? *c.at++ - '0' : 0);
    }
    note_time(w, number);
}

static void take_stamp(wrapped *w, const member *m)
{
    bl_line parsed = {.rank = -1};
    bl_front front = {.style = w->style, .line = &parsed};
    bl_cursor c = m->value;
    w->has_companion = true;
    if (bl_line_take_time(&front, &c) && parsed.time_kind == BL_TIME_WALL) {
        w->line->time = parsed.time;
        w->line->time_kind = parsed.time_kind;
        w->line->time_has_zone = parsed.time_has_zone;
        w->line->time_has_year = parsed.time_has_year;
    } else {
        take_count(w, m);
    }
}

static void take_number(wrapped *w, const member *m)
{
    static const char *const ranks[] = {"rank", "RANK", "global_rank", "process_rank", NULL};
    static const char *const pids[] = {"_PID", "SYSLOG_PID", "pid", "process", NULL};
    int64_t number;
    if (!number_of(m, &number))
        return;
    if (is_any(m->key, pids)) {
        w->line->pid = number;
    } else if (is_any(m->key, ranks) && number < 1000000) {
        w->line->rank = (int)number;
        w->line->is_labeled = true;
    }
}

static void take_host(wrapped *w, const member *m)
{
    static const char *const hosts[] = {"_HOSTNAME", "hostname", "host", NULL};
    if (m->is_text && is_any(m->key, hosts)) {
        w->line->host = m->value.at;
        w->line->n_host = m->value.end - m->value.at;
    }
}

static void take(wrapped *w, const member *m)
{
    static const char *const times[] = {
        "__REALTIME_TIMESTAMP", "timestamp", "@timestamp", "time", "ts", "asctime", "datetime", "created", NULL};
    static const char *const others[] = {
        "stream", "level", "levelname", "severity", "PRIORITY", "SYSLOG_IDENTIFIER", "_TRANSPORT", "logger", NULL};
    static const char *const speech[] = {"role", "prompt", "completion", "question", "answer", "instruction", NULL};
    if (is_word(m->key, "MESSAGE"))
        take_message(w, m, 3);
    else if (is_word(m->key, "log") || is_word(m->key, "message") || is_word(m->key, "msg"))
        take_message(w, m, 2);
    else if (is_any(m->key, times) && !(w->line->time_kind != BL_TIME_NONE && *m->key.at != '_'))
        take_stamp(w, m);
    w->has_companion |= is_any(m->key, others);
    w->is_speech |= is_any(m->key, speech);
    take_number(w, m);
    take_host(w, m);
}

/* ---- records -------------------------------------------------------------------------------------------------------- */

/* A traceback that stands beside the message comes behind it. */
static void add_traces(wrapped *w, bl_cursor c)
{
    static const char *const traces[] = {"exc_info",   "exception", "exc_text", "stack_trace",
                                         "stacktrace", "traceback", NULL};
    member m;
    for (int i = 0; i < most_members && take_member(&c, &m); i++) {
        if (m.is_text && is_any(m.key, traces)) {
            *w->out++ = '\r';
            w->out = decode(w->out, m.value);
        }
        (void)bl_take_blanks(&c);
        if (!bl_take_char(&c, ','))
            return;
    }
}

static bool take_record(wrapped *w, bl_cursor c)
{
    bl_cursor members = c;
    member m;
    for (int i = 0; i < most_members && take_member(&c, &m); i++) {
        take(w, &m);
        (void)bl_take_blanks(&c);
        if (!bl_take_char(&c, ','))
            break;
    }
    (void)bl_take_char(&c, '}');
    (void)bl_take_blanks(&c);
    if (c.at < c.end || w->message_worth == 0 || w->is_speech || !(w->has_companion || w->message_worth == 3))
        return false;
    add_traces(w, members);
    return true;
}

/* One line of a record that is spread over several: "MESSAGE=..." and  "MESSAGE" : "...", of the journal. */
static bool take_field(wrapped *w, bl_cursor c)
{
    member m = {.value = c};
    if (bl_take_word(&c, "MESSAGE="))
        m.value = c;
    else if (!bl_take_word(&c, "\"MESSAGE\" : \""))
        return false;
    else
        m.value = take_string(&c);
    w->out = decode(w->scratch, m.value);
    return true;
}

bool bl_line_unwrap(const bl_line_style *style, const char *raw, int64_t n_raw, char *scratch, bl_line *line,
                    int64_t *n_text)
{
    bl_line kept = *line;
    wrapped w = {.style = style, .line = line, .scratch = scratch, .out = scratch};
    bl_cursor c = {raw, raw + n_raw};
    (void)bl_take_blanks(&c);
    bool is_record = bl_take_char(&c, '{');
    if (is_record ? !take_record(&w, c) : !take_field(&w, c)) {
        *line = kept;
        return false;
    }
    while (w.out > scratch && bl_is_one_of(w.out[-1], "\r "))
        w.out--;
    *n_text = w.out - scratch;
    return true;
}
