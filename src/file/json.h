/* SPDX-License-Identifier: Apache-2.0 */
/* jansson, bounded and with memory from base.  Everything of Belay that uses jansson passes bl_json_init first; the
 * functions here do so themselves.  Nesting deeper than jansson's own limit (2048) is refused by it. */
#ifndef BL_FILE_JSON_H
#define BL_FILE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"

#define BL_JSON_CONFIG_LIMIT INT64_C(1048576) /* bytes of a config file */

/* Gives jansson the memory of base, once, from whichever thread comes first; a program that set functions of its own
 * keeps them. */
void bl_json_init(void);

/* Whether an allocation for jansson failed in this thread since the last bl_json_init. */
bool bl_json_out_of_memory(void);

/* Parses bytes; keys must differ.  `path` and `first_line` (from 1) are for the error: file.format
 * "<path>:<line>: column <n>: <reason>"; a NUL within a text is data.text. */
BL_MUST_USE belay_code bl_json_parse(const char *bytes, int64_t n_bytes, const char *path, int64_t first_line,
                                     json_t **out, bl_error *error);

/* Reads a whole file of at most `limit` bytes (0: BL_JSON_CONFIG_LIMIT).  *out is the caller's (json_decref). */
BL_MUST_USE belay_code bl_json_read(const char *path, int64_t limit, json_t **out, bl_error *error);

/* A name of a file as a JSON text, NULL as null: JSON is UTF-8, a name may be anything, so that one that is no UTF-8 stands
 * with its bytes as \xNN.  NULL without memory. */
json_t *bl_json_text(const char *bytes);

/* Replaces `path` atomically: indented by 2, keys in the order in which they were set, a newline at the end. */
BL_MUST_USE belay_code bl_json_write(const char *path, const json_t *value, bl_error *error);

/* Appends the value on one line; without memory the text has `failed`. */
void bl_json_to_text(const json_t *value, bl_text *out);

#endif
