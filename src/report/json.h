/* SPDX-License-Identifier: Apache-2.0 */
/* Strings of JSON, written without a tree: what writes them may have little memory left. */
#ifndef BL_REPORT_JSON_H
#define BL_REPORT_JSON_H

#include "base/text.h"

/* "text" with its quotes; bytes that are not UTF-8 become U+FFFD. */
void bl_report_json_text(const char *text, bl_text *out);
/* "key":"value"; the key is ours and needs no care. */
void bl_report_json_string(const char *key, const char *value, bl_text *out);

#endif
