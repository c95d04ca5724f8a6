/* SPDX-License-Identifier: Apache-2.0 */
#include "data/fill.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "data/words.h"
#include "tensor/caller.h"

enum { GUARD_WORDS = 8 };

#define GUARD INT64_C(0x5AFE5AFE5AFE5AFE)

belay_code bl_data_hand_init(bl_data_hand *hand, const belay_dataset *dataset, bl_error *error)
{
    int64_t n_words;
    *hand = (bl_data_hand){.dataset = dataset};
    hand->room = bl_checked_add(dataset->seq, GUARD_WORDS, &n_words) ? bl_alloc(n_words, sizeof *hand->room) : NULL;
    if (hand->room == NULL)
        return bl_data_no_memory(error, "a sample", 0);
    if (dataset->kind->open_cursor == NULL)
        return BELAY_OK;
    return dataset->kind->open_cursor(dataset, &hand->cursor, error);
}

void bl_data_hand_fini(bl_data_hand *hand)
{
    if (hand->cursor != NULL)
        hand->dataset->kind->close_cursor(hand->cursor);
    bl_free(hand->room);
    *hand = (bl_data_hand){0};
}

belay_code bl_data_batch_init(bl_data_batch *batch, int64_t n_samples, int64_t seq, bl_error *error)
{
    const int64_t sizes[] = {n_samples, seq, (int64_t)sizeof *batch->ids};
    int64_t n_bytes;
    if (!bl_checked_product(sizes, 3, &n_bytes))
        return bl_error_set(error, BELAY_SIZE_OVERFLOW,
                            "a batch of %" PRId64 " samples of %" PRId64 " ids is too large", n_samples, seq);
    batch->ids = bl_alloc(n_bytes, 1);
    batch->labels = bl_alloc(n_samples, sizeof *batch->labels);
    batch->indices = bl_alloc(n_samples, sizeof *batch->indices);
    batch->lines = bl_alloc(n_samples, sizeof *batch->lines);
    batch->files = bl_alloc(n_samples, sizeof *batch->files);
    if (batch->ids == NULL || batch->labels == NULL || batch->indices == NULL || batch->lines == NULL ||
        batch->files == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED,
                            "no memory for a batch of %" PRId64 " samples of %" PRId64 " ids", n_samples, seq);
    return BELAY_OK;
}

void bl_data_batch_fini(bl_data_batch *batch)
{
    bl_free(batch->ids);
    bl_free(batch->labels);
    bl_free(batch->indices);
    bl_free(batch->lines);
    bl_free(batch->files);
    bl_text_fini(&batch->names);
    *batch = (bl_data_batch){0};
}

/* Keeps where a sample comes from.  Neighbours mostly come from one file, whose name is then kept once. */
static bool keep_origin(bl_data_batch *batch, int64_t row, const belay_sample *sample)
{
    batch->lines[row] = bl_max_i64(sample->line, 0);
    batch->files[row] = -1;
    if (sample->file == NULL)
        return true;
    int64_t before = row > 0 ? batch->files[row - 1] : -1;
    if (before >= 0 && strcmp(bl_text_get(&batch->names) + before, sample->file) == 0) {
        batch->files[row] = before;
        return true;
    }
    batch->files[row] = batch->names.n_bytes;
    bl_text_add_bytes(&batch->names, sample->file, (int64_t)strlen(sample->file) + 1);
    if (batch->names.failed)
        batch->files[row] = -1;
    return !batch->names.failed;
}

static belay_code check_sample(const belay_sample *sample, const int64_t *room, int64_t seq, bl_error *error)
{
    for (int i = 0; i < GUARD_WORDS; i++)
        if (room[seq + i] != GUARD)
            return bl_error_set(error, BELAY_DATA_WORKER, "it wrote past the room for %" PRId64 " ids", seq);
    if (sample->n_ids < 0 || sample->n_ids > seq)
        return bl_error_set(error, BELAY_DATA_WORKER, "it gave %" PRId64 " ids, the room is %" PRId64, sample->n_ids,
                            seq);
    if (sample->ids == NULL && sample->n_ids > 0)
        return bl_error_set(error, BELAY_DATA_WORKER, "it gave %" PRId64 " ids at NULL", sample->n_ids);
    return BELAY_OK;
}

