/* SPDX-License-Identifier: Apache-2.0 */
/* Runs any row of the table on drawn inputs, knowing of it only what the row says.  Column operands hold multiples of
 * 1/32 below 4, which every float dtype holds exactly: so the f64 column is the reference of the others. */
#ifndef TESTS_OP_ROWS_H
#define TESTS_OP_ROWS_H

#include "op/numbers.h"

#include "launch/launch.h"
#include "op/op.h"

enum { MOST_ROW_NUMBERS = 400000 };

typedef struct row_inputs {
    int op;
    int n;
    int dtype[BL_MAX_IN]; /* belay_dtype, or BL_SIGNATURE_COLUMN */
    belay_shape shape[BL_MAX_IN];
    double *v[BL_MAX_IN];
    int64_t size[8]; /* of the signature's symbols */
    bl_params params;
} row_inputs;

static inline bool row_is_map(int op)
{
    return bl_kernel_rows[op].signature == NULL && bl_kernel_rows[op].skeleton != BL_SKELETON_COPY &&
           bl_kernel_rows[op].skeleton != BL_SKELETON_MATMUL;
}

/* Rows without an operand. */
static inline bool row_is_made(int op)
{
    return bl_kernel_rows[op].skeleton == BL_SKELETON_MAP0P || bl_kernel_rows[op].skeleton == BL_SKELETON_MAP0R;
}

/* Rows that change their operands: the optimizer's, tested with it. */
static inline bool row_is_in_place(int op)
{
    const bl_signature *s = bl_signature_of(op);
    for (int k = 0; k < s->n_in; k++)
        if (s->operand[k].is_in_place)
            return true;
    return strncmp(bl_kernel_rows[op].name, "optim_", 6) == 0;
}

static inline bool row_runs_here(int op)
{
    bl_skeleton skeleton = bl_kernel_rows[op].skeleton;
    return skeleton != BL_SKELETON_COPY && skeleton != BL_SKELETON_MATMUL && !row_is_in_place(op) && op != BL_OP_none;
}

static inline bool row_has_column(int op, int dtype)
{
    bl_dtypes have = bl_kernel_rows[op].dtypes;
    return belay_dtype_is_float((belay_dtype)dtype) || have == BL_DTYPES_ANY ||
           (have == BL_DTYPES_NUMBER && dtype != BELAY_BOOL);
}

static inline int64_t symbol_size(const row_inputs *r, char letter, int64_t otherwise)
{
    const bl_signature *s = bl_signature_of(r->op);
    for (int i = 0; i < s->n_symbols; i++)
        if (s->symbol[i] == letter)
            return r->size[i];
    return otherwise;
}

/* Ids and labels stay below V, or N where the row has no V. */
static inline int64_t index_bound(const row_inputs *r)
{
    if (r->op == BL_OP_max_pool_grad)
        return symbol_size(r, 'H', 1) * symbol_size(r, 'W', 1);
    return symbol_size(r, 'V', symbol_size(r, 'N', 2));
}

/* What the options of every row can be at once. */
static inline bl_params row_params(const row_inputs *r)
{
    bl_params p = {.f = {0.375, 1.5, 1, 1, 1, 1, 1, 1}, .i = {symbol_size(r, 'V', 1), 0, 0, 0, 0, 0, 1, 0}};
    p.rng.seed = 11;
    if (row_is_made(r->op)) {
        p.f[0] = (double)(p.i[0] = 2);
        p.f[1] = (double)(p.i[1] = 3);
    }
    return p;
}

static inline double draw_for(const row_inputs *r, int dtype)
{
    const double *domain = bl_kernel_rows[r->op].domain;
    double low = domain[0] == domain[1] ? 0.25 : domain[0], high = domain[0] == domain[1] ? 3 : domain[1];
    if (r->op == BL_OP_cast_ids)
        return nearbyint(draw(-9, 9));
    if (dtype == BL_SIGNATURE_COLUMN)
        return fmax(nearbyint(draw(low, high) * 32) / 32, low > 0 ? 1.0 / 16 : -4);
    if (dtype == BELAY_BOOL)
        return draw(0, 1) < 0.5;
    if (dtype == BELAY_F64 || dtype == BELAY_F32)
        return nearbyint(draw(0.25, 2) * 32) / 32;
    int64_t bound = index_bound(r);
    return bound > 0 ? floor(draw(0, (double)bound)) : 0;
}

