/* SPDX-License-Identifier: Apache-2.0 */
/* Autocast: regions, the casts in front of an op, and the weights that a region has cast already.
 *
 * What is kept of a weight is values only.  Each use of them is recorded as a cast of its own, so that it does not
 * matter which scopes have closed and which backward has walked since. */
#include <belay/amp.h>

#include <string.h>

#include "base/memory.h"
#include "op/op.h"
#include "tensor/loan.h"

/* ---- the weights that were cast -------------------------------------------------------------------------------------- */

/* Good while the weight's storage is at that version; made on a stream, and ordered behind nothing on others. */
typedef struct cast_entry {
    belay_tensor leaf, values;
    int dtype, stream;
    uint64_t storage, version;
} cast_entry;

struct bl_cast_cache {
    belay_context *context;
    cast_entry *entry;
    int64_t n, capacity;
};

static void forget_all(struct bl_cast_cache *cache)
{
    for (int64_t i = 0; i < cache->n; i++)
        bl_tensor_drop(cache->context, cache->entry[i].values);
    cache->n = 0;
}

static void cache_free(void *object)
{
    struct bl_cast_cache *cache = object;
    forget_all(cache);
    cache->context->mixed.cache = NULL;
    bl_free(cache->entry);
    bl_free(cache);
}

static struct bl_cast_cache *cache_of(belay_context *context)
{
    if (context->mixed.cache != NULL)
        return context->mixed.cache;
    struct bl_cast_cache *cache = bl_alloc(1, sizeof *cache);
    if (cache == NULL || !bl_context_adopt(context, cache, cache_free)) {
        bl_free(cache);
        return NULL;
    }
    cache->context = context;
    return context->mixed.cache = cache;
}

/* The entry of that weight in that dtype, a new one where there is none; NULL when memory ended. */
static cast_entry *entry_of(belay_context *context, belay_tensor leaf, int dtype)
{
    struct bl_cast_cache *cache = cache_of(context);
    if (cache == NULL)
        return NULL;
    for (int64_t i = 0; i < cache->n; i++) {
        cast_entry *e = &cache->entry[i];
        if (e->leaf.slot == leaf.slot && e->leaf.generation == leaf.generation && e->dtype == dtype)
            return e;
    }
    if (!bl_grow(&cache->entry, &cache->capacity, cache->n + 1, sizeof *cache->entry))
        return NULL;
    cache->entry[cache->n] = (cast_entry){.leaf = leaf, .dtype = dtype};
    return &cache->entry[cache->n++];
}

static bool is_good(const belay_context *context, const cast_entry *e, const bl_slot *leaf)
{
    return bl_slot_get(context, e->values) != NULL && e->storage == leaf->storage->serial &&
           e->version == leaf->storage->version && e->stream == context->places[leaf->storage->place].stream;
}

static belay_tensor cast_values(belay_context *context, belay_tensor x, belay_dtype dtype)
{
    belay_tensor y = bl_launch_cast(context, x, dtype);
    if (!belay_tensor_is_nil(y))
        bl_slot_get(context, y)->name = bl_slot_get(context, x)->name; /* reports call it by the name that it has */
    return y;
}

/* A weight's values in that dtype, as a tensor of the innermost scope. */
static belay_tensor weight_values(belay_context *context, belay_tensor leaf, belay_dtype dtype)
{
    cast_entry *e = entry_of(context, leaf, dtype);
    const bl_slot *slot = bl_slot_get(context, leaf);
    if (e == NULL) /* no room to keep it: no fault either */
        return cast_values(context, leaf, dtype);
    if (!is_good(context, e, slot)) {
        bl_tensor_drop(context, e->values);
        e->storage = slot->storage->serial;
        e->version = slot->storage->version;
        e->stream = context->places[slot->storage->place].stream;
        e->values = bl_tensor_own(context, cast_values(context, leaf, dtype));
    }
    const bl_slot *kept = bl_slot_get(context, e->values);
    if (kept == NULL)
        return (belay_tensor){0};
    belay_shape shape = bl_slot_shape(kept);
    belay_tensor view = bl_tensor_view(context, e->values, &shape, kept->stride, kept->offset);
    if (!belay_tensor_is_nil(view))
        bl_slot_get(context, view)->name = kept->name;
    return view;
}

/* ---- the casts in front of an op ------------------------------------------------------------------------------------- */

static bool is_castable(const bl_slot *slot)
{
    return slot != NULL && (slot->dtype == BELAY_F32 || slot->dtype == BELAY_BF16 || slot->dtype == BELAY_F16);
}

/* Operand k is of the op's column: dtypes that its row names stay. */
static bool is_of_column(const bl_signature *s, int op, int k)
{
    if (bl_kernel_rows[op].signature == NULL || k >= s->n_in)
        return true;
    return s->operand[k].dtype == BL_SIGNATURE_COLUMN && !s->operand[k].is_in_place;
}

