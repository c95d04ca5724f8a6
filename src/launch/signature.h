/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of rows, parsed once.  Grammar in kernel/row.h. */
#ifndef BL_LAUNCH_SIGNATURE_H
#define BL_LAUNCH_SIGNATURE_H

#include "kernel/row.h"

enum { BL_SIGNATURE_COLUMN = -1, BL_SIGNATURE_INDEX = -2, BL_SIGNATURE_ANY = -3 }; /* else a belay_dtype */

typedef struct bl_signature_operand {
    char name[24];
    int dtype;
    bool is_optional;
    bool is_in_place;
    int n_axes;
    int axis[BL_MAX_RANK]; /* symbol numbers */
} bl_signature_operand;

typedef struct bl_signature {
    bool is_valid;
    int n_symbols;
    char symbol[8];
    int n_in, n_out;
    bl_signature_operand operand[BL_MAX_OPERANDS];
    int64_t chunk; /* items are chunks of that many; 0: single */
    int n_items;   /* 1, 2 or 3 products of symbols */
    int item[3][BL_MAX_RANK];
    int item_length[3]; /* symbols in each; 0: the number 1 */
} bl_signature;

/* The signature of an op; its operands' names also for maps.  Never NULL. */
const bl_signature *bl_signature_of(int op);

/* The signature of a kernel of the user's own, of any bytes; "*" for the items: n_items stays 0. */
bool bl_signature_parse(const char *text, bl_signature *out);

/* Whether an operand may have that dtype in that column, and words for the dtypes that it may have. */
bool bl_signature_takes(const bl_signature_operand *operand, int dtype, int column);
const char *bl_signature_dtype(const bl_signature_operand *operand, int column);

/* Number of the operand of that name, or -1. */
int bl_signature_find(const bl_signature *signature, const char *name);

#endif
