/* SPDX-License-Identifier: Apache-2.0 */
/* Proofs by skeleton. */
#include "launch/prove.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "launch/custom.h"
#include "launch/stray.h"

/* ---- words ----------------------------------------------------------------------------------------------------------- */

static belay_tensor shown_of(const bl_call *call, int k)
{
    return belay_tensor_is_nil(call->shown[k]) ? call->in[k] : call->shown[k];
}

const char *bl_prove_op(const bl_call *call)
{
    return call->custom != NULL ? call->custom->name : call->as != NULL ? call->as : bl_kernel_rows[call->op].name;
}

int bl_prove_show(const bl_call *call, bl_shown shown[BL_MAX_IN + 1])
{
    /* A tensor shown behind the inputs is what the op adds to. */
    int n = call->n_in + (call->n_in < BL_MAX_IN && !belay_tensor_is_nil(call->shown[call->n_in]));
    for (int k = 0; k < n; k++) {
        const bl_slot *slot = bl_slot_get(call->context, k < call->n_in ? shown_of(call, k) : call->shown[k]);
        shown[k] = (bl_shown){.is_absent = slot == NULL};
        if (slot == NULL)
            continue;
        shown[k].name = slot->name;
        shown[k].dtype = slot->dtype;
        shown[k].place = slot->storage->place;
        shown[k].shape = bl_slot_shape(slot);
    }
    return n;
}

void bl_prove_describe_shown(const belay_context *context, int op, const bl_shown *shown, int n, bl_report_fault *f)
{
    const bl_signature *signature = bl_signature_of(op);
    snprintf(f->op, sizeof f->op, "%s", bl_kernel_rows[op].name);
    f->table = bl_kernel_rows[op].table - 1;
    for (int k = 0; k < n; k++) {
        bl_report_tensor *t = &f->tensor[f->n_tensors++];
        if (k < signature->n_in + signature->n_out)
            snprintf(t->role, sizeof t->role, "%s", signature->operand[k].name);
        t->is_absent = shown[k].is_absent;
        if (t->is_absent)
            continue;
        snprintf(t->name, sizeof t->name, "%s", bl_journal_text_get(context->journal, shown[k].name));
        snprintf(t->device, sizeof t->device, "%s", context->places[shown[k].place].device->name);
        t->dtype = shown[k].dtype;
        t->shape = shown[k].shape;
        if (f->device[0] == '\0')
            snprintf(f->device, sizeof f->device, "%s", t->device);
    }
    if (f->table >= signature->n_in && f->table < signature->n_in + signature->n_out) /* indices into the result */
        snprintf(f->tensor[f->table].role, sizeof f->tensor[f->table].role, "%s", signature->operand[f->table].name);
}

void bl_prove_describe_as(const char *as, const char *const *role, int n, bl_report_fault *f)
{
    if (as != NULL)
        snprintf(f->op, sizeof f->op, "%s", as);
    for (int k = 0; k < n && role != NULL; k++) {
        f->tensor[k].is_absent = f->tensor[k].is_absent || role[k] == NULL;
        snprintf(f->tensor[k].role, sizeof f->tensor[k].role, "%s", role[k] != NULL ? role[k] : "");
    }
}

void bl_prove_describe(const bl_call *call, bl_report_fault *f)
{
    bl_shown shown[BL_MAX_IN + 1];
    bl_prove_describe_shown(call->context, call->op, shown, bl_prove_show(call, shown), f);
    bl_prove_describe_as(call->as, call->role, call->n_in, f);
    if (call->custom != NULL)
        bl_custom_describe(call->custom, f);
    f->is_backward = call->is_backward || call->context->in_backward;
    if (call->site != 0)
        bl_context_site_tell(call->context, call->site, f);
    if (call->layer != 0)
        snprintf(f->layer, sizeof f->layer, "%s", bl_journal_text_get(call->context->journal, call->layer));
}

