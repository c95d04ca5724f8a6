/* SPDX-License-Identifier: Apache-2.0 */
/* The public objects around a vocabulary and a set of labels. */
#ifndef BL_DATA_VOCABULARY_H
#define BL_DATA_VOCABULARY_H

#include <belay/data.h>

#include "data/object.h"
#include "data/tokenizer.h"

struct belay_tokenizer {
    bl_data_object object;
    bl_data_vocabulary vocabulary;
    bl_data_pieces pieces; /* of the context's thread */
    char *json;            /* once asked for */
};

struct belay_labels {
    bl_data_object object;
    bl_data_strings set;
    char *json;
};

/* Empty ones; NULL without memory. */
belay_tokenizer *bl_data_tokenizer_new(belay_context *ctx, belay_tokens kind, bool keep_case, bl_error *error);
belay_labels *bl_data_labels_new(belay_context *ctx, bl_error *error);
belay_tokenizer *bl_data_tokenizer_nil(void);
belay_labels *bl_data_labels_nil(void);

#endif
