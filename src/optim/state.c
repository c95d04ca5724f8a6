/* SPDX-License-Identifier: Apache-2.0 */
/* Making and freeing an optimizer: all that its steps will read and write is made here. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "optim/optim.h"
#include "tensor/window.h"

static void drop_parameter(belay_context *context, bl_optim_parameter *p)
{
    bl_tensor_drop(context, p->flat);
    bl_tensor_drop(context, p->partial);
    for (int m = 0; m < BL_OPTIM_MAX_MOMENTS; m++) {
        bl_tensor_drop(context, p->flat_moment[m]);
        bl_tensor_drop(context, p->moment[m]);
    }
}

/* Everything but the shell, which tells that the optimizer was freed. */
static void optimizer_fini(belay_optimizer *o)
{
    for (int64_t i = 0; i < o->n; i++) {
        bl_slot *leaf = bl_slot_get(o->context, o->parameter[i].leaf);
        if (leaf != NULL)
            leaf->n_optimizers--;
        drop_parameter(o->context, &o->parameter[i]);
    }
    for (int64_t i = 0; i < o->n_entries; i++)
        bl_free(o->entry[i].name);
    const belay_tensor whole[] = {o->used, o->t, o->state, o->partial};
    for (int i = 0; i < BL_COUNT(whole); i++)
        bl_tensor_drop(o->context, whole[i]);
    bl_free(o->entry);
    bl_free(o->is_used);
    bl_free(o->parameter);
}

static void shell_free(void *optimizer) { bl_free(optimizer); }

static void destroy(void *object)
{
    belay_optimizer *o = object;
    o->context->n_optimizers--;
    optimizer_fini(o);
    *o = (belay_optimizer){.context = o->context, .is_freed = true};
    bl_context_bury(o->context, &o->grave, shell_free);
}

belay_optimizer *bl_optim_of(const bl_member *member) { return member->free == destroy ? member->object : NULL; }

void bl_optim_hold(belay_optimizer *o) { o->n_uses++; }
void bl_optim_release(belay_optimizer *o) { o->n_uses--; }

void belay_optimizer_free(belay_optimizer *o)
{
    if (!BL_OPTIM_ASK(o))
        return;
    BL_ENTER(o->context);
    belay_context *context = o->context;
    if (o->n_uses > 0) {
        bl_context_raise(context, BELAY_CONF_ORDER,
                         "an optimizer was freed inside of its own step, or of the training that uses it");
        return;
    }
    for (uint64_t w = context->first_window; w < context->window; w++)
        if (context->windows[bl_window_place(w)].optimizer == o)
            bl_window_settle(context, NULL);
    bl_context_forget(context, o);
    destroy(o);
}

/* ---- parts ----------------------------------------------------------------------------------------------------------- */

static bool is_listed(const belay_optimizer *o, belay_tensor leaf)
{
    for (int64_t i = 0; i < o->n; i++)
        if (o->parameter[i].leaf.slot == leaf.slot && o->parameter[i].leaf.generation == leaf.generation)
            return true;
    return false;
}

/* Squares of gradients below 2e-4 are 0 in f16: the weight would jump by a rate divided by eps. */
static void refuse_f16(belay_context *context, const char *name, int64_t number)
{
    bl_error error;
    bool has_name = name[0] != '\0';
    bl_error_set(&error, BELAY_TYPE_DTYPE, "parameter %" PRId64 " of an Adam optimizer%s%.100s%s is f16", number,
                 has_name ? ", " : "", name, has_name ? "," : "");
    bl_error_fact(&error,
                  "the squares of its gradients, which Adam divides by, would vanish in f16: the least is 6e-8");
    bl_error_advise(&error,
                    "Keep parameters f32 and run the forward in f16 by belay_autocast_open, or make them bf16.");
    bl_context_raise_error(context, &error);
}