void bl_prove_fail(const bl_call *call, belay_code code, const char *format, ...)
{
    bl_report_fault f;
    va_list args;
    va_start(args, format);
    bl_report_fault_begin(&f, code, format, args);
    va_end(args);
    bl_prove_describe(call, &f);
    bl_context_fault(call->context, &f);
}

void bl_prove_describe_given(const belay_context *context, const char *op, const bl_given *given, int n,
                             bl_report_fault *f)
{
    snprintf(f->op, sizeof f->op, "%s", op);
    f->is_backward = context->in_backward;
    for (int k = 0; k < n && f->n_tensors < BL_COUNT(f->tensor); k++) {
        const bl_slot *slot = bl_slot_get(context, given[k].tensor);
        if (slot == NULL)
            continue;
        bl_report_tensor *t = &f->tensor[f->n_tensors++];
        snprintf(t->role, sizeof t->role, "%s", given[k].role);
        snprintf(t->name, sizeof t->name, "%s", bl_journal_text_get(context->journal, slot->name));
        const bl_device *device = bl_slot_device(context, slot);
        snprintf(t->device, sizeof t->device, "%s", device->name);
        t->dtype = slot->dtype;
        t->shape = bl_slot_shape(slot);
        if (f->device[0] == '\0')
            snprintf(f->device, sizeof f->device, "%s", t->device);
    }
}

belay_code bl_prove_refuse(belay_context *context, belay_code code, const char *op, const bl_given *given, int n,
                           const char *format, ...)
{
    bl_report_fault f;
    va_list args;
    va_start(args, format);
    bl_report_fault_begin(&f, code, format, args);
    va_end(args);
    bl_prove_describe_given(context, op, given, n, &f);
    return bl_context_fault(context, &f);
}

/* "weight [10000, 128]" */
static void describe_operand(const bl_call *call, int k, char *out, size_t size)
{
    const bl_signature *signature = bl_signature_of(call->op);
    const bl_slot *slot = bl_slot_get(call->context, call->in[k]);
    belay_shape shape = slot != NULL ? bl_slot_shape(slot) : (belay_shape){0};
    bl_text words = {0};
    bl_report_shape(&shape, &words);
    snprintf(out, size, "%s %s", k < signature->n_in ? signature->operand[k].name : "operand", bl_text_get(&words));
    bl_text_fini(&words);
}

static const char *role_of(const bl_call *call, int k)
{
    const bl_signature *signature = bl_signature_of(call->op);
    if (call->custom != NULL)
        return call->custom->role[k];
    return k < signature->n_in ? signature->operand[k].name : "an operand";
}

/* ---- what all proofs share ------------------------------------------------------------------------------------------- */

void bl_prove_fail_places(const bl_call *call, int a, int b)
{
    const bl_given pair[2] = {{role_of(call, a), shown_of(call, a)}, {role_of(call, b), shown_of(call, b)}};
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_PLACE_DEVICE);
    bl_prove_describe(call, &f);
    bl_stray_describe(call->context, bl_prove_op(call), pair, &f);
    bl_context_fault(call->context, &f);
}

/* What is written in place lies where the operands do; without operands, the launch goes there. */
static bool into_is_there(const bl_call *call, bl_proof *p, bool has_operands)
{
    const bl_slot *into = bl_slot_get(call->context, call->into);
    if (into == NULL)
        return true;
    if (!has_operands)
        p->place = into->storage->place;
    if (into->storage->place == p->place)
        return true;
    bl_prove_fail(call, BELAY_PLACE_DEVICE, "the result of %s lies on %s, its operands on %s", bl_prove_op(call),
                  bl_slot_device(call->context, into)->name, call->context->places[p->place].device->name);
    return false;
}

/* Every input lives, in this context and on one device, which is the launch's; false without words for nil ones that may
 * not be left out. */