/* `inner` is what the dataset said.  Where the sample comes from is in the origins, and when in the report.  Memory that
 * ended is no fault of the sample. */
static void refuse(bl_data_batch *batch, int64_t row, const bl_error *inner)
{
    belay_code code = inner->code == BELAY_MEM_EXHAUSTED ? BELAY_MEM_EXHAUSTED : BELAY_DATA_WORKER;
    batch->bad_row = row;
    if (inner->code == BELAY_PLACE_WORKER && batch->site != 0) {
        batch->code = bl_error_set(&batch->error, BELAY_PLACE_WORKER, "%s, in the get of sample %" PRId64, inner->what,
                                   batch->indices[row]);
        return;
    }
    batch->code = bl_error_set(&batch->error, code, "sample %" PRId64 " cannot be had", batch->indices[row]);
    if (inner->code == code)
        bl_error_fact(&batch->error, "the dataset: %s", inner->what);
    else
        bl_error_fact(&batch->error, "the dataset: %s (%s)", inner->what, belay_code_name(inner->code));
    if (inner->facts[0] != '\0')
        bl_error_fact(&batch->error, "%.*s", (int)strlen(inner->facts) - 1, inner->facts);
}

/* What get gives after a call of Belay that was refused is not the sample. */
static belay_code check_caller(bl_data_batch *batch, bl_error *error)
{
    if (bl_caller_here == NULL || bl_caller_here->site == 0)
        return BELAY_OK;
    batch->site = bl_caller_here->site;
    bl_caller_here->site = 0;
    bl_error_set(error, BELAY_PLACE_WORKER, "worker %" PRId64 " of the loader used a context", bl_caller_here->number);
    return BELAY_PLACE_WORKER;
}

static belay_code fill_row(bl_data_batch *batch, bl_data_hand *hand, int64_t row, belay_sample *sample, bl_error *inner)
{
    int64_t seq = hand->dataset->seq, *ids = batch->ids + row * seq;
    memset(hand->room, 0, (size_t)seq * sizeof *hand->room);
    for (int i = 0; i < GUARD_WORDS; i++)
        hand->room[seq + i] = GUARD;
    belay_code code = hand->dataset->kind->get(hand->dataset, hand->cursor, batch->indices[row], sample, inner);
    TRY(check_caller(batch, inner));
    TRY(code);
    TRY(check_sample(sample, hand->room, seq, inner));
    memset(ids, 0, (size_t)seq * sizeof *ids);
    if (sample->n_ids > 0)
        memcpy(ids, sample->ids, (size_t)sample->n_ids * sizeof *ids);
    batch->labels[row] = sample->label;
    return BELAY_OK;
}

/* Rows that were not asked for any more still have their numbers. */
static void fill_origins(bl_data_batch *batch, int64_t from, const int64_t *order, int64_t first)
{
    for (int64_t row = from; row < batch->n_samples; row++) {
        batch->indices[row] = order != NULL ? order[first + row] : first + row;
        batch->lines[row] = 0;
        batch->files[row] = -1;
    }
}

void bl_data_batch_fill(bl_data_batch *batch, bl_data_hand *hand, const int64_t *order, int64_t first,
                        int64_t n_samples)
{
    bl_error inner;
    batch->code = BELAY_OK;
    batch->site = 0;
    batch->n_samples = n_samples;
    bl_text_clear(&batch->names);
    for (int64_t row = 0; row < n_samples; row++) {
        belay_sample sample = {.room = hand->room, .ids = hand->room, .capacity = hand->dataset->seq};
        batch->indices[row] = order != NULL ? order[first + row] : first + row;
        belay_code code = fill_row(batch, hand, row, &sample, &inner);
        bool kept = keep_origin(batch, row, &sample);
        if (code == BELAY_OK && !kept)
            code = bl_data_no_memory(&inner, "the name of the sample's file", 0);
        if (code != BELAY_OK) {
            refuse(batch, row, &inner);
            fill_origins(batch, row + 1, order, first);
            return;
        }
    }
}