/* A leaf that a kernel may write as one run of floats. */
static bool check_leaf(belay_context *context, const bl_optim_rule *rule, belay_tensor leaf, int64_t number)
{
    const bl_slot *slot = bl_slot_use(context, leaf);
    if (belay_tensor_is_nil(leaf))
        bl_context_raise(context, BELAY_CONF_MISSING, "parameter %" PRId64 " of an optimizer is nil", number);
    if (slot == NULL)
        return false;
    const char *name = bl_journal_text_get(context->journal, slot->name);
    if (!belay_dtype_is_float((belay_dtype)slot->dtype)) {
        bl_context_raise(context, BELAY_TYPE_DTYPE,
                         "parameter %" PRId64 " of an optimizer, %s, is %s: it must be a float", number, name,
                         belay_dtype_name((belay_dtype)slot->dtype));
        return false;
    }
    if (slot->dtype == BELAY_F16 && rule->op == BL_OP_optim_adam) {
        refuse_f16(context, name, number);
        return false;
    }
    if (!bl_slot_is_contiguous(slot))
        bl_context_raise(context, BELAY_SHAPE_CONTRACT, "parameter %" PRId64 " of an optimizer, %s, is not contiguous",
                         number, name);
    return bl_slot_is_contiguous(slot);
}

belay_tensor bl_optim_flat(belay_context *context, belay_tensor tensor)
{
    belay_shape flat = belay_shape1(belay_tensor_n_elements(tensor));
    return bl_tensor_own(context, bl_launch_reshape(context, tensor, &flat));
}

/* All lies where the parameters lie. */
static belay_tensor zeros(const belay_optimizer *o, belay_dtype dtype, const belay_shape *shape, const char *name)
{
    belay_context *context = o->context;
    belay_tensor tensor = bl_tensor_own(context, bl_launch_fill_like(context, o->parameter[0].leaf, dtype, shape, 0));
    if (!belay_tensor_is_nil(tensor))
        bl_slot_get(context, tensor)->name = bl_journal_text(context->journal, name);
    return tensor;
}

/* Adds a tensor under "what" or "what.parameter" to those that a checkpoint holds. */
static bool add_entry(belay_optimizer *o, const char *what, const char *parameter, belay_tensor tensor)
{
    bl_text words = {0};
    bl_text_format(&words, "%s%s%s", what, parameter[0] != '\0' ? "." : "", parameter);
    char *name = words.failed ? NULL : bl_strdup(bl_text_get(&words));
    bl_text_fini(&words);
    if (name == NULL)
        return false;
    o->entry[o->n_entries++] = (bl_optim_entry){name, tensor};
    return true;
}

static bool make_moments(belay_optimizer *o, bl_optim_parameter *p, const char *name)
{
    belay_context *context = o->context;
    belay_shape shape = belay_tensor_shape(p->leaf);
    p->flat = bl_optim_flat(context, p->leaf);
    for (int m = 0; m < BL_OPTIM_MAX_MOMENTS; m++) {
        if (o->rule.moment[m] == NULL)
            continue;
        p->moment[m] = zeros(o, belay_tensor_dtype(p->leaf), &shape, o->rule.moment[m]);
        p->flat_moment[m] = bl_optim_flat(context, p->moment[m]);
        if (belay_tensor_is_nil(p->flat_moment[m]) || !add_entry(o, o->rule.moment[m], name, p->moment[m]))
            return false;
    }
    return !belay_tensor_is_nil(p->flat);
}

static int64_t n_chunks(const bl_optim_parameter *p)
{
    int64_t n = belay_tensor_n_elements(p->leaf);
    return n / BL_OPTIM_CHUNK + (n % BL_OPTIM_CHUNK != 0);
}

