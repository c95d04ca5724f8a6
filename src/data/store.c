/* SPDX-License-Identifier: Apache-2.0 */
#include "data/store.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "data/order.h"
#include "data/words.h"

/* What the walks share; all but the store dies with them. */
typedef struct walk {
    bl_data_store *store;
    bl_data_rows *rows;
    const bl_data_plan *plan;
    bl_data_strings labels; /* in the order seen, when they are to be made */
    bl_data_strings tokens;
    bl_data_pieces pieces;
    uint8_t *is_valid; /* by row, NULL without a split */
    int64_t *scratch;  /* ids of one row */
    bool is_done;
    int64_t rows_capacity[3], ids_capacity, n_ids;
    bl_error *error;
} walk;

static const char *name_of(const walk *w)
{
    return w->rows->table != NULL ? bl_table_path(w->rows->table) : "the texts";
}

static bool counts_while_scanning(const walk *w) { return w->plan->make_vocabulary && w->plan->valid_split == 0; }

static belay_code count_row(walk *w, const bl_data_row *row)
{
    const bl_data_vocabulary *v = w->plan->vocabulary;
    if (bl_data_count_tokens(&w->tokens, &w->pieces, v->kind, v->keep_case, row->text, row->n_text, w->error) ==
        BELAY_OK)
        return BELAY_OK;
    return bl_data_rows_blame(w->rows, row, w->error);
}

/* ---- walk 1: places and labels ---------------------------------------------------------------------------------- */

static belay_code unknown_label(const walk *w, const bl_data_row *row)
{
    char quoted[192];
    bl_error_set(w->error, BELAY_DATA_LABEL, "the label %s was not seen in training",
                 bl_data_quote(row->label, row->n_label, quoted));
    if (w->error != NULL)
        bl_data_fact_labels(w->error, w->plan->labels);
    return bl_data_rows_blame(w->rows, row, w->error);
}

static belay_code class_of(walk *w, const bl_data_row *row, int32_t *class)
{
    if (!w->plan->make_labels) {
        int64_t known = bl_data_strings_find(w->plan->labels, row->label, row->n_label);
        *class = (int32_t)known;
        return known >= 0 ? BELAY_OK : unknown_label(w, row);
    }
    int64_t number = bl_data_strings_add(&w->labels, row->label, row->n_label);
    if (number < 0)
        return bl_data_no_memory(w->error, "the labels", w->labels.n);
    if (number >= BL_DATA_MAX_LABELS)
        return bl_error_set(w->error, BELAY_FILE_LIMIT, "%s: more than %" PRId64 " different labels", name_of(w),
                            BL_DATA_MAX_LABELS);
    w->labels.counts[number]++;
    *class = (int32_t)number;
    return BELAY_OK;
}

static belay_code scan_row(walk *w, const bl_data_row *row)
{
    bl_data_store *s = w->store;
    int32_t class = 0;
    TRY(class_of(w, row, &class));
    if (counts_while_scanning(w))
        TRY(count_row(w, row));
    if (!bl_grow(&s->lines, &w->rows_capacity[0], s->n_rows + 1, sizeof *s->lines) ||
        !bl_grow(&s->classes, &w->rows_capacity[1], s->n_rows + 1, sizeof *s->classes) ||
        !bl_grow(&s->offsets, &w->rows_capacity[2], s->n_rows + 1, sizeof *s->offsets))
        return bl_data_no_memory(w->error, "the index of rows", s->n_rows);
    s->lines[s->n_rows] = row->line;
    s->classes[s->n_rows] = class;
    s->offsets[s->n_rows++] = row->offset;
    return BELAY_OK;
}

static belay_code scan(walk *w)
{
    bl_data_row row;
    bool has_row;
    TRY(bl_data_rows_next(w->rows, &row, &has_row, w->error));
    while (has_row) {
        TRY(scan_row(w, &row));
        TRY(bl_data_rows_next(w->rows, &row, &has_row, w->error));
    }
    return w->store->n_rows > 0 ? BELAY_OK : bl_error_set(w->error, BELAY_DATA_EMPTY, "%s: no rows", name_of(w));
}