static bool use_inputs(const bl_call *call, bl_proof *p, bool may_skip)
{
    int first = -1, stray = -1;
    p->place = call->at > 0 ? call->at - 1 : call->context->here;
    for (int k = 0; k < call->n_in; k++) {
        p->tensor[k] = call->in[k];
        if (belay_tensor_is_nil(call->in[k])) {
            if (!may_skip)
                return false;
            continue;
        }
        if (call->in[k].context != call->context->number) {
            const char *words;
            belay_code code = bl_tensor_foreign(call->in[k], &words);
            bl_prove_fail(call, code, "operand %d %s", k, words);
            return false;
        }
        const bl_slot *slot = bl_slot_use(call->context, call->in[k]);
        if (slot == NULL)
            return false;
        if (first < 0) {
            first = k;
            p->place = slot->storage->place;
        } else if (BL_UNLIKELY(slot->storage->place != p->place) && stray < 0)
            stray = k;
    }
    p->n_in = call->n_in;
    if (BL_UNLIKELY(stray >= 0)) {
        bl_prove_fail_places(call, first, stray);
        return false;
    }
    return belay_tensor_is_nil(call->into) || into_is_there(call, p, first >= 0);
}

bool bl_prove_inputs(const bl_call *call, bl_proof *p) { return use_inputs(call, p, true); }

static void set_operand(bl_proof *p, int k, const bl_slot *slot)
{
    p->launch.operand[k].data = bl_slot_data(slot);
    p->launch.operand[k].dtype = slot->dtype;
}

static bool column_exists(const bl_call *call, int dtype)
{
    bl_dtypes have = bl_kernel_rows[call->op].dtypes;
    bool ok = belay_dtype_is_float(dtype) || have == BL_DTYPES_ANY || (have == BL_DTYPES_NUMBER && dtype != BELAY_BOOL);
    if (!ok)
        bl_prove_fail(call, BELAY_TYPE_DTYPE, "%s takes %s, not %s", bl_prove_op(call),
                      have == BL_DTYPES_FLOAT ? "floats" : "numbers", belay_dtype_name(dtype));
    return ok;
}

/* Whether two views have bytes in common, judged by where they begin and end. */
static bool share_bytes(const bl_slot *a, const bl_slot *b)
{
    if (a == NULL || b == NULL || a->storage != b->storage || bl_slot_elements(a) == 0 || bl_slot_elements(b) == 0)
        return false;
    const char *begin[2], *end[2];
    const bl_slot *slot[2] = {a, b};
    for (int k = 0; k < 2; k++) {
        int64_t last = 0;
        for (int i = 0; i < slot[k]->rank; i++)
            last += (slot[k]->size[i] - 1) * slot[k]->stride[i];
        begin[k] = bl_slot_data(slot[k]);
        end[k] = begin[k] + (last + 1) * belay_dtype_size(slot[k]->dtype);
    }
    return begin[0] < end[1] && begin[1] < end[0];
}

bool bl_prove_share_bytes(const bl_slot *a, const bl_slot *b) { return share_bytes(a, b); }

static bool same_view(const bl_slot *a, const bl_slot *b)
{
    bool same = a->offset == b->offset && a->rank == b->rank && a->dtype == b->dtype;
    for (int i = 0; i < a->rank && same; i++)
        same = a->size[i] == b->size[i] && (a->stride[i] == b->stride[i] || a->size[i] == 1);
    return same;
}

/* What is written must not cut across an input; it may be exactly the same view where elements map one to one. */
static bool no_overlap(const bl_call *call, const bl_slot *out)
{
    bool is_map = bl_kernel_rows[call->op].signature == NULL && bl_kernel_rows[call->op].skeleton != BL_SKELETON_MATMUL;
    for (int k = 0; k < call->n_in; k++) {
        const bl_slot *in = bl_slot_get(call->context, call->in[k]);
        if (!share_bytes(in, out) || (is_map && same_view(in, out)))
            continue;
        bl_prove_fail(call, BELAY_SHAPE_CONTRACT, "the output overlaps operand %d", k);
        return false;
    }
    return true;
}