/* The partial sums of all gradients in one tensor, and each parameter's part of it. */
static bool make_partials(belay_optimizer *o)
{
    int64_t total = 0, begin = 0;
    const int64_t stride = 1;
    for (int64_t i = 0; i < o->n; i++)
        total += n_chunks(&o->parameter[i]); /* less than the elements that exist */
    belay_shape shape = belay_shape1(total);
    o->partial = zeros(o, BELAY_F64, &shape, "squares");
    for (int64_t i = 0; i < o->n && !belay_tensor_is_nil(o->partial); i++) {
        bl_optim_parameter *p = &o->parameter[i];
        belay_shape part = belay_shape1(n_chunks(p));
        p->partial = bl_tensor_own(o->context, bl_tensor_view(o->context, o->partial, &part, &stride, begin));
        if (belay_tensor_is_nil(p->partial))
            return false;
        begin += part.size[0];
    }
    return !belay_tensor_is_nil(o->partial);
}

static bool make_state(belay_optimizer *o)
{
    belay_shape ages = belay_shape1(o->n), state = belay_shape1(BL_OPTIM_STATE);
    o->used = zeros(o, BELAY_U8, &ages, "used");
    o->t = zeros(o, BELAY_F64, &ages, "t");
    o->state = zeros(o, BELAY_F64, &state, "state");
    return !belay_tensor_is_nil(o->used) && !belay_tensor_is_nil(o->t) && !belay_tensor_is_nil(o->state) &&
           add_entry(o, "t", "", o->t) && add_entry(o, "state", "", o->state);
}

/* Scalars of optim_prepare, as its row says. */
static void set_prepare(belay_optimizer *o)
{
    const belay_schedule *s = &o->rule.schedule;
    double *f = o->prepare.f;
    f[0] = o->rule.lr;
    f[1] = (double)s->period;
    f[2] = s->kind == BELAY_SCHEDULE_STEP ? (s->gamma != 0 ? s->gamma : 0.1) : s->end / o->rule.lr;
    f[3] = (double)s->warmup;
    f[4] = s->warmup_start;
    f[5] = o->rule.clip;
    o->prepare.i[0] = s->kind;
}

static belay_optimizer *allocate(int64_t n)
{
    int64_t most;
    belay_optimizer *o = bl_alloc(1, sizeof *o);
    if (o == NULL || !bl_checked_mul(n, BL_OPTIM_MAX_MOMENTS, &most) || !bl_checked_add(most, 2, &most)) {
        bl_free(o);
        return NULL;
    }
    o->parameter = bl_alloc(n, sizeof *o->parameter);
    o->is_used = bl_alloc(n, sizeof *o->is_used);
    o->entry = bl_alloc(most, sizeof *o->entry);
    if (o->parameter != NULL && o->is_used != NULL && o->entry != NULL)
        return o;
    bl_free(o->parameter);
    bl_free(o->is_used);
    bl_free(o->entry);
    bl_free(o);
    return NULL;
}

/* One kernel updates all: a parameter lies where the first one does. */
static bool check_place(const belay_optimizer *o, belay_tensor leaf, int64_t number)
{
    const bl_slot *slot = bl_slot_get(o->context, leaf);
    const bl_slot *first = o->n > 0 ? bl_slot_get(o->context, o->parameter[0].leaf) : slot;
    if (slot->storage->place == first->storage->place)
        return true;
    bl_error error;
    bl_error_set(&error, BELAY_PLACE_DEVICE,
                 "parameter %" PRId64 " of an optimizer, %.100s, lies on %s, those before it on %s", number,
                 bl_journal_text_get(o->context->journal, slot->name), bl_slot_device(o->context, slot)->name,
                 bl_slot_device(o->context, first)->name);
    bl_error_advise(&error, "Make an optimizer for the parameters of each device.");
    bl_context_raise_error(o->context, &error);
    return false;
}

/* Parameter number i of the list; true for one that is there already. */
static bool add_parameter(belay_optimizer *o, const bl_optim_list *list, int64_t i)
{
    belay_tensor leaf = list->parameter[i];
    if (!check_leaf(o->context, &o->rule, leaf, i) || !check_place(o, leaf, i))
        return false;
    if (is_listed(o, leaf))
        return true;
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, o->n);
    const char *name = list->name != NULL ? list->name[i] : belay_tensor_name(leaf);
    bl_optim_parameter *p = &o->parameter[o->n++];
    p->leaf = leaf;
    bl_slot_get(o->context, leaf)->n_optimizers++;
    return make_moments(o, p, name[0] != '\0' ? name : number);
}

