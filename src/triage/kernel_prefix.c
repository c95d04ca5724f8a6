/* SPDX-License-Identifier: Apache-2.0 */
/* What dmesg, syslog, the journal and /dev/kmsg put in front of a kernel line.  A prefix is taken off only when the whole
 * of it has its shape, so that prose is never shortened until it looks like a kernel line. */
#include "triage/kernel_parts.h"

enum { most_prefixes = 12, longest_bracket = 48, longest_host = 64 };

static bool is_one_of(const char *at, const char *names)
{
    for (; *names != '\0'; names += 3)
        if (memcmp(at, names, 3) == 0)
            return true;
    return false;
}

static bool take_name_of(bl_cursor *c, const char *names)
{
    if (bl_cursor_left(c) < 3 || !is_one_of(c->at, names))
        return false;
    c->at += 3;
    return true;
}

static bool take_weekday(bl_cursor *c) { return take_name_of(c, "SunMonTueWedThuFriSat"); }

static bool take_month(bl_cursor *c) { return take_name_of(c, "JanFebMarAprMayJunJulAugSepOctNovDec"); }

static bool take_digits(bl_cursor *c, int least, int most)
{
    int n = 0;
    while (n < most && c->at + n < c->end && bl_byte_is_digit(c->at[n]))
        n++;
    if (n < least)
        return false;
    c->at += n;
    return true;
}

static bool take_byte(bl_cursor *c, const char *any_of)
{
    if (c->at >= c->end || *c->at == '\0' || strchr(any_of, *c->at) == NULL)
        return false;
    c->at++;
    return true;
}

/* hh:mm:ss and a fraction */
static bool take_clock(bl_cursor *c)
{
    if (!take_digits(c, 2, 2) || !bl_cursor_take(c, ":") || !take_digits(c, 2, 2) || !bl_cursor_take(c, ":") ||
        !take_digits(c, 2, 2))
        return false;
    bl_cursor fraction = *c;
    if (take_byte(&fraction, ".,") && take_digits(&fraction, 1, 9))
        *c = fraction;
    return true;
}

/* "[ 8123.400112]", "[Sun Jun  9 11:20:41 2024]", and the caller's "[ T1234]" */
static bool strip_bracket(bl_cursor *c)
{
    bl_cursor in = *c;
    if (!bl_cursor_take(&in, "["))
        return false;
    bl_cursor_skip_blanks(&in);
    bool is_caller = in.end - in.at >= 2 && (*in.at == 'T' || *in.at == 'C') && bl_byte_is_digit(in.at[1]);
    if (in.at >= in.end || !(bl_byte_is_digit(*in.at) || is_caller || take_weekday(&in)))
        return false;
    for (const char *begin = in.at; in.at < in.end && in.at - begin < longest_bracket; in.at++) {
        if (*in.at == ']') {
            c->at = in.at + 1;
            return true;
        }
        if (!bl_byte_is_digit(*in.at) && !bl_byte_is_letter(*in.at) && strchr(" .:,+-/", *in.at) == NULL)
            return false;
    }
    return false;
}

static bool strip_priority(bl_cursor *c)
{
    bl_cursor in = *c;
    if (!bl_cursor_take(&in, "<") || !take_digits(&in, 1, 4) || !bl_cursor_take(&in, ">"))
        return false;
    *c = in;
    return true;
}

/* priority,sequence,microseconds,flags; */
static bool strip_kmsg(bl_cursor *c)
{
    bl_cursor in = *c;
    if (!take_digits(&in, 1, 4) || !bl_cursor_take(&in, ",") || !take_digits(&in, 1, 20) || !bl_cursor_take(&in, ",") ||
        !take_digits(&in, 1, 20) || !bl_cursor_take(&in, ","))
        return false;
    for (const char *begin = in.at; in.at < in.end && in.at - begin < longest_bracket; in.at++)
        if (*in.at == ';') {
            c->at = in.at + 1;
            return true;
        }
    return false;
}

static bool strip_iso_date(bl_cursor *c)
{
    bl_cursor in = *c;
    if (!take_digits(&in, 4, 4) || !bl_cursor_take(&in, "-") || !take_digits(&in, 2, 2) || !bl_cursor_take(&in, "-") ||
        !take_digits(&in, 2, 2) || !take_byte(&in, "T ") || !take_clock(&in))
        return false;
    bl_cursor zone = in;
    if (bl_cursor_take(&zone, "Z") || (take_byte(&zone, "+-") && take_digits(&zone, 2, 2) &&
                                       (bl_cursor_take(&zone, ":") || true) && take_digits(&zone, 2, 2)))
        in = zone;
    *c = in;
    return true;
}

/* "Jun  9 11:20:41", with or without a year before or behind the clock */
static bool strip_syslog_date(bl_cursor *c)
{
    bl_cursor in = *c;
    if (!take_month(&in) || !bl_cursor_take(&in, " "))
        return false;
    bl_cursor_skip_blanks(&in);
    if (!take_digits(&in, 1, 2) || !bl_cursor_take(&in, " "))
        return false;
    bl_cursor year = in;
    if (take_digits(&year, 4, 4) && bl_cursor_take(&year, " "))
        in = year;
    if (!take_clock(&in))
        return false;
    *c = in;
    return true;
}

/* "kern  :err   : " */
static bool strip_facility(bl_cursor *c)
{
    bl_cursor in = *c;
    if (!bl_cursor_take(&in, "kern") && !bl_cursor_take(&in, "user") && !bl_cursor_take(&in, "daemon"))
        return false;
    bl_cursor_skip_blanks(&in);
    if (!bl_cursor_take(&in, ":"))
        return false;
    while (in.at < in.end && bl_byte_is_letter(*in.at))
        in.at++;
    bl_cursor_skip_blanks(&in);
    if (!bl_cursor_take(&in, ":"))
        return false;
    *c = in;
    return true;
}

/* "kernel: ", "kernel[0]: " */
static bool strip_program(bl_cursor *c)
{
    bl_cursor in = *c;
    if (!bl_cursor_take(&in, "kernel"))
        return false;
    bl_cursor number = in;
    if (bl_cursor_take(&number, "[") && take_digits(&number, 1, 10) && bl_cursor_take(&number, "]"))
        in = number;
    if (!bl_cursor_take(&in, ":"))
        return false;
    *c = in;
    return true;
}

/* "host kernel: " */
static bool strip_host(bl_cursor *c, bl_kernel_text *host)
{
    bl_cursor in = *c;
    while (in.at < in.end && in.at - c->at < longest_host &&
           (bl_byte_is_word(*in.at) || *in.at == '-' || *in.at == '.'))
        in.at++;
    bl_kernel_text name = bl_kernel_text_of(c->at, in.at);
    if (name.n_bytes == 0 || !bl_cursor_take(&in, " ") || !strip_program(&in))
        return false;
    *host = name;
    *c = in;
    return true;
}

void bl_kernel_strip(bl_cursor *c, bl_kernel_text *host)
{
    for (int i = 0; i < most_prefixes; i++) {
        bl_cursor_skip_blanks(c);
        if (!strip_bracket(c) && !strip_priority(c) && !strip_kmsg(c) && !strip_iso_date(c) && !strip_syslog_date(c) &&
            !strip_facility(c) && !strip_program(c) && !strip_host(c, host))
            return;
    }
}

bl_kernel_text bl_kernel_host(const char *raw, int64_t n_bytes)
{
    bl_cursor c = {raw, raw + n_bytes};
    bl_kernel_text host = {0};
    bl_kernel_strip(&c, &host);
    return host;
}
