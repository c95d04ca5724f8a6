/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/signature.h"

#include <belay/types.h>

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bl_signature signatures[BL_N_OPS];
static pthread_once_t parsed = PTHREAD_ONCE_INIT;

static int symbol_of(bl_signature *s, char letter)
{
    for (int i = 0; i < s->n_symbols; i++)
        if (s->symbol[i] == letter)
            return i;
    if (s->n_symbols == 8)
        return -1;
    s->symbol[s->n_symbols] = letter;
    return s->n_symbols++;
}

static int dtype_of(const char *word, size_t length)
{
    if (length == 5 && memcmp(word, "index", 5) == 0)
        return BL_SIGNATURE_INDEX;
    if (length == 3 && memcmp(word, "any", 3) == 0)
        return BL_SIGNATURE_ANY;
    for (int d = 0; d < BELAY_N_DTYPES; d++)
        if (strlen(belay_dtype_name(d)) == length && memcmp(belay_dtype_name(d), word, length) == 0)
            return d;
    return BELAY_N_DTYPES; /* none: refused by the caller */
}

/* name[:dtype][axes][?][!] */
static bool parse_operand(bl_signature *s, const char *word, size_t length, bl_signature_operand *out)
{
    const char *end = word + length, *at = word;
    *out = (bl_signature_operand){.dtype = BL_SIGNATURE_COLUMN};
    while (at < end && (isalnum((unsigned char)*at) || *at == '_'))
        at++;
    if (at == word || (size_t)(at - word) >= sizeof out->name)
        return false;
    memcpy(out->name, word, (size_t)(at - word));
    if (at < end && *at == ':') {
        const char *dtype = ++at;
        while (at < end && isalnum((unsigned char)*at))
            at++;
        out->dtype = dtype_of(dtype, (size_t)(at - dtype));
        if (out->dtype == BELAY_N_DTYPES)
            return false;
    }
    if (at < end && *at == '[')
        for (at++; at < end && *at != ']'; at++) {
            int symbol = symbol_of(s, *at);
            if (symbol < 0 || out->n_axes == BL_MAX_RANK)
                return false;
            out->axis[out->n_axes++] = symbol;
        }
    if (memchr(word, '[', length) != NULL && (at == end || *at++ != ']'))
        return false;
    for (; at < end; at++) {
        if (*at != '?' && *at != '!')
            return false;
        out->is_optional |= *at == '?';
        out->is_in_place |= *at == '!';
    }
    return true;
}

/* "R", "N/1024", "OKI", "1RN", "ON,OV", "*" (any): after the operands, so that symbols are numbered as the operands name them. */
static bool parse_items(bl_signature *s, bl_skeleton skeleton, const char *head, size_t length)
{
    if (length == 1 && head[0] == '*')
        return true;
    const char *slash = memchr(head, '/', length);
    if (slash != NULL) {
        s->chunk = strtoll(slash + 1, NULL, 10);
        length = (size_t)(slash - head);
    }
    s->n_items = 1;
    for (size_t i = 0; i < length; i++) {
        bool next = head[i] == ',' || (skeleton == BL_SKELETON_REDUCE && i > 0);
        if (next && ++s->n_items > 3)
            return false;
        if (head[i] == ',' || head[i] == '1')
            continue;
        int symbol = symbol_of(s, head[i]), part = s->n_items - 1;
        if (symbol < 0 || s->item_length[part] == BL_MAX_RANK)
            return false;
        s->item[part][s->item_length[part]++] = symbol;
    }
    return true;
}

static bool parse(const char *text, bl_skeleton skeleton, bl_signature *s)
{
    const char *colon = strchr(text, ':'), *at = colon + 1;
    bool outputs = false;
    while (*at != '\0') {
        size_t length = strcspn(at, " ");
        if (length == 2 && memcmp(at, "->", 2) == 0) {
            outputs = true;
        } else if (length > 0) {
            if (s->n_in + s->n_out == BL_MAX_OPERANDS || !parse_operand(s, at, length, &s->operand[s->n_in + s->n_out]))
                return false;
            s->n_in += !outputs;
            s->n_out += outputs;
        }
        at += length + (at[length] == ' ');
    }
    return parse_items(s, skeleton, text, (size_t)(colon - text));
}