/* Gives the labels seen their final order, and the rows their classes. */
static belay_code make_labels(walk *w)
{
    char quoted[192];
    bl_data_store *s = w->store;
    if (w->labels.n == 1) {
        int64_t n_bytes;
        const char *bytes = bl_data_strings_get(&w->labels, 0, &n_bytes);
        return bl_error_set(w->error, BELAY_DATA_SINGLE, "%s: every row has the label %s", name_of(w),
                            bl_data_quote(bytes, n_bytes, quoted));
    }
    TRY(bl_data_labels_fill(w->plan->labels, &w->labels, w->error));
    int32_t *final = bl_alloc(w->labels.n, sizeof *final);
    if (final == NULL)
        return bl_data_no_memory(w->error, "the labels", w->labels.n);
    for (int64_t i = 0; i < w->labels.n; i++) {
        int64_t n_bytes;
        const char *bytes = bl_data_strings_get(&w->labels, i, &n_bytes);
        final[i] = (int32_t)bl_data_strings_find(w->plan->labels, bytes, n_bytes);
    }
    for (int64_t i = 0; i < s->n_rows; i++)
        s->classes[i] = final[s->classes[i]];
    bl_free(final);
    return BELAY_OK;
}

/* ---- the validation part ---------------------------------------------------------------------------------------- */

/* A class none of whose rows would be trained on keeps its first row in the training part. */
static belay_code keep_each_class(walk *w, int64_t *n_valid)
{
    const bl_data_store *s = w->store;
    uint8_t *trained = bl_alloc(w->plan->labels->n, sizeof *trained);
    if (trained == NULL)
        return bl_data_no_memory(w->error, "the labels", w->plan->labels->n);
    for (int64_t i = 0; i < s->n_rows; i++)
        if (!w->is_valid[i])
            trained[s->classes[i]] = 1;
    for (int64_t i = 0; i < s->n_rows; i++)
        if (!trained[s->classes[i]]) {
            trained[s->classes[i]] = 1;
            w->is_valid[i] = 0;
            --*n_valid;
        }
    bl_free(trained);
    return BELAY_OK;
}

static belay_code split(walk *w)
{
    bl_data_store *s = w->store;
    double share = w->plan->valid_split;
    int64_t n_valid = bl_max_i64(1, bl_min_i64(llround((double)s->n_rows * share), s->n_rows - 1));
    if (s->n_rows < 2)
        return bl_error_set(w->error, BELAY_DATA_EMPTY, "%s: one row cannot be split into two parts", name_of(w));
    w->is_valid = bl_alloc(s->n_rows, sizeof *w->is_valid);
    if (w->is_valid == NULL)
        return bl_data_no_memory(w->error, "the validation part", s->n_rows);
    bl_data_order_choose(w->is_valid, s->n_rows, n_valid, w->plan->seed);
    TRY(keep_each_class(w, &n_valid));
    if (n_valid == 0) {
        bl_error_set(w->error, BELAY_DATA_EMPTY,
                     "%s: valid_split %g leaves no validation part, as each label keeps one of the %" PRId64
                     " rows for training",
                     name_of(w), share, s->n_rows);
        bl_error_advise(w->error, "Give more rows, a validation file of its own, or a valid_split of 0.");
        return BELAY_DATA_EMPTY;
    }
    s->train = bl_alloc(s->n_rows - n_valid, sizeof *s->train);
    s->valid = bl_alloc(n_valid, sizeof *s->valid);
    if (s->train == NULL || s->valid == NULL)
        return bl_data_no_memory(w->error, "the validation part", s->n_rows);
    for (int64_t i = 0; i < s->n_rows; i++)
        if (w->is_valid[i])
            s->valid[s->n_valid++] = i;
        else
            s->train[s->n_train++] = i;
    return BELAY_OK;
}