/* A new output, or `into` when that has the right shape and dtype. */
static bool make_output(bl_call *call, bl_proof *p, belay_dtype dtype, const belay_shape *shape)
{
    int k = p->n_in + call->n_out;
    belay_tensor out = call->into;
    if (belay_tensor_is_nil(out)) {
        out = bl_tensor_new_on(call->context, p->place, dtype, shape, NULL);
    } else {
        const bl_slot *slot = bl_slot_use(call->context, out);
        belay_shape has = slot != NULL ? bl_slot_shape(slot) : (belay_shape){0};
        if (slot == NULL)
            return false;
        bool may_stride = bl_kernel_rows[call->op].skeleton == BL_SKELETON_COPY;
        if (call->n_out > 0 || !bl_shape_equal(&has, shape) || slot->dtype != (int)dtype ||
            (!may_stride && !bl_slot_is_contiguous(slot))) {
            bl_prove_fail(call, BELAY_SHAPE_CONTRACT,
                          "the result does not fit the tensor that it should be written to");
            return false;
        }
        if (!no_overlap(call, slot))
            return false;
    }
    const bl_slot *slot = belay_tensor_is_nil(out) ? NULL : bl_slot_get(call->context, out);
    if (slot == NULL)
        return false;
    call->out[call->n_out++] = out;
    p->tensor[k] = out;
    p->written |= 1u << k;
    set_operand(p, k, slot);
    return true;
}

/* ---- maps ------------------------------------------------------------------------------------------------------------ */

/* NumPy's rule: aligned at the last axis, sizes equal or 1. */
static bool broadcast(const bl_call *call, belay_shape *out)
{
    *out = (belay_shape){0};
    for (int k = 0; k < call->n_in; k++) {
        belay_shape s = bl_slot_shape(bl_slot_get(call->context, call->in[k]));
        belay_shape merged = {.rank = s.rank > out->rank ? s.rank : out->rank};
        for (int i = 0; i < merged.rank; i++) {
            int a = i - (merged.rank - out->rank), b = i - (merged.rank - s.rank);
            int64_t na = a >= 0 ? out->size[a] : 1, nb = b >= 0 ? s.size[b] : 1;
            if (na != nb && na != 1 && nb != 1) {
                char words[2][160];
                describe_operand(call, 0, words[0], sizeof words[0]);
                describe_operand(call, k, words[1], sizeof words[1]);
                bl_prove_fail(call, BELAY_SHAPE_CONTRACT, "%s and %s do not broadcast: %" PRId64 " against %" PRId64,
                              words[0], words[1], na, nb);
                return false;
            }
            merged.size[i] = na == 1 ? nb : na;
        }
        *out = merged;
    }
    return true;
}

/* Strides of every operand over the output's shape; then axes are merged where all operands allow it. */
static void collapse(const bl_call *call, bl_proof *p, const belay_shape *shape, int n_operands)
{
    bl_launch *l = &p->launch;
    int64_t stride[4][BELAY_MAX_RANK] = {{0}}; /* maps have three operands and a result at most */
    for (int k = 0; k < n_operands; k++) {
        const bl_slot *slot = bl_slot_get(call->context, p->tensor[k]);
        for (int i = 0; i < slot->rank; i++)
            if (slot->size[i] != 1)
                stride[k][i + shape->rank - slot->rank] = slot->stride[i];
    }
    l->rank = 0;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->size[i] == 1)
            continue;
        bool merges = l->rank > 0;
        for (int k = 0; k < n_operands && merges; k++)
            merges = l->operand[k].stride[l->rank - 1] == stride[k][i] * shape->size[i];
        int at = merges ? l->rank - 1 : l->rank++;
        l->size[at] = merges ? l->size[at] * shape->size[i] : shape->size[i];
        for (int k = 0; k < n_operands; k++)
            l->operand[k].stride[at] = stride[k][i];
    }
    if (l->rank == 0) {
        l->rank = 1;
        l->size[0] = 1;
    }
}