/* Everything but the optimizer itself; false with or without a fault told. */
static bool make_parts(belay_optimizer *o, const bl_optim_list *list)
{
    for (int64_t i = 0; i < list->n; i++)
        if (!add_parameter(o, list, i))
            return false;
    return make_partials(o) && make_state(o);
}

belay_optimizer *bl_optim_new(belay_context *context, const bl_optim_list *list, const bl_optim_rule *rule)
{
    int64_t n = list->parameter != NULL ? list->n : 0;
    if (n < 1) {
        bl_context_raise(context, BELAY_CONF_MISSING, "an optimizer needs a parameter; %" PRId64 " were given", n);
        return NULL;
    }
    int64_t faults = context->n_faults;
    belay_optimizer *o = allocate(n);
    if (o != NULL) {
        o->context = context;
        o->rule = *rule;
        o->divisor = 1;
        context->tell_window = bl_optim_tell_window;
        set_prepare(o);
        if (make_parts(o, list) && bl_context_adopt(context, o, destroy)) {
            context->n_optimizers++;
            return o;
        }
        optimizer_fini(o);
        bl_free(o);
    }
    if (context->n_faults == faults)
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for an optimizer of %" PRId64 " parameters", n);
    return NULL;
}

/* ---- what a checkpoint holds ----------------------------------------------------------------------------------------- */

int64_t belay_optimizer_n_state(const belay_optimizer *o) { return BL_OPTIM_ASK(o) ? o->n_entries : 0; }

bool belay_optimizer_state_get(const belay_optimizer *o, int64_t number, const char **name, belay_tensor *tensor)
{
    if (!BL_OPTIM_ASK(o) || number < 0 || number >= o->n_entries)
        return false;
    if (name != NULL)
        *name = o->entry[number].name;
    if (tensor != NULL)
        *tensor = o->entry[number].tensor;
    return true;
}

/* ---- values of a file ------------------------------------------------------------------------------------------------ */

bool bl_optim_is_count(double value) { return value >= 0 && value <= 0x1p53 && floor(value) == value; }

static bool check_ages(const void *bytes, int64_t n_bytes, bl_text *why)
{
    for (int64_t i = 0; i < n_bytes / (int64_t)sizeof(double); i++) {
        double t;
        memcpy(&t, (const double *)bytes + i, sizeof t);
        if (bl_optim_is_count(t))
            continue;
        bl_text_format(why, "an age of %g, outside " BL_OPTIM_COUNTS, bl_text_real(t));
        return false;
    }
    return true;
}

/* Rate, factor and norm are what the last step used: no step reads them. */
static bool check_counts(const void *bytes, int64_t n_bytes, bl_text *why)
{
    static const struct {
        int place;
        const char *name;
    } counts[] = {{BL_OPTIM_POSITION, "schedule's position"},
                  {BL_OPTIM_APPLIED, "number of applied steps"},
                  {BL_OPTIM_FAULTED, "number of faulted steps"},
                  {BL_OPTIM_OVERFLOWED, "number of overflowed steps"}};
    double state[BL_OPTIM_STATE] = {0};
    memcpy(state, bytes, (size_t)bl_min_i64(n_bytes, sizeof state));
    for (int i = 0; i < BL_COUNT(counts); i++) {
        if (bl_optim_is_count(state[counts[i].place]))
            continue;
        bl_text_format(why, "a %s of %g, outside " BL_OPTIM_COUNTS, counts[i].name,
                       bl_text_real(state[counts[i].place]));
        return false;
    }
    return true;
}

bl_optim_check bl_optim_check_of(const char *name)
{
    return strcmp(name, "t") == 0 ? check_ages : strcmp(name, "state") == 0 ? check_counts : NULL;
}
