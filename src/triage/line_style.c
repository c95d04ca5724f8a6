/* SPDX-License-Identifier: Apache-2.0 */
/* What a file's name and its first lines tell of all its lines. */
#include "base/attributes.h"
#include "triage/line_parts.h"

enum { looked_at = 4096 };

/* ---- names --------------------------------------------------------------------------------------------------- */

typedef struct part {
    const char *at;
    int64_t n;
} part;

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

static bool begins(const char *at, const char *end, const char *word)
{
    for (; *word != '\0'; word++, at++)
        if (at == end || lower(*at) != *word)
            return false;
    return true;
}

static bool ends(part name, const char *suffix)
{
    int64_t n = (int64_t)strlen(suffix);
    return name.n > n && begins(name.at + name.n - n, name.at + name.n, suffix);
}

/* The last part of what is left of a path, which loses it. */
static part take_part(part *path)
{
    while (path->n > 0 && path->at[path->n - 1] == '/')
        path->n--;
    int64_t from = path->n;
    while (from > 0 && path->at[from - 1] != '/')
        from--;
    part last = {path->at + from, path->n - from};
    path->n = from;
    return last;
}

/* All of it digits, at most `most` of them; -1. */
static int whole_number(part name, int most)
{
    bl_cursor c = {name.at, name.at + name.n};
    int64_t number;
    return bl_take_digits(&c, 1, most, &number) && c.at == c.end ? (int)number : -1;
}

/* "rank0-7": several ranks. */
static bool is_range(bl_cursor c)
{
    int64_t other;
    return bl_take_char(&c, '-') && bl_take_digits(&c, 1, 3, &other) && !bl_is_alnum(bl_peek(&c));
}

/* "rank3", "rank_3", "worker-3" anywhere in a name, as words. */
static int worded_rank(part name)
{
    static const char *const words[] = {"rank",    "worker", "default", "workerlog",
                                        "trainer", "grank",  "process", "proc"};
    const char *end = name.at + name.n;
    for (const char *at = name.at; at < end; at++)
        for (int i = 0; i < BL_COUNT(words); i++) {
            int64_t rank;
            if ((at > name.at && bl_is_letter(at[-1])) || !begins(at, end, words[i]))
                continue;
            bl_cursor c = {at + strlen(words[i]), end};
            if (c.at < end && bl_is_one_of(*c.at, "_-.="))
                c.at++;
            if (bl_take_digits(&c, 1, 5, &rank) && !bl_is_alnum(bl_peek(&c)) && !is_range(c))
                return (int)rank;
        }
    return -1;
}

/* "3.err", "stdout.3", "log.1.3" (of mpirun --output-filename). */
static int numbered_rank(part name)
{
    static const char *const suffixes[] = {".err", ".out", ".log", ".txt", ".stderr", ".stdout"};
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++)
        if (ends(name, suffixes[i])) {
            part stem = {name.at, name.n - (int64_t)strlen(suffixes[i])};
            if (stem.n > 1 && lower(stem.at[0]) == 'r') /* "r3.log" */
                stem = (part){stem.at + 1, stem.n - 1};
            return whole_number(stem, 3);
        }
    const char *end = name.at + name.n, *digits = end;
    while (digits > name.at && bl_is_digit(digits[-1]))
        digits--;
    int64_t n_before = digits - name.at;
    int rank = whole_number((part){digits, end - digits}, 5);
    bool is_stream = n_before == 7 && (begins(name.at, end, "stdout.") || begins(name.at, end, "stderr."));
    bool is_mpi = n_before > 3 && memcmp(digits - 3, ".1.", 3) == 0;
    return is_stream || is_mpi ? rank : -1;
}

int bl_line_rank_of_path(const char *path)
{
    part rest = {path, (int64_t)strlen(path)};
    part name = take_part(&rest);
    while (ends(name, ".gz") || ends(name, ".zst"))
        name.n -= ends(name, ".gz") ? 3 : 4;
    int rank = worded_rank(name);
    if (rank < 0)
        rank = numbered_rank(name);
    if (rank >= 0)
        return rank;
    part folder = take_part(&rest), above = take_part(&rest);
    if (begins(above.at, above.at + above.n, "attempt_"))
        return whole_number(folder, 5);
    return worded_rank(folder);
}

