/* SPDX-License-Identifier: Apache-2.0 */
/* Codes and their texts (from fault.def), and the error that rooms without a context hand up. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct code_row {
    belay_code code;
    const char *name;
    belay_severity severity;
    int status;
    const char *why;
    const char *advice;
} code_row;

static const code_row code_rows[] = {
    {BELAY_OK, "ok", BELAY_SEVERITY_WARNING, 0, "Nothing went wrong.", "Go on."},
#define BELAY_FAULT(enumerator, number, name, severity, status, why, advice)                                           \
    {BELAY_##enumerator, name, BELAY_SEVERITY_##severity, status, why, advice},
#include <belay/fault.def>
#undef BELAY_FAULT
};

static const code_row unknown_row = {BELAY_OK,
                                     "unknown",
                                     BELAY_SEVERITY_BUG,
                                     70,
                                     "The number is no code of Belay's.",
                                     "Compare the versions of library and header."};

static const code_row *row_of(belay_code code)
{
    for (int i = 0; i < BL_COUNT(code_rows); i++)
        if (code_rows[i].code == code)
            return &code_rows[i];
    return &unknown_row;
}

bool bl_error_is_code(belay_code code) { return code != BELAY_OK && row_of(code) != &unknown_row; }

const char *belay_code_name(belay_code code) { return row_of(code)->name; }
const char *belay_code_why(belay_code code) { return row_of(code)->why; }
const char *belay_code_advice(belay_code code) { return row_of(code)->advice; }
belay_severity belay_code_severity(belay_code code) { return row_of(code)->severity; }
int belay_code_status(belay_code code) { return row_of(code)->status; }

/* Marks a text that vsnprintf cut, at a character's start: UTF-8 continuation bytes are 10xxxxxx. */
static void mark_cut(char *text, size_t size, int wanted)
{
    if (wanted < 0 || (size_t)wanted < size || size < 8)
        return;
    size_t end = size - 4;
    while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80)
        end--;
    memcpy(text + end, "...", 4);
}

#undef bl_error_set /* the analyzer's stand-in, see error.h */
belay_code bl_error_set(bl_error *error, belay_code code, const char *format, ...)
{
    if (error == NULL)
        return code;
    error->code = code;
    error->facts[0] = '\0';
    error->advice[0] = '\0';
    va_list args;
    va_start(args, format);
    mark_cut(error->what, sizeof error->what, vsnprintf(error->what, sizeof error->what, format, args));
    va_end(args);
    return code;
}

void bl_error_fact(bl_error *error, const char *format, ...)
{
    if (error == NULL)
        return;
    size_t used = strlen(error->facts);
    if (used + 16 >= sizeof error->facts)
        return;
    size_t room = sizeof error->facts - used - 1; /* one byte for the newline */
    va_list args;
    va_start(args, format);
    mark_cut(error->facts + used, room, vsnprintf(error->facts + used, room, format, args));
    va_end(args);
    used = strlen(error->facts);
    error->facts[used] = '\n';
    error->facts[used + 1] = '\0';
}

void bl_error_advise(bl_error *error, const char *format, ...)
{
    if (error == NULL)
        return;
    va_list args;
    va_start(args, format);
    mark_cut(error->advice, sizeof error->advice, vsnprintf(error->advice, sizeof error->advice, format, args));
    va_end(args);
}

const char *bl_error_advice(const bl_error *error)
{
    return error->advice[0] != '\0' ? error->advice : belay_code_advice(error->code);
}

const char *bl_error_errno(int number, char buffer[128])
{
    /* The POSIX form of strerror_r; base is compiled without _GNU_SOURCE for it. */
    if (strerror_r(number, buffer, 128) != 0)
        snprintf(buffer, 128, "error %d", number);
    return buffer;
}