/* ---- walks 2 and 3 ---------------------------------------------------------------------------------------------- */

static belay_code changed(const walk *w)
{
    return bl_error_set(w->error, BELAY_FILE_READ, "%s: the file changed while it was read", name_of(w));
}

/* Walks all rows again, which must be the same ones, or until take sets w->is_done. */
static belay_code walk_again(walk *w, belay_code (*take)(walk *, int64_t, const bl_data_row *))
{
    bl_data_row row;
    bool has_row;
    bl_data_rows_rewind(w->rows);
    for (int64_t i = 0; i < w->store->n_rows && !w->is_done; i++) {
        TRY(bl_data_rows_next(w->rows, &row, &has_row, w->error));
        if (!has_row || row.offset != w->store->offsets[i])
            return changed(w);
        TRY(take(w, i, &row));
    }
    if (w->is_done)
        return BELAY_OK;
    TRY(bl_data_rows_next(w->rows, &row, &has_row, w->error));
    return has_row ? changed(w) : BELAY_OK;
}

static belay_code count_training_row(walk *w, int64_t i, const bl_data_row *row)
{
    return w->is_valid != NULL && w->is_valid[i] ? BELAY_OK : count_row(w, row);
}

static belay_code make_vocabulary(walk *w)
{
    char quoted[192];
    bl_data_vocabulary *v = w->plan->vocabulary;
    if (!counts_while_scanning(w))
        TRY(walk_again(w, count_training_row));
    TRY(bl_data_vocabulary_fill(v, &w->tokens, w->plan->min_count, w->plan->max_tokens, w->error));
    if (v->tokens.n == 0) {
        bl_error_set(w->error, BELAY_DATA_EMPTY, "%s: no token stands in the texts at least %" PRId64 " time(s)",
                     name_of(w), w->plan->min_count);
        bl_error_advise(w->error, "Check that the column of the texts is the right one and is not empty.");
        return BELAY_DATA_EMPTY;
    }
    if (v->tokens.n == 1) {
        int64_t n_bytes;
        const char *bytes = bl_data_strings_get(&v->tokens, 0, &n_bytes);
        return bl_error_set(w->error, BELAY_DATA_SINGLE, "%s: the vocabulary has one token only: %s", name_of(w),
                            bl_data_quote(bytes, n_bytes, quoted));
    }
    return BELAY_OK;
}

/* Whether one more row's ids might not fit; texts from memory have no file to read them from again. */
static bool is_too_much(const walk *w)
{
    const bl_data_store *s = w->store;
    return w->rows->table != NULL && w->n_ids > w->plan->keep_bytes / s->id_bytes - s->seq;
}

static void put_ids(bl_data_store *s, int64_t at, const int64_t *ids, int64_t n_ids)
{
    for (int64_t i = 0; i < n_ids; i++)
        if (s->id_bytes == 1)
            ((uint8_t *)s->ids)[at + i] = (uint8_t)ids[i];
        else if (s->id_bytes == 2)
            ((uint16_t *)s->ids)[at + i] = (uint16_t)ids[i];
        else
            ((uint32_t *)s->ids)[at + i] = (uint32_t)ids[i];
}

static belay_code encode_row(walk *w, int64_t i, const bl_data_row *row)
{
    bl_data_store *s = w->store;
    int64_t n_ids, wanted;
    w->is_done = is_too_much(w);
    if (w->is_done)
        return BELAY_OK;
    if (bl_data_encode(s->vocabulary, &w->pieces, row->text, row->n_text, w->scratch, s->seq, &n_ids, w->error) !=
        BELAY_OK)
        return bl_data_rows_blame(w->rows, row, w->error);
    if (!bl_checked_add(w->n_ids, n_ids, &wanted) || !bl_grow(&s->ids, &w->ids_capacity, wanted, s->id_bytes))
        return bl_data_no_memory(w->error, "the ids of the texts", w->n_ids);
    put_ids(s, w->n_ids, w->scratch, n_ids);
    w->n_ids = s->ends[i] = wanted;
    return BELAY_OK;
}

