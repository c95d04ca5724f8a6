/* SPDX-License-Identifier: Apache-2.0 */
/* A fault's facts, and the words made of them.  Plain data of fixed size: telling of a fault needs no memory. */
#ifndef BL_REPORT_FAULT_H
#define BL_REPORT_FAULT_H

#include <belay/types.h>

#include <stdarg.h>

#include "base/record.h"
#include "base/text.h"

typedef struct bl_report_tensor {
    char name[64]; /* "" : the signature's operand name is in `role` */
    char role[24];
    char device[16]; /* "": the fault's */
    belay_dtype dtype;
    belay_shape shape;
    bool is_output;
    bool is_absent; /* an operand that was left out: counted, not told */
} bl_report_tensor;

typedef struct bl_report_fault {
    belay_code code;
    char what[384];   /* headline; empty: made from the element below */
    char facts[768];  /* lines, each ended by '\n' */
    char advice[256]; /* empty: the code's own */
    char op[32];
    bool is_backward;
    int8_t gating;   /* of its launch: 1 it closed its window's gate, -1 it did not; 0: as the context is now */
    uint64_t window; /* of its launch, where `gating` is not 0 */
    char layer[128];
    char site[256];
    char source[104];     /* the line of source there, "" where it is not known or the site is a label */
    char surfaced[256];   /* the call at which it was learned, where that is not its own site */
    uint64_t launch;      /* serial of its launch, 0: none; told with a stream or the place where it surfaced */
    char stream[64];      /* "": the default one */
    char other_words[32]; /* what happened at another place, "written at" */
    char other_site[256]; /* "": there is no other place */
    char other_stream[64];
    uint64_t n_echoes; /* later faults of the same cause */
    bool is_echo;      /* it is one itself */
    char device[16];
    char sample[320]; /* "train.tsv:213" */
    int64_t sample_row;
    int n_tensors;
    bl_report_tensor tensor[BL_MAX_OPERANDS];
    int operand; /* with the bad element; -1: none */
    int table;   /* operand that it selects from; -1: none */
    int64_t element, got, limit;
    int64_t n_items; /* of a kernel of the user's own: there `element` is an item; 0: it is an element */
    int axis;        /* and this the axis of `operand` on which `got` is a coordinate */
    uint64_t count;
    int n_values; /* first distinct bad values */
    int64_t value[4];
    bool has_position;
    uint64_t step;
    uint32_t epoch, position, micro_batch;
    int rank;
} bl_report_fault;

/* An empty one of that code: no operand, no table. */
void bl_report_fault_init(bl_report_fault *fault, belay_code code);
/* The same with its headline. */
void bl_report_fault_begin(bl_report_fault *fault, belay_code code, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
void bl_report_fault_fact(bl_report_fault *fault, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Headline, facts and advice as the paragraph of the command line, ended by a newline. */
void bl_report_fault_describe(const bl_report_fault *fault, bl_text *out);

/* All of that and every other fact as a JSON object without newline: a line of faults.jsonl begins with it.  What is
 * empty has no key.  "code", "what", "op", "layer", "site", "device", "sample"; "tensor", "at", "got", "limit", "count"
 * of the bad element; "tensors" (each "name", "shape", "dtype", "role", "device", "output"); "epoch", "batch",
 * "micro_batch", "step"; "rank", "number" (of the code), "severity", "backward", "sample_row", "operand", "table",
 * "element", "values", "source", "surfaced", "launch", "stream", "other", "other_site", "other_stream", "echoes", "echo",
 * "facts", "reason" (the row's name), "likely", "try", "text" (the paragraph). */
void bl_report_fault_json(const bl_report_fault *fault, bl_text *out);

/* "[64, 20]" and the coordinates of a linear element, "[3, 17]". */
void bl_report_shape(const belay_shape *shape, bl_text *out);
void bl_report_coordinates(const belay_shape *shape, int64_t element, bl_text *out);

#endif