/* Kernels see a map's output first. */
static void output_first(bl_proof *p, int n_operands)
{
    bl_operand out = p->launch.operand[n_operands - 1];
    belay_tensor tensor = p->tensor[n_operands - 1];
    for (int k = n_operands - 1; k > 0; k--) {
        p->launch.operand[k] = p->launch.operand[k - 1];
        p->tensor[k] = p->tensor[k - 1];
    }
    p->launch.operand[0] = out;
    p->tensor[0] = tensor;
    p->written = 1;
}

static bool dtypes_agree(const bl_call *call, bl_skeleton skeleton, int *column)
{
    int first = skeleton == BL_SKELETON_SELECT || skeleton == BL_SKELETON_MASK;
    *column = call->n_in > first ? bl_slot_get(call->context, call->in[first])->dtype : (int)call->dtype;
    for (int k = 0; k < call->n_in; k++) {
        int dtype = bl_slot_get(call->context, call->in[k])->dtype, wanted = k < first ? BELAY_BOOL : *column;
        if (dtype != wanted) {
            bl_prove_fail(call, BELAY_TYPE_DTYPE, "%s is %s where %s is needed",
                          bl_signature_of(call->op)->operand[k].name, belay_dtype_name(dtype),
                          belay_dtype_name(wanted));
            return false;
        }
    }
    return true;
}

bool bl_prove_map(bl_call *call, bl_proof *p)
{
    bl_skeleton skeleton = bl_kernel_rows[call->op].skeleton;
    belay_shape shape = call->shape;
    int column;
    if (!use_inputs(call, p, false) || !dtypes_agree(call, skeleton, &column) || !column_exists(call, column) ||
        (call->n_in > 0 && !broadcast(call, &shape)) ||
        !make_output(call, p, skeleton == BL_SKELETON_COMPARE ? BELAY_BOOL : (belay_dtype)column, &shape))
        return false;
    for (int k = 0; k < call->n_in; k++)
        set_operand(p, k, bl_slot_get(call->context, call->in[k]));
    p->launch.dtype = column;
    p->launch.n_operands = call->n_in + 1;
    p->launch.n_items = bl_slot_elements(bl_slot_get(call->context, call->out[0]));
    collapse(call, p, &shape, p->launch.n_operands);
    output_first(p, p->launch.n_operands);
    return true;
}

bool bl_prove_copy(bl_call *call, bl_proof *p)
{
    if (!use_inputs(call, p, false))
        return false;
    const bl_slot *in = bl_slot_get(call->context, call->in[0]);
    belay_shape shape = bl_slot_shape(in);
    if (!make_output(call, p, call->dtype, &shape))
        return false;
    set_operand(p, 0, in);
    p->launch.dtype = call->dtype;
    p->launch.n_operands = 2;
    p->launch.n_items = bl_slot_elements(in);
    collapse(call, p, &shape, 2);
    output_first(p, 2);
    return true;
}

/* ---- products -------------------------------------------------------------------------------------------------------- */

/* a [B, M, K] (or [B, K, M] stored transposed), b [B, K, N] (or [B, N, K]), each contiguous, B of one of them may be 1.
 */
