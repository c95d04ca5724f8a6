/* SPDX-License-Identifier: Apache-2.0 */
#include "report/json.h"

#include <string.h>

void bl_report_json_text(const char *text, bl_text *out)
{
    bl_text_add(out, "\"");
    for (const char *c = text; *c != '\0';) {
        int length = bl_utf8_length(c, (int64_t)strnlen(c, 4));
        unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\')
            bl_text_format(out, "\\%c", byte);
        else if (length == 0)
            bl_text_add(out, "\\ufffd");
        else if (byte < 0x20 || byte == 0x7f)
            bl_text_format(out, "\\u%04x", byte);
        else
            bl_text_add_bytes(out, c, length);
        c += length > 0 ? length : 1;
    }
    bl_text_add(out, "\"");
}

void bl_report_json_string(const char *key, const char *value, bl_text *out)
{
    bl_text_format(out, "\"%s\":", key);
    bl_report_json_text(value, out);
}
