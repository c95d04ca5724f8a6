/* SPDX-License-Identifier: Apache-2.0 */
/* The words and JSON forms that this room's files share: how a vocabulary and a set of labels are written into a
 * checkpoint and read back, and headlines that several of them use.  Text read back is believed in nothing: every value
 * is checked, and file.format names the first that is wrong. */
#ifndef BL_DATA_WORDS_H
#define BL_DATA_WORDS_H

#include "base/error.h"
#include "data/tokenizer.h"

#define BL_DATA_MAX_LABELS INT64_C(1000000)

/* mem.exhausted: "no memory for <what> (<count> so far)". */
belay_code bl_data_no_memory(bl_error *error, const char *what, int64_t count);

/* {"version": 1, "kind": "char", "keep_case": false, "tokens": ["e", ...]} on the heap (bl_free), and back into a
 * zeroed vocabulary (after an error: fini). */
BL_MUST_USE belay_code bl_data_vocabulary_to_json(const bl_data_vocabulary *vocabulary, char **out, bl_error *error);
BL_MUST_USE belay_code bl_data_vocabulary_from_json(bl_data_vocabulary *vocabulary, const char *json, int64_t n_bytes,
                                                    bl_error *error);

/* ["de", "en", ...], class 0 first, and back into an empty set (after an error: fini). */
BL_MUST_USE belay_code bl_data_labels_to_json(const bl_data_strings *labels, char **out, bl_error *error);
BL_MUST_USE belay_code bl_data_labels_from_json(bl_data_strings *labels, const char *json, int64_t n_bytes,
                                                bl_error *error);

/* Puts the labels counted into the order of their classes: as numbers when all of them are whole numbers without sign
 * or leading zeros, else in byte order. */
BL_MUST_USE belay_code bl_data_labels_fill(bl_data_strings *labels, const bl_data_strings *counts, bl_error *error);

/* A quoted, escaped text of at most 40 bytes into a buffer, for headlines and facts. */
const char *bl_data_quote(const char *bytes, int64_t n_bytes, char buffer[192]);

/* Adds the fact 'known labels: "de", "en"': at most 20 of them, then their number. */
void bl_data_fact_labels(bl_error *error, const bl_data_strings *labels);

#endif