bool bl_prove_matmul(bl_call *call, bl_proof *p)
{
    if (!use_inputs(call, p, false))
        return false;
    const bl_slot *a = bl_slot_get(call->context, call->in[0]), *b = bl_slot_get(call->context, call->in[1]);
    int ta = call->params.i[0] != 0, tb = call->params.i[1] != 0;
    if (a->rank != 3 || b->rank != 3 || !bl_slot_is_contiguous(a) || !bl_slot_is_contiguous(b)) {
        bl_prove_fail(call, BELAY_BUG_INVARIANT,
                      "a product was launched on operands that are not [batch, rows, columns]");
        return false;
    }
    int64_t m = a->size[1 + ta], k = a->size[2 - ta], kb = b->size[1 + tb], n = b->size[2 - tb];
    int64_t batch = bl_max_i64(a->size[0], b->size[0]);
    if (a->size[0] == 0 || b->size[0] == 0)
        batch = 0;
    if (a->size[0] != b->size[0] && a->size[0] != 1 && b->size[0] != 1) {
        bl_prove_fail(call, BELAY_SHAPE_CONTRACT, "a has %" PRId64 " matrices, b has %" PRId64, a->size[0], b->size[0]);
        return false;
    }
    if (k != kb) {
        bl_prove_fail(call, BELAY_SHAPE_CONTRACT,
                      "inner sizes differ: a has %" PRId64 " columns, b has %" PRId64 " rows", k, kb);
        return false;
    }
    if (a->dtype != b->dtype) {
        bl_prove_fail(call, BELAY_TYPE_DTYPE, "a is %s, b is %s", belay_dtype_name(a->dtype),
                      belay_dtype_name(b->dtype));
        return false;
    }
    int narrow;
    if (!bl_checked_int(m, &narrow) || !bl_checked_int(n, &narrow) || !bl_checked_int(k, &narrow)) {
        bl_prove_fail(call, BELAY_SIZE_OVERFLOW,
                      "a product of %" PRId64 " x %" PRId64 " x %" PRId64
                      " has a side above 2^31 - 1, the most that the BLAS takes",
                      m, k, n);
        return false;
    }
    belay_shape shape = {3, {batch, m, n}};
    if (!column_exists(call, a->dtype) || !make_output(call, p, a->dtype, &shape))
        return false;
    set_operand(p, 0, a);
    set_operand(p, 1, b);
    bl_launch *l = &p->launch;
    l->dtype = a->dtype;
    l->n_operands = 3;
    l->n_items = bl_slot_elements(bl_slot_get(call->context, call->out[0]));
    l->rank = 4;
    const int64_t sizes[4] = {batch, m, n, k};
    memcpy(l->size, sizes, sizeof sizes);
    call->params.i[3] = a->size[0] > 1 ? m * k : 0;
    call->params.i[4] = b->size[0] > 1 ? k * n : 0;
    return true;
}

/* ---- signatures ------------------------------------------------------------------------------------------------------ */

/* The column is the dtype of the first operand that has the column's. */
static int column_of(const bl_call *call, const bl_signature *s)
{
    for (int k = 0; k < call->n_in; k++)
        if (s->operand[k].dtype == BL_SIGNATURE_COLUMN && !belay_tensor_is_nil(call->in[k]))
            return bl_slot_get(call->context, call->in[k])->dtype;
    return BELAY_F32;
}

/* Binds or compares the symbols of one operand. */
static bool bind_operand(const bl_call *call, const bl_signature *s, int k, int64_t *dim, int *bound_by)
{
    const bl_signature_operand *o = &s->operand[k];
    const bl_slot *slot = bl_slot_get(call->context, call->in[k]);
    if (slot->rank != o->n_axes) {
        bl_prove_fail(call, BELAY_SHAPE_RANK, "%s has %d axes where %d are needed", o->name, slot->rank, o->n_axes);
        return false;
    }
    for (int i = 0; i < o->n_axes; i++) {
        int symbol = o->axis[i];
        if (dim[symbol] >= 0 && dim[symbol] != slot->size[i]) {
            const char *other = bound_by[symbol] >= 0                       ? s->operand[bound_by[symbol]].name
                                : isdigit((unsigned char)s->symbol[symbol]) ? "the op"
                                                                            : "the forward call";
            bl_prove_fail(call, BELAY_SHAPE_CONTRACT,
                          "axis %d of %s has size %" PRId64 ", but %s gives %" PRId64 " for it", i, o->name,
                          slot->size[i], other, dim[symbol]);
            return false;
        }
        if (dim[symbol] < 0) {
            dim[symbol] = slot->size[i];
            bound_by[symbol] = k;
        }
    }
    if (!bl_slot_is_contiguous(slot)) {
        bl_prove_fail(call, BELAY_BUG_INVARIANT, "%s was launched on %s, which is not contiguous",
                      bl_kernel_rows[call->op].name, o->name);
        return false;
    }
    return true;
}