static void drop(void *array_pointer)
{
    void *array;
    memcpy(&array, array_pointer, sizeof array);
    bl_free(array);
    array = NULL;
    memcpy(array_pointer, &array, sizeof array);
}

static belay_code encode(walk *w)
{
    bl_data_store *s = w->store;
    int64_t n_tokens = s->vocabulary->tokens.n + BL_DATA_FIRST_TOKEN;
    s->id_bytes = n_tokens <= UINT8_MAX + 1 ? 1 : n_tokens <= UINT16_MAX + 1 ? 2 : 4;
    s->ends = bl_alloc(s->n_rows, sizeof *s->ends);
    w->scratch = bl_alloc(s->seq, sizeof *w->scratch);
    if (s->ends == NULL || w->scratch == NULL)
        return bl_data_no_memory(w->error, "the ids of the texts", 0);
    TRY(walk_again(w, encode_row));
    if (w->is_done) {
        drop(&s->ids);
        drop(&s->ends);
    } else {
        drop(&s->offsets);
    }
    return BELAY_OK;
}

/* Growing by doubling leaves up to half of an array unused; a block that cannot shrink is left as it is. */
static void shrink(void *array_pointer, int64_t n, int64_t size)
{
    void *array;
    memcpy(&array, array_pointer, sizeof array);
    void *smaller = array != NULL ? bl_realloc(array, n, size) : NULL;
    if (smaller != NULL)
        memcpy(array_pointer, &smaller, sizeof smaller);
}

static belay_code remember_source(walk *w)
{
    bl_data_store *s = w->store;
    if (w->rows->table == NULL)
        return BELAY_OK;
    s->path = bl_strdup(bl_table_path(w->rows->table));
    s->text = bl_strdup(w->rows->columns[0]);
    s->label = bl_strdup(w->rows->columns[1]);
    return s->path != NULL && s->text != NULL && s->label != NULL
               ? BELAY_OK
               : bl_data_no_memory(w->error, "the names of the file and its columns", 0);
}

static belay_code run(walk *w)
{
    bl_data_store *s = w->store;
    TRY(remember_source(w));
    TRY(scan(w));
    if (w->plan->make_labels)
        TRY(make_labels(w));
    if (w->plan->valid_split > 0)
        TRY(split(w));
    if (w->plan->make_vocabulary)
        TRY(make_vocabulary(w));
    TRY(encode(w));
    shrink(&s->lines, s->n_rows, sizeof *s->lines);
    shrink(&s->classes, s->n_rows, sizeof *s->classes);
    shrink(&s->offsets, s->n_rows, sizeof *s->offsets);
    shrink(&s->ids, w->n_ids, s->id_bytes);
    return BELAY_OK;
}

belay_code bl_data_store_fill(bl_data_store *store, bl_data_rows *rows, const bl_data_plan *plan, bl_error *error)
{
    walk w = {.store = store, .rows = rows, .plan = plan, .error = error};
    store->seq = plan->seq;
    store->vocabulary = plan->vocabulary;
    store->labels = plan->labels;
    belay_code code = run(&w);
    bl_data_strings_fini(&w.labels);
    bl_data_strings_fini(&w.tokens);
    bl_data_pieces_fini(&w.pieces);
    bl_free(w.is_valid);
    bl_free(w.scratch);
    return code;
}

void bl_data_store_fini(bl_data_store *store)
{
    bl_free(store->lines);
    bl_free(store->classes);
    bl_free(store->ends);
    bl_free(store->offsets);
    bl_free(store->ids);
    bl_free(store->train);
    bl_free(store->valid);
    bl_free(store->path);
    bl_free(store->text);
    bl_free(store->label);
    *store = (bl_data_store){0};
}
