/* SPDX-License-Identifier: Apache-2.0 */
#include "data/vocabulary.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "data/words.h"
#include "tensor/context.h"

static belay_tokenizer nil_tokenizer;
static belay_labels nil_labels;

belay_tokenizer *bl_data_tokenizer_nil(void) { return &nil_tokenizer; }
belay_labels *bl_data_labels_nil(void) { return &nil_labels; }

/* ---- tokenizers ------------------------------------------------------------------------------------------------- */

static void fini_tokenizer(void *object)
{
    belay_tokenizer *tokenizer = object;
    bl_data_vocabulary_fini(&tokenizer->vocabulary);
    bl_data_pieces_fini(&tokenizer->pieces);
    bl_free(tokenizer->json);
}

static const bl_data_class tokenizer_class = {"a tokenizer", "freed", sizeof(belay_tokenizer), fini_tokenizer};

belay_tokenizer *bl_data_tokenizer_new(belay_context *ctx, belay_tokens kind, bool keep_case, bl_error *error)
{
    belay_tokenizer *tokenizer = bl_data_object_new(ctx, &tokenizer_class, error);
    if (tokenizer == NULL)
        return NULL;
    tokenizer->vocabulary.kind = kind;
    tokenizer->vocabulary.keep_case = keep_case;
    return tokenizer;
}

belay_tokenizer *belay_tokenizer_from_json(belay_context *ctx, const char *json)
{
    BL_ENTER(ctx);
    bl_error error;
    const char *text = json != NULL ? json : "";
    if (!bl_data_has_context(ctx))
        return &nil_tokenizer;
    belay_tokenizer *tokenizer = bl_data_tokenizer_new(ctx, BELAY_TOKENS_CHAR, false, &error);
    if (tokenizer != NULL &&
        bl_data_vocabulary_from_json(&tokenizer->vocabulary, text, (int64_t)strlen(text), &error) == BELAY_OK)
        return tokenizer;
    bl_data_raise(ctx, &error);
    belay_tokenizer_free(tokenizer);
    return &nil_tokenizer;
}

const char *belay_tokenizer_to_json(belay_tokenizer *tokenizer)
{
    bl_error error;
    belay_context *ctx = BL_DATA_USE(tokenizer);
    BL_ENTER(ctx);
    if (ctx == NULL)
        return NULL;
    if (tokenizer->json == NULL &&
        bl_data_vocabulary_to_json(&tokenizer->vocabulary, &tokenizer->json, &error) != BELAY_OK)
        bl_data_raise(tokenizer->object.ctx, &error);
    return tokenizer->json;
}

int64_t belay_tokenizer_n_tokens(const belay_tokenizer *tokenizer)
{
    return BL_ASK(BL_DATA_USE(tokenizer)) ? tokenizer->vocabulary.tokens.n + BL_DATA_FIRST_TOKEN : 0;
}

const char *belay_tokenizer_token(const belay_tokenizer *tokenizer, int64_t id)
{
    belay_context *ctx = BL_DATA_USE(tokenizer);
    BL_ENTER(ctx);
    if (ctx == NULL || id < BL_DATA_FIRST_TOKEN || id >= belay_tokenizer_n_tokens(tokenizer))
        return NULL;
    return bl_data_strings_get(&tokenizer->vocabulary.tokens, id - BL_DATA_FIRST_TOKEN, NULL);
}

static belay_code encode(belay_tokenizer *tokenizer, const char *text, int64_t n_bytes, int64_t *ids, int64_t seq,
                         bl_error *error)
{
    int64_t n_ids = 0;
    if (n_bytes < 0 || seq < 0 || (text == NULL && n_bytes > 0) || ids == NULL)
        return bl_error_set(error, BELAY_CONF_VALUE,
                            "encode: %" PRId64 " bytes of text%s into %" PRId64 " ids%s cannot be", n_bytes,
                            text == NULL ? " at NULL" : "", seq, ids == NULL ? " at NULL" : "");
    TRY(bl_data_encode(&tokenizer->vocabulary, &tokenizer->pieces, text, n_bytes, ids, seq, &n_ids, error));
    for (int64_t i = n_ids; i < seq; i++)
        ids[i] = BL_DATA_ID_PADDING;
    return BELAY_OK;
}

belay_code belay_tokenizer_encode(belay_tokenizer *tokenizer, const char *text, int64_t n_bytes, int64_t *ids,
                                  int64_t seq)
{
    bl_error error;
    belay_context *ctx = BL_DATA_USE(tokenizer);
    BL_ENTER(ctx);
    if (ctx == NULL)
        return bl_caller_code(bl_data_has_ended(tokenizer) ? BELAY_LIFE_STALE : BELAY_CONF_ORDER);
    if (encode(tokenizer, text, n_bytes, ids, seq, &error) == BELAY_OK)
        return BELAY_OK;
    return bl_data_raise(tokenizer->object.ctx, &error);
}

void belay_tokenizer_free(belay_tokenizer *tokenizer)
{
    if (BL_ASK(BL_DATA_USE(tokenizer)))
        bl_data_object_close(tokenizer);
}

/* ---- labels ----------------------------------------------------------------------------------------------------- */

static void fini_labels(void *object)
{
    belay_labels *labels = object;
    bl_data_strings_fini(&labels->set);
    bl_free(labels->json);
}

static const bl_data_class labels_class = {"a list of labels", "freed", sizeof(belay_labels), fini_labels};

belay_labels *bl_data_labels_new(belay_context *ctx, bl_error *error)
{
    return bl_data_object_new(ctx, &labels_class, error);
}

belay_labels *belay_labels_from_json(belay_context *ctx, const char *json)
{
    BL_ENTER(ctx);
    bl_error error;
    const char *text = json != NULL ? json : "";
    if (!bl_data_has_context(ctx))
        return &nil_labels;
    belay_labels *labels = bl_data_labels_new(ctx, &error);
    if (labels != NULL && bl_data_labels_from_json(&labels->set, text, (int64_t)strlen(text), &error) == BELAY_OK)
        return labels;
    bl_data_raise(ctx, &error);
    belay_labels_free(labels);
    return &nil_labels;
}

const char *belay_labels_to_json(belay_labels *labels)
{
    bl_error error;
    belay_context *ctx = BL_DATA_USE(labels);
    BL_ENTER(ctx);
    if (ctx == NULL)
        return NULL;
    if (labels->json == NULL && bl_data_labels_to_json(&labels->set, &labels->json, &error) != BELAY_OK)
        bl_data_raise(labels->object.ctx, &error);
    return labels->json;
}

int64_t belay_labels_n_classes(const belay_labels *labels) { return BL_ASK(BL_DATA_USE(labels)) ? labels->set.n : 0; }

const char *belay_labels_name(const belay_labels *labels, int64_t class_id)
{
    belay_context *ctx = BL_DATA_USE(labels);
    BL_ENTER(ctx);
    if (ctx == NULL || class_id < 0 || class_id >= labels->set.n)
        return NULL;
    return bl_data_strings_get(&labels->set, class_id, NULL);
}

int64_t belay_labels_class(const belay_labels *labels, const char *label)
{
    if (!BL_ASK(BL_DATA_USE(labels)) || label == NULL)
        return -1;
    return bl_data_strings_find(&labels->set, label, (int64_t)strlen(label));
}

void belay_labels_free(belay_labels *labels)
{
    if (BL_ASK(BL_DATA_USE(labels)))
        bl_data_object_close(labels);
}