static bool bind_inputs(const bl_call *call, const bl_signature *s, bl_proof *p, int column)
{
    int bound_by[8];
    for (int i = 0; i < 8; i++) {
        p->launch.dim[i] = -1;
        bound_by[i] = -1;
    }
    for (int i = 0; i < s->n_symbols; i++)
        if (s->symbol[i] >= '1' && s->symbol[i] <= '9')
            p->launch.dim[i] = s->symbol[i] - '0';
    if (call->has_dims) {
        const bl_signature *from = bl_signature_of(call->dims_of);
        for (int i = 0; i < s->n_symbols; i++)
            for (int j = 0; j < from->n_symbols; j++)
                if (s->symbol[i] == from->symbol[j])
                    p->launch.dim[i] = call->dims[j];
    }
    for (int k = 0; k < s->n_in; k++) {
        const bl_signature_operand *o = &s->operand[k];
        if (belay_tensor_is_nil(call->in[k])) {
            if (!o->is_optional)
                return false;
            continue;
        }
        const bl_slot *slot = bl_slot_get(call->context, call->in[k]);
        if (!bl_signature_takes(o, slot->dtype, column)) {
            bl_prove_fail(call, BELAY_TYPE_DTYPE, "%s is %s where %s is needed", o->name, belay_dtype_name(slot->dtype),
                          bl_signature_dtype(o, column));
            return false;
        }
        if (!bind_operand(call, s, k, p->launch.dim, bound_by))
            return false;
        p->written |= (unsigned)o->is_in_place << k;
        set_operand(p, k, slot);
    }
    return true;
}

/* In-place operands must not share bytes with another operand. */
static bool in_place_is_alone(const bl_call *call, const bl_signature *s)
{
    for (int k = 0; k < s->n_in; k++) {
        const bl_slot *slot = s->operand[k].is_in_place ? bl_slot_get(call->context, call->in[k]) : NULL;
        for (int j = 0; j < s->n_in && slot != NULL; j++)
            if (j != k && share_bytes(slot, bl_slot_get(call->context, call->in[j]))) {
                bl_prove_fail(call, BELAY_SHAPE_CONTRACT, "%s is written and is also %s", s->operand[k].name,
                              s->operand[j].name);
                return false;
            }
    }
    return true;
}

static bool make_outputs(bl_call *call, const bl_signature *s, bl_proof *p, int column)
{
    for (int o = 0; o < s->n_out; o++) {
        const bl_signature_operand *spec = &s->operand[s->n_in + o];
        belay_shape shape = {.rank = spec->n_axes};
        for (int i = 0; i < spec->n_axes; i++)
            shape.size[i] = p->launch.dim[spec->axis[i]];
        if (!make_output(call, p, spec->dtype == BL_SIGNATURE_COLUMN ? column : spec->dtype, &shape))
            return false;
    }
    return true;
}

static int64_t item_product(const bl_signature *s, const bl_launch *l, int part)
{
    int64_t n = 1;
    for (int i = 0; i < s->item_length[part]; i++)
        if (!bl_checked_mul(n, bl_max_i64(l->dim[s->item[part][i]], 0), &n))
            return INT64_MAX; /* of a tensor whose other sizes have a zero among them: it has no elements */
    return n;
}

/* Nothing is written, and no index is there that would have to be tested: however many items there are, none has to be
 * visited. */