/* Sizes by symbol (maps: elements in size[0]); a digit is its own size. */
static inline void row_draw(row_inputs *r, int op, const int64_t *size)
{
    const bl_signature *s = bl_signature_of(op);
    bl_skeleton skeleton = bl_kernel_rows[op].skeleton;
    *r = (row_inputs){.op = op, .n = s->n_in};
    for (int i = 0; i < 8; i++)
        r->size[i] = i < s->n_symbols && s->symbol[i] >= '1' && s->symbol[i] <= '9' ? s->symbol[i] - '0' : size[i];
    r->params = row_params(r);
    drawn = (uint64_t)op + 1;
    for (int k = 0; k < s->n_in; k++) {
        const bl_signature_operand *o = &s->operand[k];
        bool is_bit = k == 0 && (skeleton == BL_SKELETON_SELECT || skeleton == BL_SKELETON_MASK);
        r->dtype[k] = is_bit                           ? BELAY_BOOL
                      : row_is_map(op)                 ? BL_SIGNATURE_COLUMN
                      : o->dtype == BL_SIGNATURE_INDEX ? BELAY_I64
                      : o->dtype == BL_SIGNATURE_ANY   ? BELAY_F32
                                                       : o->dtype;
        r->shape[k] = row_is_map(op) ? belay_shape1(size[0]) : (belay_shape){.rank = o->n_axes};
        for (int i = 0; i < o->n_axes; i++)
            r->shape[k].size[i] = r->size[o->axis[i]];
        int64_t n = count_of(r->shape[k]);
        assert_true(n <= MOST_ROW_NUMBERS);
        r->v[k] = malloc((size_t)(n + 1) * sizeof(double));
        for (int64_t i = 0; i < n; i++)
            r->v[k][i] = draw_for(r, r->dtype[k]);
    }
}

static inline void row_free(row_inputs *r)
{
    for (int k = 0; k < r->n; k++)
        free(r->v[k]);
}

static inline bool row_leaves_out(const row_inputs *r, int k)
{
    /* Indices beyond the first of `index`: as many as the options say. */
    return r->op == BL_OP_index || r->op == BL_OP_index_grad ? k > (int)r->params.i[6] : false;
}

/* The call in that column; inputs nil where `given` has none are drawn ones. */
static inline bl_call row_call(belay_context *context, const row_inputs *r, belay_dtype column,
                               const belay_tensor *given)
{
    bl_call call = {.context = context, .op = r->op, .n_in = r->n, .params = r->params, .dtype = column};
    const bl_signature *s = bl_signature_of(r->op);
    if (row_is_made(r->op))
        call.shape = belay_shape1(r->size[0]);
    for (int k = 0; k < r->n; k++) {
        belay_dtype dtype = r->dtype[k] == BL_SIGNATURE_COLUMN ? column : (belay_dtype)r->dtype[k];
        if (given != NULL && !belay_tensor_is_nil(given[k]))
            call.in[k] = given[k];
        else if (!row_leaves_out(r, k))
            call.in[k] = tensor_of(context, dtype, r->shape[k], r->v[k]);
    }
    call.has_dims = !row_is_map(r->op);
    call.dims_of = r->op;
    for (int i = 0; i < s->n_symbols; i++)
        call.dims[i] = r->size[i];
    return call;
}

/* Runs it, what has no inputs too, where tensors are made. */
static inline bool row_run(bl_call *call)
{
    bool is_maker = call->n_in == 0 && made_at != NULL;
    belay_device_guard guard = is_maker ? belay_device_guard_open(call->context, made_at) : (belay_device_guard){0};
    bool ran = bl_launch_run(call);
    belay_device_guard_close(guard);
    return ran;
}

/* Sizes of every symbol: `each` but for the row's digits. */
static inline void sizes_all(int64_t size[8], int64_t each)
{
    for (int i = 0; i < 8; i++)
        size[i] = each;
}

/* Ragged sizes: around and between the 32 lanes. */
static inline void sizes_ragged(int op, int64_t size[8])
{
    static const int64_t ragged[] = {3, 37, 5, 4, 7, 2, 3, 2};
    memcpy(size, ragged, sizeof ragged);
    if (row_is_map(op))
        size[0] = 71;
    /* Windows lie within what they slide over: positions, and a kernel's taps. */
    if (op == BL_OP_max_pool || op == BL_OP_avg_pool)
        size[4] = size[2];
    if (op == BL_OP_conv_columns)
        size[4] = size[5] = 3;
}

#endif
