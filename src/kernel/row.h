/* SPDX-License-Identifier: Apache-2.0 */
/* What a row says.  A row stands at the foot of its family file as
 *
 *   BL_ROW(skeleton, name, dtypes, .signature = "...", .grad = {...}, ...)
 *
 * and is all that is said about the op: the calls, dispatch, dtype columns, gradient, autocast class, documentation and
 * tests derive from it.
 *
 * Skeletons and the C function that a body of each must be (BL_(name) in its family):
 *
 *   MAP0P  BL_REAL f(const bl_params *p, int64_t i)                       y = f(i)
 *   MAP1   BL_REAL f(BL_REAL x)                                           y = f(x), broadcasting
 *   MAP0R  BL_REAL f(const bl_params *p, uint32_t word)                   y = f(random word params.i[0] + i of params.rng)
 *   MAP1P  BL_REAL f(const bl_params *p, int64_t i, BL_REAL x)            with options
 *   MAP1R  BL_REAL f(const bl_params *p, uint32_t word, BL_REAL x)        with random words; linear in x, so that it is
 *                                                                         its own gradient
 *   MAP2   BL_REAL f(BL_REAL a, BL_REAL b)
 *   MAP3   BL_REAL f(BL_REAL a, BL_REAL b, BL_REAL c)
 *   MAP3P  BL_REAL f(const bl_params *p, int64_t i, BL_REAL a, BL_REAL b, BL_REAL c)
 *   COMPARE bool   f(BL_REAL a, BL_REAL b)                                y is bool
 *   SELECT BL_REAL f(bool c, BL_REAL a, BL_REAL b)                        the first operand is bool
 *   MASK   BL_REAL f(const bl_params *p, bool c, BL_REAL a)
 *   LANE   void    f(const bl_launch *l, int64_t row, bl_bad *bad)        one row (or chunk) by 32 lanes
 *   REDUCE BL_REAL f(const bl_launch *l, int64_t o, int64_t k, int64_t i) a term; y[o, i] = (sum over k) / params.f[0]
 *   TAKE   int64_t f(const bl_launch *l, int64_t o, int64_t n, int64_t i, bl_bad *bad)
 *                  y[o, n, i] is row f of the first operand, or zeros where f is -1; first asked with `bad` NULL (bl_index)
 *   SORTED int64_t f(const bl_launch *l, int64_t e, bl_bad *bad)          key of source row e, or -1: y[key] += x[e]
 *   COPY, MATMUL, DEVICE (no body)                                        each device has its own code
 *
 * Gradients.  A map's gradient of operand k is the op grad[k], launched as f(g, operands..., y): MAP1 f(g, x, y), MAP2
 * f(g, a, b), MAP3 and SELECT see their rules in grad/.  What `keep` does not name is not kept (g stands in its place).
 * Every other op's gradients are the ops in `grad`, bound by the names in their signatures: an input `g_y` is the
 * gradient that arrives at output y, other inputs are the forward's operands of that name, and the output `g_x` is the
 * gradient of operand x.  What they name is what the tape keeps.
 *
 * Signature:  "items: operand ... -> operand ..."
 *   operand   name[:dtype][axes][?][!]    axes are one-letter symbols, bound at first sight and compared from then on
 *                                         a digit among them is that size
 *   dtype     none: the column's; f32 f64 i64 bool: that one; index: any integer; any: any
 *   ?         may be absent               !  is written in place
 *   items     one symbol (LANE: rows; `N/1024`: chunks of it), three for REDUCE (outer, reduced, inner; 1 for none) and
 *             for TAKE ("O,N,I", 1 for none), or for SORTED the source rows and the target rows, each a product of symbols: "ON,OV"
 * All operands of a signature are contiguous. */
#ifndef BL_KERNEL_ROW_H
#define BL_KERNEL_ROW_H

#include "kernel/dialect.h"

typedef enum bl_skeleton {
    BL_SKELETON_MAP0P,
    BL_SKELETON_MAP0R,
    BL_SKELETON_MAP1,
    BL_SKELETON_MAP1P,
    BL_SKELETON_MAP1R,
    BL_SKELETON_MAP2,
    BL_SKELETON_MAP3,
    BL_SKELETON_MAP3P,
    BL_SKELETON_COMPARE,
    BL_SKELETON_SELECT,
    BL_SKELETON_MASK,
    BL_SKELETON_LANE,
    BL_SKELETON_TAKE,
    BL_SKELETON_REDUCE,
    BL_SKELETON_SORTED,
    BL_SKELETON_COPY,
    BL_SKELETON_MATMUL,
    BL_SKELETON_DEVICE
} bl_skeleton;

/* Which columns an op has. */
typedef enum bl_dtypes {
    BL_DTYPES_FLOAT,  /* f32 f64 and the 16-bit floats */
    BL_DTYPES_NUMBER, /* floats and integers, without bool */
    BL_DTYPES_ANY     /* all */
} bl_dtypes;

/* What autocast does with the op. */
typedef enum bl_amp {
    BL_AMP_SAME,  /* runs in the dtype that it is given */
    BL_AMP_LOWER, /* runs in the 16-bit type: products */
    BL_AMP_F32    /* runs in f32: sums, exponentials, losses */
} bl_amp;

/* How closely a device must match the float64 reference: rounding steps of the column's type. */
typedef enum bl_tolerance { BL_TOLERANCE_EXACT, BL_TOLERANCE_ELEMENT, BL_TOLERANCE_SUM } bl_tolerance;

enum { BL_KEEP_X = 1, BL_KEEP_A = 1, BL_KEEP_B = 2, BL_KEEP_OUT = 8 };

#define BL_MAX_GRADS 4

typedef struct bl_row {
    const char *name;
    bl_skeleton skeleton;
    bl_dtypes dtypes;
    const char *signature;  /* every skeleton but the maps */
    int grad[BL_MAX_GRADS]; /* ops, 0 where there is none */
    int keep;               /* maps: BL_KEEP_* */
    bl_amp amp;
    double domain[2]; /* inputs that tests draw */
    bl_tolerance tolerance;
    int table;           /* operand that an index selects from, plus 1; for reports */
    bool internal;       /* no public call: a gradient or a step of the optimizer */
    const char *options; /* meaning of params, for readers */
    const char *formula; /* one line */
    const char *says;    /* one sentence */
} bl_row;

/* BL_OP_<name> for every row of every family, from 1. */
enum bl_op {
    BL_OP_none, /* also a kernel of the user's own, which has no row but stands in the launch */
#define BL_ROWS
#define BL_ROW(skeleton, name, dtypes, ...) BL_OP_##name,
#include "kernel/families.h"
#undef BL_ROW
#undef BL_ROWS
    BL_N_OPS
};

/* The rows, by op number. */
extern const bl_row bl_kernel_rows[];

/* The op of that name, or BL_OP_none. */
int bl_kernel_find(const char *name);

#endif
