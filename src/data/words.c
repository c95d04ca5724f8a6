/* SPDX-License-Identifier: Apache-2.0 */
#include "data/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/text.h"
#include "file/json.h"

#define FORMAT_VERSION  1
#define MAX_LABEL_FACTS 20

static const char *const kind_names[] = {[BELAY_TOKENS_CHAR] = "char", [BELAY_TOKENS_WORD] = "word"};

belay_code bl_data_no_memory(bl_error *error, const char *what, int64_t count)
{
    return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for %s (%" PRId64 " so far)", what, count);
}

const char *bl_data_quote(const char *bytes, int64_t n_bytes, char buffer[192])
{
    bl_text text = {0};
    bl_text_add_escaped(&text, bytes, n_bytes, 40);
    snprintf(buffer, 192, "\"%s\"", bl_text_get(&text));
    bl_text_fini(&text);
    return buffer;
}

void bl_data_fact_labels(bl_error *error, const bl_data_strings *labels)
{
    bl_text text = {0};
    char quoted[192];
    for (int64_t i = 0; i < bl_min_i64(labels->n, MAX_LABEL_FACTS); i++) {
        int64_t n_bytes;
        const char *bytes = bl_data_strings_get(labels, i, &n_bytes);
        bl_text_format(&text, "%s%s", i > 0 ? ", " : "", bl_data_quote(bytes, n_bytes, quoted));
    }
    if (labels->n > MAX_LABEL_FACTS)
        bl_text_format(&text, ", ... (%" PRId64 " in all)", labels->n);
    bl_error_fact(error, "known labels: %s", bl_text_get(&text));
    bl_text_fini(&text);
}

/* ---- into JSON -------------------------------------------------------------------------------------------------- */

