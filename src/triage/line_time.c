/* SPDX-License-Identifier: Apache-2.0 */
/* Time stamps as programs, loggers, launchers and kernels write them.  A number is a part of a stamp only when it is in
 * range, so that "[1234]" or "24/06" in an ordinary text is none. */
#include "triage/line_parts.h"

#define SECOND INT64_C(1000000)
#define DAY    (86400 * SECOND)

typedef struct stamp {
    int64_t year, month, day; /* year 0: not told; month 0: no date at all */
    int64_t hour, minute, second, micros;
    int64_t zone; /* minutes east of Greenwich */
    bool has_zone;
} stamp;

/* ---- calendar ------------------------------------------------------------------------------------------------ */

static bool is_leap(int64_t year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

static int64_t days_of_month(int64_t year, int64_t month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return days[month - 1] + (month == 2 && is_leap(year));
}

/* Days since 1970-01-01 of a Gregorian date; years begin in March here, so that the leap day is their last. */
static int64_t days_from_date(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t era = year / 400, of_era = year % 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static void date_from_days(int64_t days, int64_t *year, int64_t *month, int64_t *day)
{
    days += 719468;
    int64_t era = days / 146097, of_era = days % 146097;
    int64_t year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t shifted = (5 * of_year + 2) / 153;
    *day = of_year - (153 * shifted + 2) / 5 + 1;
    *month = shifted < 10 ? shifted + 3 : shifted - 9;
    *year = era * 400 + year_of_era + (*month <= 2);
}

static int64_t floor_days(int64_t time) { return time / DAY - (time % DAY < 0); }

static int64_t year_of(int64_t time)
{
    int64_t year, month, day;
    date_from_days(floor_days(time), &year, &month, &day);
    return year;
}

/* False when that year has no such day. */
static bool in_year(const stamp *s, int64_t year, int64_t *time)
{
    if (s->day > days_of_month(year, s->month))
        return false;
    *time = days_from_date(year, s->month, s->day) * DAY +
            (s->hour * 3600 + s->minute * 60 + s->second - s->zone * 60) * SECOND + s->micros;
    return true;
}

static int64_t apart(int64_t a, int64_t b) { return a < b ? b - a : a - b; }

/* Leap days are at most eight years apart. */
static int64_t nearest_year(const stamp *s, int64_t around)
{
    int64_t middle = year_of(around), best = 0, time;
    bool has_best = false;
    for (int64_t year = middle - 8; year <= middle + 8; year++)
        if (in_year(s, year, &time) && (!has_best || apart(time, around) < apart(best, around))) {
            best = time;
            has_best = true;
        }
    return best;
}

static int64_t last_year(const stamp *s, int64_t latest)
{
    int64_t bound = latest + DAY, year = year_of(bound), time = 0;
    while (!in_year(s, year, &time) || time > bound)
        year--;
    return time;
}

static int64_t guess_year(const stamp *s, const bl_line_style *style)
{
    int64_t time = 0;
    if (style != NULL && style->around > 0)
        return nearest_year(s, style->around);
    if (style != NULL && style->latest > 0)
        return last_year(s, style->latest);
    (void)in_year(s, 1972, &time);
    return time;
}

int64_t bl_line_time_near(int64_t time, int64_t around)
{
    stamp s = {0};
    int64_t days = floor_days(time), year;
    date_from_days(days, &year, &s.month, &s.day);
    s.micros = time - days * DAY;
    return nearest_year(&s, around);
}

/* ---- pieces -------------------------------------------------------------------------------------------------- */

/* Microseconds after a point or comma; finer digits are dropped. */
static bool take_fraction(bl_cursor *c, int64_t *micros)
{
    bl_cursor d = *c;
    if (!bl_take_char(&d, '.') && !bl_take_char(&d, ','))
        return false;
    if (!bl_is_digit(bl_peek(&d)))
        return false;
    int64_t sum = 0, unit = 100000;
    for (; bl_is_digit(bl_peek(&d)); d.at++, unit /= 10)
        sum += (*d.at - '0') * unit;
    *micros = sum;
    *c = d;
    return true;
}

/* "11:20" and, where seconds stand, "11:20:41.102". */
static bool take_clock(bl_cursor *c, bool needs_seconds, stamp *s)
{
    bl_cursor d = *c;
    int64_t hour, minute, second = 0, micros = 0;
    if (!bl_take_digits(&d, 2, 2, &hour) || !bl_take_char(&d, ':') || !bl_take_digits(&d, 2, 2, &minute))
        return false;
    if (bl_take_char(&d, ':')) {
        if (!bl_take_digits(&d, 2, 2, &second))
            return false;
        (void)take_fraction(&d, &micros);
    } else if (needs_seconds) {
        return false;
    }
    if (hour > 23 || minute > 59 || second > 60)
        return false;
    s->hour = hour;
    s->minute = minute;
    s->second = second;
    s->micros = micros;
    *c = d;
    return true;
}

static bool take_offset(bl_cursor *c, stamp *s)
{
    bl_cursor d = *c;
    int64_t hours, minutes = 0;
    (void)bl_take_char(&d, ' ');
    bool is_west = bl_peek(&d) == '-';
    if (!bl_take_char(&d, '+') && !bl_take_char(&d, '-'))
        return false;
    if (bl_take_digits(&d, 4, 4, &hours)) {
        minutes = hours % 100;
        hours /= 100;
    } else if (!bl_take_digits(&d, 2, 2, &hours) || (bl_take_char(&d, ':') && !bl_take_digits(&d, 2, 2, &minutes))) {
        return false;
    }
    if (hours > 14 || minutes % 15 != 0 || minutes > 45 || bl_is_alnum(bl_peek(&d)))
        return false;
    s->zone = (hours * 60 + minutes) * (is_west ? -1 : 1);
    s->has_zone = true;
    *c = d;
    return true;
}

/* "Z", " UTC", "+02:00", " -0700". */
static void take_zone(bl_cursor *c, stamp *s)
{
    bl_cursor d = *c;
    if (take_offset(c, s))
        return;
    if (bl_take_char(&d, 'Z') || bl_take_word(&d, " UTC") || bl_take_word(&d, " GMT")) {
        if (bl_is_alnum(bl_peek(&d)))
            return;
        s->has_zone = true;
        *c = d;
    }
}

/* " CEST" in front of a year: a zone whose offset the letters do not tell. */
static void take_zone_name(bl_cursor *c)
{
    bl_cursor d = *c;
    int64_t year;
    if (!bl_take_char(&d, ' '))
        return;
    const char *from = d.at;
    while (bl_peek(&d) >= 'A' && bl_peek(&d) <= 'Z')
        d.at++;
    bl_cursor behind = d;
    if (d.at - from >= 2 && d.at - from <= 5 && bl_take_char(&d, ' ') && bl_take_digits(&d, 4, 4, &year))
        *c = behind;
}

static bool is_date(const stamp *s)
{
    int64_t year = s->year != 0 ? s->year : 1972;
    return year >= 1970 && year < 2200 && s->month >= 1 && s->month <= 12 && s->day >= 1 &&
           s->day <= days_of_month(year, s->month);
}

/* 2024-06-09, 2024/6/9, 24/06/09, 06/09/2024 (the month first, unless it cannot be one), 06-09. */
static bool take_date(bl_cursor *c, stamp *s)
{
    bl_cursor d = *c;
    int64_t a, b, third;
    const char *from = d.at;
    if (!bl_take_digits(&d, 1, 4, &a))
        return false;
    int64_t n_first = d.at - from;
    char parts = bl_peek(&d);
    if ((parts != '-' && parts != '/' && parts != '.') || !bl_take_char(&d, parts) || !bl_take_digits(&d, 1, 2, &b))
        return false;
    from = d.at;
    bool has_third = bl_take_char(&d, parts) && bl_take_digits(&d, 1, 4, &third);
    int64_t n_third = d.at - from - 1;
    stamp found = *s;
    if (n_first == 4 && has_third && n_third <= 2) {
        found.year = a, found.month = b, found.day = third;
    } else if (n_first == 2 && has_third && n_third == 4) {
        found.year = third, found.month = a <= 12 ? a : b, found.day = a <= 12 ? b : a;
    } else if (n_first == 2 && has_third && n_third == 2 && parts == '/') {
        found.year = 2000 + a, found.month = b, found.day = third;
    } else if (n_first == 2 && !has_third && n_third < 0 && parts != '.') {
        found.year = 0, found.month = a, found.day = b;
    } else {
        return false;
    }
    if (!is_date(&found))
        return false;
    *s = found;
    *c = d;
    return true;
}

/* Between a date and its clock. */
static bool take_gap(bl_cursor *c)
{
    if (bl_take_char(c, 'T') || bl_take_char(c, '_') || bl_take_char(c, ':'))
        return true;
    (void)bl_take_char(c, ',');
    return bl_take_blanks(c) > 0;
}

static bool take_name(bl_cursor *c, const char *names, int64_t *number)
{
    for (int i = 0; names[3 * i] != '\0'; i++)
        if (c->end - c->at > 3 && memcmp(c->at, names + 3 * i, 3) == 0 && !bl_is_letter(c->at[3])) {
            c->at += 3;
            *number = i + 1;
            return true;
        }
    return false;
}

static bool take_weekday(bl_cursor *c)
{
    int64_t day;
    bl_cursor d = *c;
    if (!take_name(&d, "SunMonTueWedThuFriSat", &day))
        return false;
    (void)bl_take_char(&d, ',');
    if (bl_take_blanks(&d) == 0)
        return false;
    *c = d;
    return true;
}

/* ---- whole stamps -------------------------------------------------------------------------------------------- */

static bool take_dated(bl_cursor *c, stamp *s)
{
    bl_cursor d = *c;
    (void)take_weekday(&d);
    if (!take_date(&d, s) || !take_gap(&d) || !take_clock(&d, s->year == 0, s))
        return false;
    take_zone(&d, s);
    *c = d;
    return true;
}

/* " 2024" behind a clock or between day and clock. */
static void take_year(bl_cursor *c, stamp *s)
{
    bl_cursor d = *c;
    int64_t year;
    if (!bl_take_char(&d, ' ') || !bl_take_digits(&d, 4, 4, &year) || year < 1970 || year > 2199 ||
        bl_is_alnum(bl_peek(&d)))
        return;
    s->year = year;
    *c = d;
}

/* "Sun Jun  9 11:20:41 2024", "Jun  9 11:20:41", in brackets also without seconds ("Jun 9 11:20"). */
static bool take_named_month(bl_cursor *c, bool is_bracketed, stamp *s, bool *has_weekday)
{
    bl_cursor d = *c;
    *has_weekday = take_weekday(&d);
    if (!take_name(&d, "JanFebMarAprMayJunJulAugSepOctNovDec", &s->month) || bl_take_blanks(&d) == 0 ||
        !bl_take_digits(&d, 1, 2, &s->day))
        return false;
    take_year(&d, s);
    if (bl_take_blanks(&d) == 0 || !take_clock(&d, !is_bracketed, s))
        return false;
    take_zone(&d, s);
    take_zone_name(&d);
    if (s->year == 0)
        take_year(&d, s);
    if (!is_date(s))
        return false;
    *c = d;
    return true;
}

/* Seconds with a fraction: since 1970 when there are ten digits in front of the point, else since the machine started.
 */
static bool take_seconds(bl_cursor *c, bool is_bracketed, int64_t *time, bl_time_kind *kind)
{
    bl_cursor d = *c;
    int64_t seconds, micros;
    const char *from = d.at;
    if (!bl_take_digits(&d, 1, 10, &seconds))
        return false;
    bool is_epoch = d.at - from == 10;
    from = d.at;
    if (!take_fraction(&d, &micros) || *from != '.')
        return false;
    int64_t n_digits = d.at - from - 1;
    if (is_epoch ? n_digits < 3 : !is_bracketed || n_digits != 6)
        return false;
    *time = seconds * SECOND + micros;
    *kind = is_epoch ? BL_TIME_WALL : BL_TIME_BOOT;
    *c = d;
    return true;
}

/* What dmesg may put behind the seconds: " <    0.000012>" since the line before. */
static void take_delta(bl_cursor *c)
{
    bl_cursor d = *c;
    int64_t number;
    (void)bl_take_blanks(&d);
    if (!bl_take_char(&d, '<'))
        return;
    (void)bl_take_blanks(&d);
    if (bl_take_digits(&d, 1, 9, &number) && take_fraction(&d, &number) && bl_take_char(&d, '>'))
        *c = d;
}

/* "E0714 09:32:03.102331", "E714 09:32:03.102331946", "E0000 00:00:1720949523.102331". */
static bool take_google(bl_cursor *c, stamp *s, int64_t *time, char *level)
{
    bl_cursor d = *c;
    int64_t date;
    bl_time_kind kind;
    char letter = bl_peek(&d);
    if (!bl_is_one_of(letter, "IWEFCD") || !bl_take_char(&d, letter) || !bl_take_digits(&d, 3, 4, &date) ||
        bl_take_blanks(&d) == 0)
        return false;
    bl_cursor clock = d;
    if (date == 0 && bl_take_word(&d, "00:00:") && take_seconds(&d, false, time, &kind)) {
        s->month = 0;
    } else {
        d = clock;
        s->month = date / 100;
        s->day = date % 100;
        if (!is_date(s) || !take_clock(&d, true, s))
            return false;
    }
    *level = letter == 'C' ? 'F' : letter;
    *c = d;
    return true;
}

/* "6,1234,12345678901,-;" and further fields in front of the semicolon. */
static bool take_kmsg(bl_cursor *c, int64_t *time)
{
    bl_cursor d = *c;
    int64_t priority, sequence, micros;
    if (!bl_take_digits(&d, 1, 4, &priority) || !bl_take_char(&d, ',') || !bl_take_digits(&d, 1, 18, &sequence) ||
        !bl_take_char(&d, ',') || !bl_take_digits(&d, 1, 16, &micros) || !bl_take_char(&d, ','))
        return false;
    if (!bl_take_char(&d, '-') && !bl_take_char(&d, 'c') && !bl_take_char(&d, '+'))
        return false;
    while (d.at < d.end && *d.at != ';' && (bl_is_alnum(*d.at) || bl_is_one_of(*d.at, ",=_")))
        d.at++;
    if (!bl_take_char(&d, ';'))
        return false;
    *time = micros;
    *c = d;
    return true;
}

/* ---- what a stamp says --------------------------------------------------------------------------------------- */

/* Of several stamps in front of one text, one with a date is better than one without, a year better than none. */
static int worth(bl_time_kind kind, bool has_year)
{
    return kind == BL_TIME_WALL ? 2 + has_year : kind != BL_TIME_NONE;
}

static void note(bl_front *front, int64_t time, bl_time_kind kind, bool has_zone, bool has_year)
{
    bl_line *line = front->line;
    if (front->has_stamp && worth(kind, has_year) <= worth(line->time_kind, line->time_has_year))
        return;
    line->time = time;
    line->time_kind = kind;
    line->time_has_zone = has_zone;
    line->time_has_year = has_year;
    front->has_stamp = true;
}

static void note_stamp(bl_front *front, const stamp *s)
{
    int64_t time = 0;
    if (s->month == 0) {
        stamp midnight = *s;
        midnight.month = midnight.day = 1;
        (void)in_year(&midnight, 1970, &time);
        note(front, time, BL_TIME_OF_DAY, s->has_zone, false);
    } else if (s->year == 0) {
        note(front, guess_year(s, front->style), BL_TIME_WALL, s->has_zone, false);
    } else if (in_year(s, s->year, &time)) {
        note(front, time, BL_TIME_WALL, s->has_zone, true);
    }
}

/* The bracket that closes, or a byte that cannot belong to a longer word; then one sign that parts stamp and text. */
static bool take_end(bl_cursor *c, char closing)
{
    bl_cursor d = *c;
    bool is_closed = closing != '\0' && bl_take_char(&d, closing);
    char next = bl_peek(&d);
    if (!is_closed && d.at < d.end && (bl_is_alnum(next) || bl_is_one_of(next, "./\\=%+")))
        return false;
    bl_cursor sign = d;
    (void)bl_take_blanks(&sign);
    if (bl_take_char(&sign, '-') || bl_take_char(&sign, '|') || bl_take_char(&sign, ':') || bl_take_char(&sign, ']'))
        if (sign.at == sign.end || bl_peek(&sign) == ' ')
            d = sign;
    (void)bl_take_char(&d, ' ');
    *c = d;
    return true;
}

static bool take_google_line(bl_front *front, bl_cursor *c, char closing)
{
    bl_cursor d = *c;
    stamp s = {0};
    int64_t time, thread;
    char level;
    if (!take_google(&d, &s, &time, &level))
        return false;
    bl_cursor behind = d;
    if (closing == '\0' && bl_take_blanks(&behind) > 0 && bl_take_digits(&behind, 1, 18, &thread) &&
        bl_peek(&behind) == ' ')
        d = behind;
    if (!take_end(&d, closing))
        return false;
    if (s.month == 0)
        note(front, time, BL_TIME_WALL, true, true);
    else
        note_stamp(front, &s);
    front->line->level = level;
    *c = d;
    return true;
}

static bool take_kernel_line(bl_front *front, bl_cursor *c, bool is_bracketed)
{
    bl_cursor d = *c;
    int64_t time;
    bl_time_kind kind;
    if (!is_bracketed && take_kmsg(&d, &time)) {
        note(front, time, BL_TIME_BOOT, false, false);
        *c = d;
        return true;
    }
    (void)bl_take_blanks(&d);
    bool is_delta = is_bracketed && bl_take_char(&d, '+');
    if (!take_seconds(&d, is_bracketed, &time, &kind))
        return false;
    take_delta(&d);
    if (is_bracketed ? !bl_take_char(&d, ']') : bl_peek(&d) != ' ')
        return false;
    (void)bl_take_char(&d, ' ');
    if (!is_delta)
        note(front, time, kind, kind == BL_TIME_WALL, kind == BL_TIME_WALL);
    *c = d;
    return true;
}

/* A word or letter of levels in front of a stamp: "[I 2023-11-18", "INFO 07-14", "[ERROR] 2026-..". */
static void take_level_before(bl_cursor *c, bool is_bracketed, char *level)
{
    bl_cursor d = *c;
    char letter = bl_peek(&d), found = bl_line_take_level(&d);
    if (found == '\0' && is_bracketed && bl_is_one_of(letter, "IWEFD") && bl_take_char(&d, letter))
        found = letter;
    if (found == '\0')
        return;
    (void)bl_take_char(&d, ':');
    if (bl_take_blanks(&d) == 0)
        return;
    *level = found;
    *c = d;
}

/* A letter or word of levels right behind a stamp tells the level and stays in the text. */
static char level_behind(const bl_cursor *c)
{
    bl_cursor d = *c;
    char letter = bl_peek(&d);
    if (bl_is_one_of(letter, "IWEFD") && c->end - c->at > 1 && c->at[1] == ' ')
        return letter;
    (void)bl_take_char(&d, '[');
    return bl_line_take_level(&d);
}

static bool take_written(bl_front *front, bl_cursor *c, char closing)
{
    bl_cursor d = *c;
    char level = '\0';
    bool has_weekday = false, is_syslog = false;
    take_level_before(&d, closing != '\0', &level);
    stamp s = {0};
    if (!take_dated(&d, &s)) {
        s = (stamp){0};
        if (take_named_month(&d, closing != '\0', &s, &has_weekday)) {
            is_syslog = !has_weekday && closing == '\0';
        } else {
            s = (stamp){0};
            if (!take_clock(&d, true, &s))
                return false;
            take_zone(&d, &s);
        }
    }
    if (!take_end(&d, closing))
        return false;
    note_stamp(front, &s);
    front->has_syslog_stamp |= is_syslog;
    level = level != '\0' ? level : level_behind(&d);
    if (level != '\0')
        front->line->level = level;
    *c = d;
    return true;
}

bool bl_line_take_time(bl_front *front, bl_cursor *c)
{
    bl_cursor d = *c;
    char closing = bl_take_char(&d, '[') ? ']' : bl_take_char(&d, '(') ? ')' : '\0';
    if (!take_google_line(front, &d, closing) && !take_kernel_line(front, &d, closing == ']') &&
        !take_written(front, &d, closing))
        return false;
    *c = d;
    return true;
}