static bool is_idle(const bl_signature *s, const bl_proof *p, const belay_context *context)
{
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        bool matters = (p->written >> k & 1) != 0 || s->operand[k].dtype == BL_SIGNATURE_INDEX;
        const bl_slot *slot = matters && !belay_tensor_is_nil(p->tensor[k]) ? bl_slot_get(context, p->tensor[k]) : NULL;
        if (slot != NULL && bl_slot_elements(slot) > 0)
            return false;
    }
    return true;
}

static bool has_axis(const bl_signature_operand *o, int symbol)
{
    for (int i = 0; i < o->n_axes; i++)
        if (o->axis[i] == symbol)
            return true;
    return false;
}

/* The most elements of an operand that has all of the items' symbols. */
static int64_t work_of(const bl_call *call, const bl_signature *s, const bl_proof *p)
{
    int64_t work = p->launch.n_items;
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        const bl_signature_operand *o = &s->operand[k];
        bool has_all = true;
        for (int i = 0; i < s->item_length[0]; i++)
            has_all = has_all && has_axis(o, s->item[0][i]);
        belay_tensor tensor = k < s->n_in ? call->in[k] : call->out[k - s->n_in];
        const bl_slot *slot = has_all && !belay_tensor_is_nil(tensor) ? bl_slot_get(call->context, tensor) : NULL;
        if (slot != NULL)
            work = bl_max_i64(work, bl_slot_elements(slot));
    }
    return work;
}

static void set_items(const bl_signature *s, bl_skeleton skeleton, bl_proof *p)
{
    bl_launch *l = &p->launch;
    for (int part = 0; part < s->n_items; part++)
        l->size[part] = item_product(s, l, part);
    l->rank = s->n_items;
    bool fits = true;
    if (skeleton == BL_SKELETON_REDUCE)
        fits = bl_checked_mul(l->size[0], l->size[2], &l->n_items);
    else if (skeleton == BL_SKELETON_TAKE)
        fits = bl_checked_product(l->size, 3, &l->n_items);
    else if (skeleton == BL_SKELETON_SORTED)
        fits = bl_checked_add(l->size[0], l->size[1], &l->n_items); /* targets without sources are zeros */
    else
        l->n_items = s->chunk > 0 ? l->size[0] / s->chunk + (l->size[0] % s->chunk != 0) : l->size[0];
    if (!fits)
        l->n_items = INT64_MAX;
}

bool bl_prove_signature(bl_call *call, bl_proof *p)
{
    const bl_signature *s = bl_signature_of(call->op);
    bl_skeleton skeleton = bl_kernel_rows[call->op].skeleton;
    if (!s->is_valid || call->n_in != s->n_in) {
        bl_prove_fail(call, BELAY_BUG_INVARIANT, "%s was launched with %d operands, its row names %d",
                      bl_kernel_rows[call->op].name, call->n_in, s->n_in);
        return false;
    }
    if (!use_inputs(call, p, true))
        return false;
    int column = column_of(call, s);
    if (!column_exists(call, column) || !bind_inputs(call, s, p, column) || !in_place_is_alone(call, s) ||
        !make_outputs(call, s, p, column))
        return false;
    p->launch.dtype = column;
    p->launch.n_operands = s->n_in + s->n_out;
    set_items(s, skeleton, p);
    bl_launch *l = &p->launch;
    const int64_t out_elements = call->n_out > 0 ? bl_slot_elements(bl_slot_get(call->context, call->out[0])) : 0;
    if (skeleton == BL_SKELETON_SORTED)
        l->size[2] = l->size[1] > 0 ? out_elements / l->size[1] : 0;
    else if (skeleton == BL_SKELETON_TAKE)
        l->size[3] = l->n_items > 0 ? out_elements / l->n_items : 0;
    if (BL_UNLIKELY(out_elements == 0) && l->n_items > 0 && is_idle(s, p, call->context))
        l->n_items = 0;
    l->work = skeleton == BL_SKELETON_TAKE ? bl_max_i64(l->n_items, out_elements) : work_of(call, s, p);
    return true;
}
