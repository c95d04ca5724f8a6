/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/custom.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "launch/prove.h"
#include "launch/stray.h"
#include "tensor/address.h"

/* ---- words ----------------------------------------------------------------------------------------------------------- */

void bl_custom_describe(const bl_custom *custom, bl_report_fault *f)
{
    snprintf(f->op, sizeof f->op, "%s", custom->name);
    for (int k = 0; k < f->n_tensors && k < BELAY_MAX_KERNEL_OPERANDS; k++) {
        snprintf(f->tensor[k].role, sizeof f->tensor[k].role, "%s", custom->role[k]);
        f->tensor[k].is_output = custom->args.operand[k].is_written;
    }
}

/* The dtype for which a C type stands: the first of those that it reads. */
static const char *kinds_words(int64_t kinds)
{
    for (int d = 0; d < BELAY_N_DTYPES; d++)
        if ((kinds >> d & 1) != 0)
            return belay_dtype_name((belay_dtype)d);
    return "?";
}

static double double_of(int64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* What was wrong with a view, or with its coordinates. */
static void tell_view(const bl_custom *custom, const bl_fault_record *r, bl_report_fault *f)
{
    f->operand = r->operand < f->n_tensors ? r->operand : 0;
    const bl_report_tensor *t = &f->tensor[f->operand];
    const char *name = t->name[0] != '\0' ? t->name : t->role;
    if (r->code == BELAY_INDEX_RANGE)
        snprintf(f->what, sizeof f->what,
                 "item %" PRId64 " of %s takes coordinate %" PRId64 " on axis %d of %s, outside [0, %" PRId64 ")",
                 r->element, custom->name, r->got, r->axis, name, r->limit);
    else if (r->code == BELAY_SHAPE_RANK)
        snprintf(f->what, sizeof f->what,
                 "item %" PRId64 " of %s gives %" PRId64 " coordinate%s to %s, which has %" PRId64, r->element,
                 custom->name, r->got, r->got == 1 ? "" : "s", name, r->limit);
    else if (r->code == BELAY_TYPE_DTYPE)
        snprintf(f->what, sizeof f->what, "item %" PRId64 " of %s takes %s for %s, which is %s", r->element,
                 custom->name, name, kinds_words(r->got), belay_dtype_name((belay_dtype)r->limit));
    else
        snprintf(f->what, sizeof f->what, "item %" PRId64 " of %s writes to %s, which its signature gives it to read",
                 r->element, custom->name, name);
}

/* What an operand that is not there is: left out, or none of the signature's. */
static void tell_absent(const bl_custom *custom, const bl_fault_record *r, bl_report_fault *f)
{
    if (r->got >= 0 && r->got < custom->args.n_operands)
        snprintf(f->what, sizeof f->what, "item %" PRId64 " of %s uses %s, which was left out", r->element,
                 custom->name, custom->role[r->got]);
    else
        snprintf(f->what, sizeof f->what,
                 "item %" PRId64 " of %s uses operand %" PRId64 ", which its signature does not name", r->element,
                 custom->name, r->got);
}

static void tell_cast(const bl_custom *custom, const bl_fault_record *r, bl_report_fault *f)
{
    snprintf(f->what, sizeof f->what, "item %" PRId64 " of %s makes an index of %.9g, not a whole number of 64 bits",
             r->element, custom->name, bl_text_real(double_of(r->got)));
}

static const char *advice_of(belay_code code)
{
    switch (code) {
    case BELAY_INDEX_RANGE:
        return "Compare the kernel's arithmetic of coordinates with the sizes named, or launch fewer items.";
    case BELAY_TYPE_DTYPE:
        return "Name in the view the C type of the tensor's dtype.";
    case BELAY_SHAPE_RANK:
        return "Use the form of the view with as many coordinates as the tensor has axes.";
    case BELAY_CONF_CONFLICT:
        return "Name the operand behind the arrow of the kernel's signature, or with `!`.";
    case BELAY_CONF_MISSING:
        return "Use operands that the signature names; belay_view_is_absent tells of one that may be left out.";
    case BELAY_CONF_VALUE:
        return "Give the launch the struct that the kernel takes, and its size.";
    default:
        return "";
    }
}

void bl_custom_tell(const bl_custom *custom, const bl_fault_record *r, bl_report_fault *f)
{
    f->operand = -1;
    f->element = r->element;
    f->got = r->got;
    f->limit = r->limit;
    f->count = r->count;
    f->n_items = custom->args.n_items;
    f->axis = r->axis;
    switch ((belay_code)r->code) {
    case BELAY_KERNEL_ASSERT:
        snprintf(f->what, sizeof f->what, "item %" PRId64 " of %s: %s", r->element, custom->name,
                 custom->message[0] != '\0' ? custom->message : "its assertion does not hold");
        break;
    case BELAY_NUM_CAST:
        tell_cast(custom, r, f);
        break;
    case BELAY_CONF_MISSING:
        tell_absent(custom, r, f);
        break;
    case BELAY_CONF_VALUE:
        snprintf(f->what, sizeof f->what, "%s takes its parameters as %" PRId64 " bytes, the launch gave %" PRId64,
                 custom->name, r->got, r->limit);
        break;
    default:
        tell_view(custom, r, f);
    }
    snprintf(f->advice, sizeof f->advice, "%s", advice_of((belay_code)r->code));
}

/* A refusal with an advice of its own, about the call's tensors. */
static void refuse(const bl_call *call, const bl_error *error)
{
    bl_report_fault f;
    bl_report_fault_init(&f, error->code);
    snprintf(f.what, sizeof f.what, "%s", error->what);
    snprintf(f.advice, sizeof f.advice, "%s", bl_error_advice(error));
    bl_prove_describe(call, &f);
    bl_context_fault(call->context, &f);
}

/* ---- proof ----------------------------------------------------------------------------------------------------------- */

static bool operands_fit(const bl_call *call, const bl_signature *s)
{
    for (int k = 0; k < call->n_in; k++) {
        const bl_signature_operand *o = &s->operand[k];
        const bl_slot *slot = belay_tensor_is_nil(call->in[k]) ? NULL : bl_slot_get(call->context, call->in[k]);
        if (slot == NULL) {
            if (!o->is_optional)
                return false; /* a nil operand absorbs */
            continue;
        }
        if (!bl_signature_takes(o, slot->dtype, BELAY_F32)) {
            bl_prove_fail(call, BELAY_TYPE_DTYPE, "%s is %s where %s is needed", o->name, belay_dtype_name(slot->dtype),
                          bl_signature_dtype(o, BELAY_F32));
            return false;
        }
        if (slot->rank != o->n_axes) {
            bl_prove_fail(call, BELAY_SHAPE_RANK, "%s has %d axes where %d are needed", o->name, slot->rank, o->n_axes);
            return false;
        }
    }
    return true;
}

/* Binds each symbol at its first operand, and compares it from then on. */
static bool bind_symbols(const bl_call *call, const bl_signature *s, int64_t dim[8])
{
    int bound_by[8], bound_axis[8];
    for (int i = 0; i < s->n_symbols; i++) {
        bool is_size = isdigit((unsigned char)s->symbol[i]) != 0;
        dim[i] = is_size ? s->symbol[i] - '0' : -1;
        bound_by[i] = -1;
    }
    for (int k = 0; k < call->n_in; k++) {
        const bl_signature_operand *o = &s->operand[k];
        const bl_slot *slot = belay_tensor_is_nil(call->in[k]) ? NULL : bl_slot_get(call->context, call->in[k]);
        for (int i = 0; i < o->n_axes && slot != NULL; i++) {
            int symbol = o->axis[i];
            if (dim[symbol] < 0) {
                dim[symbol] = slot->size[i];
                bound_by[symbol] = k;
                bound_axis[symbol] = i;
            } else if (dim[symbol] != slot->size[i] && bound_by[symbol] < 0) {
                bl_prove_fail(call, BELAY_SHAPE_CONTRACT,
                              "axis %d of %s has size %" PRId64 ", its signature says %" PRId64, i, o->name,
                              slot->size[i], dim[symbol]);
                return false;
            } else if (dim[symbol] != slot->size[i]) {
                bl_prove_fail(call, BELAY_SHAPE_CONTRACT,
                              "axis %d of %s has size %" PRId64 ", axis %d of %s has %" PRId64 ": both are %c", i,
                              o->name, slot->size[i], bound_axis[symbol], s->operand[bound_by[symbol]].name,
                              dim[symbol], s->symbol[symbol]);
                return false;
            }
        }
    }
    return true;
}

/* n_items <= what the signature allows. */
static bool items_fit(const bl_call *call, const bl_signature *s, const int64_t dim[8], int64_t n_items)
{
    const char *name = call->custom->name;
    if (n_items < 0) {
        bl_prove_fail(call, BELAY_CONF_VALUE, "n_items of %s is %" PRId64 ", below 0", name, n_items);
        return false;
    }
    int64_t most = 1;
    char words[BL_MAX_RANK + 1] = "";
    for (int i = 0; i < s->n_items * s->item_length[0]; i++) {
        int symbol = s->item[0][i];
        words[i] = s->symbol[symbol];
        if (!bl_checked_mul(most, bl_max_i64(dim[symbol], 0), &most)) {
            bl_prove_fail(call, BELAY_SIZE_OVERFLOW, "%s, the items of %s, are more than 2^63 - 1", words, name);
            return false;
        }
    }
    int64_t chunk = bl_max_i64(s->chunk, 1);
    int64_t allowed = most / chunk + (most % chunk != 0);
    if (s->n_items == 0 || n_items <= allowed)
        return true;
    bl_error error;
    if (s->chunk > 0)
        bl_error_set(&error, BELAY_SHAPE_CONTRACT,
                     "%s was launched with %" PRId64 " items, its tensors have %" PRId64 " chunks of %" PRId64
                     " (%s is %" PRId64 ")",
                     name, n_items, allowed, chunk, words, most);
    else
        bl_error_set(&error, BELAY_SHAPE_CONTRACT,
                     "%s was launched with %" PRId64 " items, its tensors have %" PRId64 "%s%s", name, n_items, allowed,
                     words[0] != '\0' ? ": " : "", words);
    bl_error_advise(&error, "Launch as many items as the tensors have, the last and smaller batch too.");
    refuse(call, &error);
    return false;
}

/* Whether two of a view's elements may be the same place: sorted by stride, each step passes all inner ones. */
static bool elements_are_apart(const bl_slot *slot)
{
    bool used[BELAY_MAX_RANK] = {false};
    int64_t reach = 0; /* the furthest element of the axes that were passed */
    for (int n = 0; n < slot->rank; n++) {
        int next = 0;
        for (int i = 0; i < slot->rank; i++)
            if (!used[i] && (used[next] || slot->stride[i] < slot->stride[next]))
                next = i;
        used[next] = true;
        if (slot->size[next] > 1 && slot->stride[next] <= reach)
            return bl_slot_elements(slot) == 0;
        reach += slot->size[next] > 0 ? (slot->size[next] - 1) * slot->stride[next] : 0;
    }
    return true;
}

/* What is written shares its bytes with nothing else. */
static bool writes_are_alone(const bl_call *call, const bl_signature *s, unsigned written)
{
    for (int k = 0; k < call->n_in; k++) {
        const bl_slot *slot = (written >> k & 1) != 0 ? bl_slot_get(call->context, call->in[k]) : NULL;
        if (slot != NULL && !elements_are_apart(slot)) {
            bl_prove_fail(call, BELAY_SHAPE_CONTRACT, "%s is written, and several of its elements are one place",
                          s->operand[k].name);
            return false;
        }
        for (int j = 0; j < call->n_in && slot != NULL; j++)
            if (j != k && bl_prove_share_bytes(slot, bl_slot_get(call->context, call->in[j]))) {
                bl_prove_fail(call, BELAY_SHAPE_CONTRACT, "%s is written and shares memory with %s", s->operand[k].name,
                              s->operand[j].name);
                return false;
            }
    }
    return true;
}

static bool options_fit(const bl_call *call, const belay_launch_options *options)
{
    const char *name = call->custom->name;
    for (int k = call->n_in; k < BELAY_MAX_KERNEL_OPERANDS; k++)
        if (!belay_tensor_is_nil(options->operand[k])) {
            bl_prove_fail(call, BELAY_CONF_VALUE, "%s was given operand %d, its signature names %d", name, k,
                          call->n_in);
            return false;
        }
    if (options->params_bytes < 0 || options->params_bytes > BELAY_MAX_KERNEL_PARAMS) {
        bl_prove_fail(call, BELAY_CONF_VALUE, "params_bytes of %s is %" PRId64 ", outside [0, %d]", name,
                      options->params_bytes, BELAY_MAX_KERNEL_PARAMS);
        return false;
    }
    if (options->params == NULL && options->params_bytes > 0) {
        bl_prove_fail(call, BELAY_CONF_MISSING, "%s was promised %" PRId64 " bytes of parameters at a NULL pointer",
                      name, options->params_bytes);
        return false;
    }
    return true;
}

/* The launch runs where its operands lie, and only there. */
static bool device_fits(const bl_call *call, const belay_launch_options *options, const bl_proof *p)
{
    const char *own = call->context->places[p->place].device->name, *asked = options->device;
    if (asked == NULL || asked[0] == '\0' || strcmp(asked, own) == 0)
        return true;
    bl_error error;
    bl_error_set(&error, BELAY_PLACE_DEVICE, "%s was launched on %.64s, its operands lie on %s", call->custom->name,
                 asked, own);
    bl_error_advise(&error, "Launch it where its operands lie, or move them by belay_tensor_to.");
    refuse(call, &error);
    return false;
}

/* ---- tensors of other devices ---------------------------------------------------------------------------------------- */

static bool bring(bl_call *call, int k, int home, belay_tensor *copy)
{
    belay_context *context = call->context;
    uint32_t name = bl_slot_get(context, call->in[k])->name;
    bl_stray_note(context, call->custom->name, (bl_given){call->custom->role[k], call->in[k]}, home);
    *copy = call->in[k] = bl_launch_to(context, call->in[k], home);
    if (belay_tensor_is_nil(*copy))
        return false;
    bl_slot_get(context, *copy)->name = name;
    return true;
}

/* Where place is move, what is only read is copied to where the launch writes. */
static bool meet(bl_call *call, unsigned written, belay_tensor copies[BELAY_MAX_KERNEL_OPERANDS])
{
    belay_context *context = call->context;
    int first, other;
    if (context->place != BELAY_PLACE_MOVE || bl_stray_is_none(context, call->in, call->n_in, &first, &other))
        return true;
    belay_tensor results[BELAY_MAX_KERNEL_OPERANDS] = {0};
    for (int k = 0; k < call->n_in; k++)
        results[k] = (written >> k & 1) != 0 ? call->in[k] : results[k];
    if (!bl_stray_is_none(context, results, call->n_in, &first, &other)) {
        bl_prove_fail_places(call, first, other);
        return false;
    }
    int home = bl_stray_home(context, first >= 0 ? results : call->in, call->n_in);
    for (int k = 0; k < call->n_in; k++) {
        const bl_slot *slot = belay_tensor_is_nil(call->in[k]) ? NULL : bl_slot_get(context, call->in[k]);
        if (slot != NULL && slot->storage->place != home && !bring(call, k, home, &copies[k]))
            return false;
    }
    return true;
}

/* ---- the launch ------------------------------------------------------------------------------------------------------ */

static unsigned written_of(const bl_signature *s)
{
    unsigned written = 0;
    for (int k = 0; k < s->n_in + s->n_out; k++)
        written |= (unsigned)(k >= s->n_in || s->operand[k].is_in_place) << k;
    return written;
}

static void name_roles(bl_custom *custom, const bl_signature *s, unsigned written)
{
    for (int k = 0; k < s->n_in + s->n_out; k++) {
        snprintf(custom->role[k], sizeof custom->role[k], "%s", s->operand[k].name);
        custom->args.operand[k].is_written = (written >> k & 1) != 0;
    }
}

/* The proved operands, for the kernel and for the device. */
static void fill(const bl_call *call, const belay_launch_options *options, bl_proof *p)
{
    bl_launch *l = &p->launch;
    belay_kernel_args *args = &call->custom->args;
    args->n_items = l->n_items = options->n_items;
    args->n_operands = l->n_operands = call->n_in;
    args->params_bytes = options->params_bytes;
    if (options->params_bytes > 0)
        memcpy(args->params, options->params, (size_t)options->params_bytes);
    l->custom = call->custom;
    l->work = options->n_items;
    for (int k = 0; k < call->n_in; k++) {
        const bl_slot *slot = belay_tensor_is_nil(call->in[k]) ? NULL : bl_slot_get(call->context, call->in[k]);
        if (slot == NULL)
            continue;
        belay_kernel_operand *o = &args->operand[k];
        o->dtype = slot->dtype;
        o->rank = slot->rank;
        memcpy(o->size, slot->size, sizeof o->size);
        memcpy(o->stride, slot->stride, sizeof o->stride);
        l->operand[k].data = bl_slot_data(slot);
        l->operand[k].dtype = slot->dtype;
        l->work = bl_max_i64(l->work, bl_slot_elements(slot));
    }
}

static bool prove(bl_call *call, const bl_signature *s, const belay_launch_options *options, bl_proof *p)
{
    int64_t dim[8];
    if (!bl_prove_inputs(call, p) || !options_fit(call, options) || !operands_fit(call, s) ||
        !bind_symbols(call, s, dim) || !items_fit(call, s, dim, options->n_items) ||
        !writes_are_alone(call, s, p->written) || !device_fits(call, options, p))
        return false;
    fill(call, options, p);
    return true;
}

static void launch(belay_context *context, const belay_kernel *kernel, const bl_signature *s,
                   const belay_launch_options *options)
{
    bl_custom *custom = bl_custom_new(kernel);
    if (custom == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to launch %s", kernel->name);
        return;
    }
    custom->journal_op = bl_journal_kernel(context->journal, custom->name);
    bl_call call = {.context = context, .custom = custom, .n_in = s->n_in + s->n_out, .policy = BELAY_INDEX_RAISE};
    memcpy(call.in, options->operand, (size_t)call.n_in * sizeof call.in[0]);
    bl_proof p = {.n_in = call.n_in, .written = written_of(s)};
    belay_tensor copies[BELAY_MAX_KERNEL_OPERANDS] = {0};
    name_roles(custom, s, p.written);
    if (meet(&call, p.written, copies) && prove(&call, s, options, &p))
        bl_launch_submit(&call, &p);
    for (int k = 0; k < call.n_in; k++)
        if (!belay_tensor_is_nil(copies[k]))
            bl_tensor_drop(context, copies[k]);
    bl_custom_release(custom);
}

void belay_launch(belay_context *context, const belay_kernel *kernel, const belay_launch_options *options)
{
    BL_ENTER(context);
    if (!belay_is_open(context))
        return;
    if (kernel == NULL || options == NULL || kernel->name == NULL || kernel->signature == NULL ||
        kernel->items == NULL) {
        bl_context_raise(context, BELAY_CONF_MISSING, "a launch needs a kernel of BELAY_KERNEL and its options");
        return;
    }
    bl_signature s;
    if (bl_signature_parse(kernel->signature, &s) && s.n_in + s.n_out <= BELAY_MAX_KERNEL_OPERANDS) {
        launch(context, kernel, &s, options);
        return;
    }
    bl_error error;
    bl_error_set(&error, BELAY_CONF_VALUE, "the signature of kernel %.64s is \"%.200s\", which is none", kernel->name,
                 kernel->signature);
    bl_error_fact(&error, "a signature: \"N: x[N] ids:index[N] -> y[N]\", with at most %d operands",
                  BELAY_MAX_KERNEL_OPERANDS);
    bl_error_advise(&error, "Write it as the head of <belay/kernel.h> says.");
    bl_context_raise_error(context, &error);
}
