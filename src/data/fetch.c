/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a filled store, for one thread with a cursor of its own: out of the ids kept, or out of the file again. */
#include <inttypes.h>
#include <stddef.h>

#include "data/store.h"

belay_code bl_data_cursor_init(bl_data_cursor *cursor, const bl_data_store *store, bl_error *error)
{
    *cursor = (bl_data_cursor){0};
    if (store->ends != NULL)
        return BELAY_OK;
    return bl_data_rows_open(&cursor->rows, store->path, store->text, store->label, error);
}

void bl_data_cursor_fini(bl_data_cursor *cursor)
{
    bl_data_rows_close(&cursor->rows);
    bl_data_pieces_fini(&cursor->pieces);
}

static void copy_ids(const bl_data_store *store, int64_t start, int64_t n_ids, int64_t *ids)
{
    for (int64_t i = 0; i < n_ids; i++)
        if (store->id_bytes == 1)
            ids[i] = ((const uint8_t *)store->ids)[start + i];
        else if (store->id_bytes == 2)
            ids[i] = ((const uint16_t *)store->ids)[start + i];
        else
            ids[i] = ((const uint32_t *)store->ids)[start + i];
}

static belay_code get_from_file(const bl_data_store *store, bl_data_cursor *cursor, int64_t row, int64_t *ids,
                                int64_t *n_ids, bl_error *error)
{
    bl_data_row now;
    bool has_row;
    bl_table_seek(cursor->rows.table, store->offsets[row], store->lines[row]);
    TRY(bl_data_rows_next(&cursor->rows, &now, &has_row, error));
    if (!has_row || bl_data_strings_find(store->labels, now.label, now.n_label) != store->classes[row])
        return bl_error_set(error, BELAY_FILE_READ, "%s:%" PRId64 ": the file changed since it was opened", store->path,
                            store->lines[row]);
    return bl_data_encode(store->vocabulary, &cursor->pieces, now.text, now.n_text, ids, store->seq, n_ids, error);
}

belay_code bl_data_store_get(const bl_data_store *store, bl_data_cursor *cursor, int64_t row, int64_t *ids,
                             int64_t *n_ids, bl_error *error)
{
    if (store->ends == NULL)
        return get_from_file(store, cursor, row, ids, n_ids, error);
    int64_t start = row > 0 ? store->ends[row - 1] : 0;
    *n_ids = store->ends[row] - start;
    copy_ids(store, start, *n_ids, ids);
    return BELAY_OK;
}