/* What the operands become; the dtype of the first where nothing is to be cast. */
static int wanted_dtype(belay_context *context, int op, const belay_tensor *tensor, int n)
{
    bl_amp amp = bl_kernel_rows[op].amp;
    int widest = -1;
    if (amp != BL_AMP_SAME)
        return amp == BL_AMP_LOWER ? context->mixed.autocast : BELAY_F32;
    for (int k = 0; k < n; k++) {
        const bl_slot *slot = bl_slot_get(context, tensor[k]);
        if (slot != NULL && slot->dtype == BELAY_F64)
            return -1;
        if (is_castable(slot) && is_of_column(bl_signature_of(op), op, k))
            widest = widest < 0 || widest == slot->dtype ? slot->dtype : BELAY_F32;
    }
    return widest;
}

static belay_tensor cast_one(belay_context *context, belay_tensor x, belay_dtype dtype)
{
    const bl_slot *slot = bl_slot_get(context, x);
    bool is_weight = slot->requires_grad && slot->node == 0 && slot->dtype == BELAY_F32 &&
                     !bl_loan_is_shared(slot->storage->loan); /* else it may be written with nobody told */
    belay_tensor y = is_weight ? weight_values(context, x, dtype) : cast_values(context, x, dtype);
    return bl_op_record_view(context, x, y, bl_grad_cast, NULL);
}

/* An op that can be walked back runs under autocast in the window at work.  In a walk back, of a user's function, no
 * region need be open. */
static void note_use(belay_context *context, const belay_tensor *tensor, int n)
{
    bl_mixed *m = &context->mixed;
    if (m->n_regions == 0 || !bl_grad_is_wanted(context, tensor, n))
        return;
    m->cast_window = context->window + 1;
    m->cast_at = m->regions[m->n_regions - 1].site;
}

static bool cast_all(belay_context *context, int op, belay_tensor *tensor, int n)
{
    int dtype = wanted_dtype(context, op, tensor, n);
    note_use(context, tensor, n);
    for (int k = 0; k < n && dtype >= 0; k++) {
        const bl_slot *slot = bl_slot_get(context, tensor[k]);
        if (!is_castable(slot) || slot->dtype == dtype || !is_of_column(bl_signature_of(op), op, k))
            continue;
        tensor[k] = cast_one(context, tensor[k], (belay_dtype)dtype);
        if (belay_tensor_is_nil(tensor[k]))
            return false;
    }
    return true;
}

bool bl_op_autocast(belay_context *context, int op, belay_tensor *tensor, int n)
{
    return BL_LIKELY(context->mixed.autocast == 0) || cast_all(context, op, tensor, n);
}

bool bl_op_autocast_call(bl_call *call)
{
    belay_tensor before[BL_MAX_IN];
    memcpy(before, call->in, sizeof before);
    bool done = cast_all(call->context, call->op, call->in, call->n_in);
    for (int k = 0; k < call->n_in; k++)
        if (belay_tensor_is_nil(call->shown[k]) && call->in[k].slot != before[k].slot)
            call->shown[k] = before[k];
    return done;
}

/* ---- regions --------------------------------------------------------------------------------------------------------- */

belay_autocast belay_autocast_open(belay_context *context, belay_dtype dtype)
{
    BL_ENTER(context);
    if (!belay_is_open(context))
        return (belay_autocast){0};
    bl_mixed *m = &context->mixed;
    if (dtype != BELAY_BF16 && dtype != BELAY_F16 && dtype != BELAY_F32) {
        bl_context_raise(context, BELAY_CONF_VALUE, "autocast to %s: bf16 and f16 are taken, and f32 for none",
                         belay_dtype_name(dtype));
        return (belay_autocast){0};
    }
    if (m->n_regions == BL_MAX_AUTOCASTS) {
        bl_context_raise(context, BELAY_LIFE_SCOPE, "%d autocast regions are open, the most that there can be",
                         BL_MAX_AUTOCASTS);
        return (belay_autocast){0};
    }
    bl_autocast_region *region = &m->regions[m->n_regions++];
    *region = (bl_autocast_region){.before = m->autocast, .serial = ++m->region_serial, .site = context->site};
    m->autocast = dtype == BELAY_F32 ? 0 : (int)dtype;
    return (belay_autocast){context->number, (uint32_t)m->n_regions, region->serial};
}

void belay_autocast_close(belay_autocast autocast)
{
    belay_context *context = bl_context_find(autocast.context);
    BL_ENTER(context);
    if (context == NULL)
        return;
    bl_mixed *m = &context->mixed;
    bool is_open = autocast.depth >= 1 && autocast.depth <= (uint32_t)m->n_regions &&
                   m->regions[autocast.depth - 1].serial == autocast.serial;
    if (!is_open) {
        bl_context_raise(context, BELAY_LIFE_SCOPE, "an autocast region was closed that is not open (%d are)",
                         m->n_regions);
        return;
    }
    int n_inside = m->n_regions - (int)autocast.depth;
    if (n_inside > 0)
        bl_context_raise(context, BELAY_LIFE_SCOPE, "an autocast region was closed while %d inside of it %s open",
                         n_inside, n_inside == 1 ? "is" : "are");
    m->n_regions = (int)autocast.depth - 1;
    m->autocast = m->regions[autocast.depth - 1].before;
    if (m->n_regions == 0 && m->cache != NULL)
        forget_all(m->cache);
}

belay_dtype belay_autocast_get(const belay_context *context)
{
    return BL_ASK(context) ? (belay_dtype)context->mixed.autocast : BELAY_F32;
}