static json_t *array_of(const bl_data_strings *set)
{
    json_t *array = json_array();
    for (int64_t i = 0; array != NULL && i < set->n; i++) {
        int64_t n_bytes;
        const char *bytes = bl_data_strings_get(set, i, &n_bytes);
        if (json_array_append_new(array, json_stringn(bytes, (size_t)n_bytes)) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

/* Takes the value, which may be NULL.  The text is copied, because jansson's memory is freed by jansson. */
static belay_code dump(json_t *value, const char *what, char **out, bl_error *error)
{
    size_t n_bytes = value != NULL ? json_dumpb(value, NULL, 0, JSON_COMPACT) : 0;
    *out = n_bytes > 0 ? bl_alloc((int64_t)n_bytes + 1, 1) : NULL;
    bool written = *out != NULL && json_dumpb(value, *out, n_bytes, JSON_COMPACT) == n_bytes;
    json_decref(value);
    if (written)
        return BELAY_OK;
    bl_free(*out);
    *out = NULL;
    return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the JSON text of %s", what);
}

belay_code bl_data_vocabulary_to_json(const bl_data_vocabulary *vocabulary, char **out, bl_error *error)
{
    bl_json_init();
    json_t *object = json_object();
    bool made = object != NULL && json_object_set_new(object, "version", json_integer(FORMAT_VERSION)) == 0 &&
                json_object_set_new(object, "kind", json_string(kind_names[vocabulary->kind])) == 0 &&
                json_object_set_new(object, "keep_case", json_boolean(vocabulary->keep_case)) == 0 &&
                json_object_set_new(object, "tokens", array_of(&vocabulary->tokens)) == 0;
    if (!made) {
        json_decref(object);
        object = NULL;
    }
    return dump(object, "the tokenizer", out, error);
}

belay_code bl_data_labels_to_json(const bl_data_strings *labels, char **out, bl_error *error)
{
    bl_json_init();
    return dump(array_of(labels), "the labels", out, error);
}

/* ---- and back --------------------------------------------------------------------------------------------------- */

static belay_code wrong(bl_error *error, const char *where, const char *what)
{
    return bl_error_set(error, BELAY_FILE_FORMAT, "%s: %s", where, what);
}

static belay_code add_entry(bl_data_strings *set, const json_t *entry, int64_t i, const char *where, bl_error *error)
{
    char what[96];
    if (!json_is_string(entry) || json_string_length(entry) == 0) {
        snprintf(what, sizeof what, "entry %" PRId64 " is not a text of at least one byte", i);
        return wrong(error, where, what);
    }
    int64_t n_bytes = (int64_t)json_string_length(entry);
    int64_t known = bl_data_strings_find(set, json_string_value(entry), n_bytes);
    if (known >= 0) {
        snprintf(what, sizeof what, "entry %" PRId64 " is the same as entry %" PRId64, i, known);
        return wrong(error, where, what);
    }
    return bl_data_strings_add(set, json_string_value(entry), n_bytes) >= 0
               ? BELAY_OK
               : bl_data_no_memory(error, "entries read back", set->n);
}

static belay_code fill_set(bl_data_strings *set, const json_t *array, int64_t limit, const char *where, bl_error *error)
{
    char what[96];
    if (!json_is_array(array))
        return wrong(error, where, "is not an array of texts");
    if ((int64_t)json_array_size(array) > limit) {
        snprintf(what, sizeof what, "has %zu entries, the limit is %" PRId64, json_array_size(array), limit);
        return wrong(error, where, what);
    }
    for (size_t i = 0; i < json_array_size(array); i++)
        TRY(add_entry(set, json_array_get(array, i), (int64_t)i, where, error));
    return BELAY_OK;
}

static belay_code fill_vocabulary(bl_data_vocabulary *vocabulary, const json_t *object, bl_error *error)
{
    static const char where[] = "the tokenizer's JSON";
    const json_t *version = json_object_get(object, "version"), *kind = json_object_get(object, "kind");
    const json_t *keep_case = json_object_get(object, "keep_case");
    if (!json_is_object(object))
        return wrong(error, where, "is not an object");
    if (!json_is_integer(version) || json_integer_value(version) != FORMAT_VERSION)
        return wrong(error, where, "version is not 1");
    int found = -1;
    for (int i = 0; i < BL_COUNT(kind_names); i++)
        if (json_is_string(kind) && strcmp(json_string_value(kind), kind_names[i]) == 0)
            found = i;
    if (found < 0)
        return wrong(error, where, "kind is neither \"char\" nor \"word\"");
    if (!json_is_boolean(keep_case))
        return wrong(error, where, "keep_case is neither true nor false");
    vocabulary->kind = (belay_tokens)found;
    vocabulary->keep_case = json_is_true(keep_case);
    return fill_set(&vocabulary->tokens, json_object_get(object, "tokens"), INT32_MAX, "the tokenizer's JSON: tokens",
                    error);
}

belay_code bl_data_vocabulary_from_json(bl_data_vocabulary *vocabulary, const char *json, int64_t n_bytes,
                                        bl_error *error)
{
    json_t *object;
    TRY(bl_json_parse(json, n_bytes, "the tokenizer's JSON", 1, &object, error));
    belay_code code = fill_vocabulary(vocabulary, object, error);
    json_decref(object);
    return code;
}

belay_code bl_data_labels_from_json(bl_data_strings *labels, const char *json, int64_t n_bytes, bl_error *error)
{
    json_t *array;
    TRY(bl_json_parse(json, n_bytes, "the labels' JSON", 1, &array, error));
    belay_code code = fill_set(labels, array, BL_DATA_MAX_LABELS, "the labels' JSON", error);
    if (code == BELAY_OK && labels->n == 0)
        code = wrong(error, "the labels' JSON", "has no entries");
    json_decref(array);
    return code;
}

/* ---- the order of the classes ----------------------------------------------------------------------------------- */

typedef struct label {
    const char *bytes;
    int64_t n_bytes;
} label;

static bool is_number(const label *l)
{
    for (int64_t i = 0; i < l->n_bytes; i++)
        if (l->bytes[i] < '0' || l->bytes[i] > '9')
            return false;
    return l->n_bytes > 0 && (l->bytes[0] != '0' || l->n_bytes == 1);
}

static int by_bytes(const void *a, const void *b)
{
    const label *x = a, *y = b;
    return bl_data_strings_compare(x->bytes, x->n_bytes, y->bytes, y->n_bytes);
}

/* Of two whole numbers without leading zeros the longer is the larger. */
static int by_value(const void *a, const void *b)
{
    const label *x = a, *y = b;
    return x->n_bytes != y->n_bytes ? (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes) : by_bytes(a, b);
}

belay_code bl_data_labels_fill(bl_data_strings *labels, const bl_data_strings *counts, bl_error *error)
{
    label *all = bl_alloc(counts->n, sizeof *all);
    bool numbers = true, fits = all != NULL;
    for (int64_t i = 0; fits && i < counts->n; i++) {
        all[i].bytes = bl_data_strings_get(counts, i, &all[i].n_bytes);
        numbers = numbers && is_number(&all[i]);
    }
    if (fits)
        qsort(all, (size_t)counts->n, sizeof *all, numbers ? by_value : by_bytes);
    for (int64_t i = 0; fits && i < counts->n; i++)
        fits = bl_data_strings_add(labels, all[i].bytes, all[i].n_bytes) >= 0;
    bl_free(all);
    return fits ? BELAY_OK : bl_data_no_memory(error, "the labels", counts->n);
}