/* ---- lines --------------------------------------------------------------------------------------------------- */

void bl_line_style_init(bl_line_style *style, const char *path)
{
    *style = (bl_line_style){.rank = bl_line_rank_of_path(path), .label_seen = -1, .told_rank = -1};
}

static void count(struct bl_line_count *counted, int64_t number)
{
    if (counted->n_lines++ == 0) {
        counted->first = number;
    } else {
        counted->n_rising += number > counted->last;
        counted->n_falling += number < counted->last;
        counted->n_same += number == counted->last;
    }
    counted->last = number;
}

/* "RANK=3" among the variables that a launcher set; -1. */
static int rank_variable(const bl_line *line)
{
    static const char word[] = "RANK=";
    bl_cursor c = {line->text, line->text + line->n_text};
    for (; c.end - c.at > (int64_t)strlen(word); c.at++) {
        bl_cursor d = c;
        int64_t rank;
        bool is_start = c.at == line->text || bl_is_one_of(c.at[-1], " \t;,'\"");
        if (is_start && bl_take_word(&d, word) && bl_take_digits(&d, 1, 6, &rank) && !bl_is_alnum(bl_peek(&d)))
            return (int)rank;
    }
    return -1;
}

static void note_told(bl_line_style *style, const bl_line *line)
{
    int variable = rank_variable(line);
    int rank = variable >= 0 ? variable : line->is_labeled && !line->is_local_rank ? line->rank : line->said_rank;
    if (rank < 0)
        return;
    style->n_told++;
    style->has_variable |= variable >= 0;
    style->tells_several |= style->told_rank >= 0 && style->told_rank != rank;
    style->told_rank = rank;
}

int bl_line_style_told(const bl_line_style *style)
{
    bool is_sure = style->has_variable || style->n_told * 2 >= style->n_seen;
    return is_sure && !style->tells_several ? style->told_rank : -1;
}

void bl_line_style_learn(bl_line_style *style, const char *raw, int64_t n_raw)
{
    char scratch[looked_at];
    bl_cursor c = {raw, raw + (n_raw < looked_at ? n_raw : looked_at)};
    int64_t number;
    bl_line line = {.number = 0};
    while (c.end > c.at && (c.end[-1] == '\n' || c.end[-1] == '\r'))
        c.end--;
    if (c.at == c.end)
        return;
    style->n_seen++;
    bl_line_parse(NULL, c.at, c.end - c.at, scratch, &line);
    c = (bl_cursor){line.text,
                    line.text + line.n_text}; /* colours are gone; without a style, numbers still stand there */
    if (bl_line_take_number_colon(&c, &number))
        count(&style->colon, number);
    else if (bl_line_take_number_bracket(&c, &number))
        count(&style->bracket, number);
    if (line.time_kind == BL_TIME_WALL && line.time_has_year && line.time > style->around)
        style->around = line.time;
    note_told(style, &line);
    if (!line.is_labeled)
        return;
    bool differs = style->label_seen >= 0 && style->label_seen != line.rank;
    style->has_other_labels |= differs || (!line.is_local_rank && style->rank >= 0 && style->rank != line.rank);
    style->label_seen = line.rank;
}

/* On at least half of the lines, and not a count of lines or epochs: those rise and never fall. */
static bool is_style(const struct bl_line_count *counted, int64_t n_seen, bool may_be_in_order)
{
    if (counted->n_lines < 2 || counted->n_lines * 2 < n_seen)
        return false;
    bool only_rises = counted->n_rising > 0 && counted->n_falling == 0;
    return !only_rises || (may_be_in_order && counted->first == 0 && counted->n_same > 0);
}

void bl_line_style_settle(bl_line_style *style)
{
    style->is_numbered_colon = is_style(&style->colon, style->n_seen, true);
    style->is_numbered_bracket = !style->is_numbered_colon && is_style(&style->bracket, style->n_seen, false);
    bool numbers_differ = style->is_numbered_colon
                              ? style->colon.n_same + 1 < style->colon.n_lines
                              : style->is_numbered_bracket && style->bracket.n_same + 1 < style->bracket.n_lines;
    if (style->has_other_labels || numbers_differ)
        style->rank = -1;
}
