/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"

static bool reserve(bl_text *text, int64_t more)
{
    int64_t wanted;
    if (text->failed || !bl_checked_add(text->n_bytes, more, &wanted) || !bl_checked_add(wanted, 1, &wanted) ||
        !bl_grow(&text->bytes, &text->capacity, wanted, 1))
        text->failed = true;
    return !text->failed;
}

void bl_text_add_bytes(bl_text *text, const char *bytes, int64_t n_bytes)
{
    if (n_bytes <= 0 || !reserve(text, n_bytes))
        return;
    memcpy(text->bytes + text->n_bytes, bytes, (size_t)n_bytes);
    text->n_bytes += n_bytes;
    text->bytes[text->n_bytes] = '\0';
}

void bl_text_add(bl_text *text, const char *string) { bl_text_add_bytes(text, string, (int64_t)strlen(string)); }

void bl_text_format(bl_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n > 0 && reserve(text, n)) {
        vsnprintf(text->bytes + text->n_bytes, (size_t)n + 1, format, again);
        text->n_bytes += n;
    }
    va_end(again);
}

int bl_utf8_length(const char *bytes, int64_t n_bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    if (n_bytes < 1)
        return 0;
    if (b[0] < 0x80)
        return 1;
    int length = b[0] >= 0xF0 ? 4 : b[0] >= 0xE0 ? 3 : 2;
    if (b[0] < 0xC2 || b[0] > 0xF4 || n_bytes < length)
        return 0;
    for (int i = 1; i < length; i++)
        if ((b[i] & 0xC0) != 0x80)
            return 0;
    bool overlong = (b[0] == 0xE0 && b[1] < 0xA0) || (b[0] == 0xF0 && b[1] < 0x90);
    bool surrogate = b[0] == 0xED && b[1] >= 0xA0;
    bool too_high = b[0] == 0xF4 && b[1] >= 0x90;
    return overlong || surrogate || too_high ? 0 : length;
}

void bl_text_add_escaped(bl_text *text, const char *bytes, int64_t n_bytes, int64_t limit)
{
    int64_t end = bl_min_i64(n_bytes, limit);
    for (int64_t i = 0; i < end;) {
        int length = bl_utf8_length(bytes + i, n_bytes - i);
        if (length > end - i)
            break; /* the limit lies inside of a character */
        unsigned char c = (unsigned char)bytes[i];
        bool c1_control = length == 2 && c == 0xC2 && (unsigned char)bytes[i + 1] < 0xA0;
        if (length == 0 || c < 0x20 || c == 0x7F || c1_control) {
            bl_text_format(text, "\\x%02X", c);
            if (c1_control)
                bl_text_format(text, "\\x%02X", (unsigned char)bytes[i + 1]);
            i += c1_control ? 2 : 1;
        } else {
            bl_text_add_bytes(text, bytes + i, length);
            i += length;
        }
    }
    if (end < n_bytes)
        bl_text_add(text, "...");
}

const char *bl_text_get(const bl_text *text) { return text->bytes != NULL ? text->bytes : ""; }

void bl_text_clear(bl_text *text)
{
    text->n_bytes = 0;
    text->failed = false;
    if (text->bytes != NULL)
        text->bytes[0] = '\0';
}

void bl_text_fini(bl_text *text)
{
    bl_free(text->bytes);
    *text = (bl_text){0};
}