/* A letter or a size; an axis by another sign could not be told of. */
static bool symbols_are_plain(const bl_signature *s)
{
    for (int i = 0; i < s->n_symbols; i++)
        if (!isalnum((unsigned char)s->symbol[i]) || s->symbol[i] == '0')
            return false;
    return true;
}

bool bl_signature_parse(const char *text, bl_signature *out)
{
    *out = (bl_signature){.is_valid = false};
    const char *colon = strchr(text, ':');
    if (colon == NULL || colon == text || memchr(text, ' ', (size_t)(colon - text)) != NULL)
        return false;
    bool has_chunk = memchr(text, '/', (size_t)(colon - text)) != NULL;
    out->is_valid = parse(text, BL_SKELETON_LANE, out) && out->n_items <= 1 && symbols_are_plain(out) &&
                    (!has_chunk || out->chunk > 0);
    return out->is_valid;
}

static void name_operand(bl_signature *s, int k, const char *name)
{
    snprintf(s->operand[k].name, sizeof s->operand[k].name, "%s", name);
}

/* Operand names of the maps, for reports. */
static void name_map(bl_skeleton skeleton, bl_signature *s)
{
    static const char *const names[][3] = {
        [BL_SKELETON_MAP0P] = {"", "", ""},          [BL_SKELETON_MAP1] = {"x", "", ""},
        [BL_SKELETON_MAP1P] = {"x", "", ""},         [BL_SKELETON_MAP0R] = {"", "", ""},
        [BL_SKELETON_MAP1R] = {"x", "", ""},         [BL_SKELETON_MAP2] = {"a", "b", ""},
        [BL_SKELETON_MAP3] = {"g", "a", "b"},        [BL_SKELETON_MAP3P] = {"g", "a", "b"},
        [BL_SKELETON_COMPARE] = {"a", "b", ""},      [BL_SKELETON_SELECT] = {"condition", "a", "b"},
        [BL_SKELETON_MASK] = {"condition", "g", ""}, [BL_SKELETON_COPY] = {"x", "", ""},
        [BL_SKELETON_MATMUL] = {"a", "b", ""},
    };
    if (skeleton >= (int)(sizeof names / sizeof names[0]) || names[skeleton][0] == NULL)
        return;
    while (s->n_in < 3 && names[skeleton][s->n_in][0] != '\0') {
        name_operand(s, s->n_in, names[skeleton][s->n_in]);
        s->n_in++;
    }
    name_operand(s, s->n_in, "y");
    s->n_out = 1;
    s->is_valid = true;
}

static void parse_all(void)
{
    for (int op = 1; op < BL_N_OPS; op++) {
        const bl_row *row = &bl_kernel_rows[op];
        if (row->signature != NULL && strchr(row->signature, ':') != NULL)
            signatures[op].is_valid = parse(row->signature, row->skeleton, &signatures[op]);
        else
            name_map(row->skeleton, &signatures[op]);
    }
}

const bl_signature *bl_signature_of(int op)
{
    pthread_once(&parsed, parse_all);
    return &signatures[op];
}

int bl_signature_find(const bl_signature *signature, const char *name)
{
    for (int i = 0; i < signature->n_in + signature->n_out; i++)
        if (strcmp(signature->operand[i].name, name) == 0)
            return i;
    return -1;
}

bool bl_signature_takes(const bl_signature_operand *o, int dtype, int column)
{
    switch (o->dtype) {
    case BL_SIGNATURE_COLUMN:
        return dtype == column;
    case BL_SIGNATURE_INDEX:
        return dtype == BELAY_I64 || dtype == BELAY_I32 || dtype == BELAY_U16 || dtype == BELAY_U8;
    case BL_SIGNATURE_ANY:
        return true;
    default:
        return dtype == o->dtype;
    }
}

const char *bl_signature_dtype(const bl_signature_operand *o, int column)
{
    if (o->dtype == BL_SIGNATURE_INDEX)
        return "an integer dtype";
    return belay_dtype_name(o->dtype == BL_SIGNATURE_COLUMN ? column : o->dtype);
}
