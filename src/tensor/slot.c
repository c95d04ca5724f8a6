/* SPDX-License-Identifier: Apache-2.0 */
/* Slots, storages and scopes: who owns a tensor and when it dies.  docs/lifetime.md states the rules. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "tensor/loan.h"
#include "tensor/place.h"
#include "tensor/redzone.h"

/* ---- questions ------------------------------------------------------------------------------------------------------- */

/* The death of a handle's tensor, while the ring holds it. */
static const bl_death *death_of(const belay_context *context, belay_tensor tensor)
{
    for (uint64_t back = 1; back <= context->n_deaths && back <= BL_MAX_DEATHS; back++) {
        const bl_death *death = &context->deaths[(context->n_deaths - back) % BL_MAX_DEATHS];
        if (death->slot == tensor.slot && death->generation == tensor.generation)
            return death;
    }
    return NULL;
}

/* No tensor ever had this slot and generation: the handle was made up, or overwritten. */
static bool is_forged(const belay_context *context, belay_tensor tensor)
{
    if (tensor.slot == 0 || (int64_t)tensor.slot >= context->n_slots)
        return true;
    const bl_slot *slot = bl_slot_at(context, tensor.slot);
    if (slot->generation == 0) /* retired: all have been given */
        return false;
    return tensor.generation > slot->generation || (tensor.generation == slot->generation && !slot->is_alive);
}

static void raise_forged(belay_context *context, belay_tensor tensor)
{
    bl_error error;
    bl_error_set(&error, BELAY_LIFE_STALE,
                 "a handle was used that no tensor ever had: slot %" PRIu32 ", generation %" PRIu32, tensor.slot,
                 tensor.generation);
    bl_error_advise(&error, "Use handles as Belay gave them: this one was made up, or its memory was overwritten.");
    bl_context_raise_error(context, &error);
}

/* "tensor hidden [64, 256] f32 was used after it had died" */
static void raise_stale(belay_context *context, belay_tensor tensor)
{
    bl_report_fault f;
    bl_text words = {0};
    bl_report_fault_init(&f, BELAY_LIFE_STALE);
    const bl_death *death = death_of(context, tensor);
    const char *name = death != NULL ? bl_journal_text_get(context->journal, death->name) : "";
    bl_text_format(&words, "%s%.200s", name[0] != '\0' ? "tensor " : "a tensor", name);
    if (death != NULL) {
        belay_shape shape = {.rank = death->rank};
        memcpy(shape.size, death->size, sizeof shape.size);
        bl_text_add(&words, " ");
        bl_report_shape(&shape, &words);
        bl_text_format(&words, " %s", belay_dtype_name(death->dtype));
        char site[256];
        bl_context_site(context, death->site, site, sizeof site);
        bl_report_fault_fact(&f, "died at: %s, in step %" PRIu64, site, death->step);
    } else {
        bl_report_fault_fact(&f, "died: more than %d tensors ago", BL_MAX_DEATHS);
    }
    snprintf(f.what, sizeof f.what, "%s was used after it had died", bl_text_get(&words));
    bl_text_fini(&words);
    bl_context_fault(context, &f);
}

bl_slot *bl_slot_use(belay_context *context, belay_tensor tensor)
{
    if (belay_tensor_is_nil(tensor))
        return NULL;
    bl_slot *slot = bl_slot_get(context, tensor);
    if (BL_LIKELY(slot != NULL))
        return slot;
    if (tensor.context != context->number)
        bl_context_raise_foreign(context, "a tensor that was used here", tensor);
    else if (is_forged(context, tensor))
        raise_forged(context, tensor);
    else
        raise_stale(context, tensor);
    return NULL;
}

belay_shape bl_slot_shape(const bl_slot *slot)
{
    belay_shape shape = {.rank = slot->rank};
    memcpy(shape.size, slot->size, sizeof shape.size);
    return shape;
}

int64_t bl_slot_elements(const bl_slot *slot)
{
    int64_t n = 1;
    for (int i = 0; i < slot->rank; i++)
        n *= slot->size[i]; /* checked when the slot was made */
    return n;
}

bool bl_slot_is_contiguous(const bl_slot *slot)
{
    int64_t expected = 1;
    for (int i = slot->rank - 1; i >= 0; i--) {
        if (slot->size[i] != 1 && slot->stride[i] != expected)
            return bl_slot_elements(slot) == 0;
        expected *= slot->size[i];
    }
    return true;
}

bool bl_shape_strides(const belay_shape *shape, int64_t stride[BELAY_MAX_RANK], int64_t *n_elements)
{
    if (!bl_checked_product(shape->size, shape->rank, n_elements))
        return false;
    int64_t step = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        stride[i] = step;
        if (!bl_checked_mul(step, bl_max_i64(shape->size[i], 1), &step))
            return false;
    }
    return true;
}

/* ---- storages -------------------------------------------------------------------------------------------------------- */

static void note_storage(belay_context *context, bl_storage *storage, bool is_death)
{
    bl_storage_record record = {.storage = storage->serial,
                                .address = (uint64_t)(uintptr_t)storage->data,
                                .n_bytes = (uint64_t)storage->n_bytes,
                                .step = context->step,
                                .name = storage->name,
                                .site = bl_journal_site(context->journal, context->site),
                                .is_death = is_death};
    bl_journal_storage(context->journal, &record, &storage->listed);
}

static bl_storage *storage_new(belay_context *context, int place, int64_t n_bytes, uint32_t name)
{
    bl_storage *storage = context->free_storage;
    if (storage != NULL)
        context->free_storage = storage->next_free;
    else
        storage = bl_alloc(1, sizeof *storage);
    bl_uses *uses = storage != NULL ? storage->uses : NULL;
    if (storage != NULL && uses == NULL && bl_place_is_asynchronous(context, place))
        uses = storage->uses = bl_alloc(1, sizeof *uses);
    if (uses != NULL)
        uses->n = 0;
    bool is_ready = storage != NULL && (uses != NULL || !bl_place_is_asynchronous(context, place));
    void *data = is_ready ? bl_place_take(context, place, n_bytes, uses) : NULL;
    if (data == NULL) {
        if (storage != NULL) {
            storage->next_free = context->free_storage;
            context->free_storage = storage;
        }
        return NULL;
    }
    *storage = (bl_storage){.holders = 1,
                            .data = data,
                            .n_bytes = n_bytes,
                            .serial = ++context->n_births,
                            .name = name,
                            .site = context->site,
                            .place = place,
                            .uses = uses};
    context->n_storages_alive++;
    note_storage(context, storage, false);
    bl_redzone_tell_mappings(context, place);
    return storage;
}

/* A storage over memory that another library lent; NULL when memory ends, and the hold on the loan is let go of. */
static bl_storage *storage_over(belay_context *context, int place, void *data, int64_t n_bytes, bl_loan *loan)
{
    bl_storage *storage = context->free_storage;
    if (storage != NULL)
        context->free_storage = storage->next_free;
    else
        storage = bl_alloc(1, sizeof *storage);
    if (storage == NULL) {
        bl_loan_release(loan);
        return NULL;
    }
    if (storage->uses != NULL)
        storage->uses->n = 0;
    *storage = (bl_storage){.holders = 1,
                            .data = data,
                            .n_bytes = n_bytes,
                            .serial = ++context->n_births,
                            .site = context->site,
                            .place = place,
                            .uses = storage->uses,
                            .loan = loan};
    context->n_storages_alive++;
    note_storage(context, storage, false);
    return storage;
}

static void give_back(belay_context *context, bl_storage *storage)
{
    bl_place_give(context, storage);
    storage->next_free = context->free_storage;
    context->free_storage = storage;
}

void bl_storage_release(belay_context *context, bl_storage *storage)
{
    if (storage == NULL || --storage->holders > 0)
        return;
    note_storage(context, storage, true);
    context->n_storages_alive--;
    if (storage->flights == 0)
        give_back(context, storage);
}

void bl_storage_land(belay_context *context, bl_storage *storage)
{
    if (--storage->flights == 0 && storage->holders == 0)
        give_back(context, storage);
}

/* ---- slots ----------------------------------------------------------------------------------------------------------- */

static uint32_t *owner_list(belay_context *context, int32_t owner)
{
    return owner == BL_OWNER_OBJECT ? &context->object_list : &context->scopes[owner].first;
}

static void link_slot(belay_context *context, uint32_t number, int32_t owner)
{
    bl_slot *slot = bl_slot_at(context, number);
    uint32_t *first = owner_list(context, owner);
    slot->owner = owner;
    slot->previous = 0;
    slot->next = *first;
    if (*first != 0)
        bl_slot_at(context, *first)->previous = number;
    *first = number;
}

static void unlink_slot(belay_context *context, uint32_t number)
{
    bl_slot *slot = bl_slot_at(context, number);
    if (slot->previous != 0)
        bl_slot_at(context, slot->previous)->next = slot->next;
    else
        *owner_list(context, slot->owner) = slot->next;
    if (slot->next != 0)
        bl_slot_at(context, slot->next)->previous = slot->previous;
}

/* Makes room for slot number n_slots. */
static bool another_block(belay_context *context)
{
    if (context->n_slots < context->n_blocks * BL_SLOT_BLOCK)
        return true;
    if (!bl_grow(&context->slot_blocks, &context->blocks_capacity, context->n_blocks + 1, sizeof(bl_slot *)))
        return false;
    bl_slot *block = bl_alloc(BL_SLOT_BLOCK, sizeof *block);
    if (block != NULL)
        context->slot_blocks[context->n_blocks++] = block;
    return block != NULL;
}

/* A free slot, its generation that of the coming tenant; 0 when memory ends. */
static uint32_t slot_take(belay_context *context)
{
    uint32_t number = context->free_slot;
    if (number != 0) {
        context->free_slot = bl_slot_at(context, number)->next;
    } else {
        if (context->n_slots >= UINT32_MAX || !another_block(context))
            return 0;
        number = (uint32_t)context->n_slots++;
        bl_slot_at(context, number)->generation = 1;
    }
    return number;
}

static belay_tensor handle_of(const belay_context *context, uint32_t number)
{
    return (belay_tensor){context->number, number, bl_slot_at(context, number)->generation};
}

/* Makes a tenant in the innermost scope; takes over one hold on `storage`. */
static belay_tensor slot_fill(belay_context *context, bl_storage *storage, int dtype, const belay_shape *shape,
                              const int64_t *stride, int64_t offset, uint32_t name)
{
    uint32_t number = slot_take(context);
    if (number == 0) {
        bl_storage_release(context, storage);
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for another tensor");
        return (belay_tensor){0};
    }
    bl_slot *slot = bl_slot_at(context, number);
    uint32_t generation = slot->generation;
    *slot = (bl_slot){.generation = generation,
                      .is_alive = true,
                      .dtype = (uint8_t)dtype,
                      .rank = (uint8_t)shape->rank,
                      .name = name,
                      .offset = offset,
                      .data = (char *)storage->data + offset * belay_dtype_size(dtype),
                      .storage = storage};
    memcpy(slot->size, shape->size, (size_t)shape->rank * sizeof *slot->size);
    memcpy(slot->stride, stride, (size_t)shape->rank * sizeof *stride);
    link_slot(context, number, (int32_t)context->depth);
    return handle_of(context, number);
}

static void note_death(belay_context *context, uint32_t number)
{
    const bl_slot *slot = bl_slot_at(context, number);
    bl_death *death = &context->deaths[context->n_deaths++ % BL_MAX_DEATHS];
    death->slot = number;
    death->generation = slot->generation;
    death->name = slot->name;
    death->dtype = slot->dtype;
    death->rank = slot->rank;
    memcpy(death->size, slot->size, sizeof death->size);
    death->site = context->site;
    death->step = context->step;
}

/* The tenant dies: its handles are stale from now on.  A block of our own is looked at before, while they name it; who
 * lent memory hears of the end behind that. */
static void slot_die(belay_context *context, uint32_t number)
{
    bl_slot *slot = bl_slot_at(context, number);
    belay_tensor grad = slot->grad;
    bl_loan *loan = slot->storage->loan;
    bl_storage *guest = loan != NULL && loan->is_guest ? slot->storage : NULL;
    note_death(context, number);
    unlink_slot(context, number);
    if (guest == NULL)
        bl_storage_release(context, slot->storage);
    slot->is_alive = false;
    slot->storage = NULL;
    slot->grad = (belay_tensor){0};
    if (++slot->generation != 0) { /* a generation that would wrap retires the slot */
        slot->next = context->free_slot;
        context->free_slot = number;
    }
    if (guest != NULL)
        bl_storage_release(context, guest);
    if (!belay_tensor_is_nil(grad))
        bl_tensor_drop(context, grad);
}

/* ---- makers ---------------------------------------------------------------------------------------------------------- */

static belay_code raise_shape(belay_context *context, belay_code code, const belay_shape *shape, const char *what)
{
    bl_text words = {0};
    bl_report_shape(shape, &words);
    bl_context_raise(context, code, "a tensor of shape %s %s", bl_text_get(&words), what);
    bl_text_fini(&words);
    return code;
}

static bool shape_is_legal(belay_context *context, const belay_shape *shape)
{
    if (shape->rank < 0 || shape->rank > BELAY_MAX_RANK) {
        bl_context_raise(context, BELAY_SHAPE_RANK, "a tensor of %d axes: the most are %d", shape->rank,
                         BELAY_MAX_RANK);
        return false;
    }
    for (int i = 0; i < shape->rank; i++)
        if (shape->size[i] < 0) {
            raise_shape(context, BELAY_SHAPE_CONTRACT, shape, "has a negative size");
            return false;
        }
    return true;
}

belay_tensor bl_tensor_new(belay_context *context, belay_dtype dtype, const belay_shape *shape, const char *name)
{
    return bl_tensor_new_on(context, context != NULL ? context->here : 0, dtype, shape, name);
}

belay_tensor bl_tensor_new_on(belay_context *context, int place, belay_dtype dtype, const belay_shape *shape,
                              const char *name)
{
    int64_t stride[BELAY_MAX_RANK] = {0}, n, n_bytes;
    if (context == NULL || !belay_is_open(context) || !shape_is_legal(context, shape))
        return (belay_tensor){0};
    if (belay_dtype_size(dtype) == 0) {
        bl_context_raise(context, BELAY_TYPE_DTYPE, "dtype %d is none", (int)dtype);
        return (belay_tensor){0};
    }
    if (!bl_shape_strides(shape, stride, &n) || !bl_checked_mul(n, belay_dtype_size(dtype), &n_bytes)) {
        raise_shape(context, BELAY_SIZE_OVERFLOW, shape, "has more bytes than 2^63 - 1");
        return (belay_tensor){0};
    }
    uint32_t text = name != NULL ? bl_journal_text(context->journal, name) : 0;
    bl_storage *storage = storage_new(context, place, n_bytes, text);
    if (storage == NULL) {
        bl_report_fault f;
        bl_report_fault_init(&f, BELAY_MEM_EXHAUSTED);
        bl_device *device = context->places[place].device;
        belay_memory memory = {0};
        bl_pool_memory(device->api->pool(device), &memory.in_use, &memory.held, &memory.peak);
        snprintf(f.device, sizeof f.device, "%s", device->name);
        snprintf(f.what, sizeof f.what, "no memory for a tensor of %" PRId64 " bytes", n_bytes);
        bl_report_fault_fact(&f, "in use: %" PRId64 " bytes, held: %" PRId64 " bytes", memory.in_use, memory.held);
        bl_context_fault(context, &f);
        return (belay_tensor){0};
    }
    return slot_fill(context, storage, dtype, shape, stride, 0, text);
}

belay_tensor bl_tensor_over(belay_context *context, int place, belay_dtype dtype, const belay_shape *shape,
                            const int64_t *stride, void *data, int64_t n_bytes, bl_loan *loan)
{
    bl_storage *storage = storage_over(context, place, data, n_bytes, loan);
    if (storage == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for another tensor");
        return (belay_tensor){0};
    }
    return slot_fill(context, storage, dtype, shape, stride, 0, 0);
}

/* The furthest element of a view is inside of its storage. */
static bool view_fits(const bl_slot *of, const belay_shape *shape, const int64_t *stride, int64_t offset)
{
    int64_t last = offset, step, end, bytes;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->size[i] == 0)
            return offset >= 0;
        if (stride[i] < 0 || !bl_checked_mul(shape->size[i] - 1, stride[i], &step) ||
            !bl_checked_add(last, step, &last))
            return false;
    }
    return offset >= 0 && bl_checked_add(last, 1, &end) && bl_checked_mul(end, belay_dtype_size(of->dtype), &bytes) &&
           bytes <= of->storage->n_bytes;
}

belay_tensor bl_tensor_view(belay_context *context, belay_tensor of, const belay_shape *shape, const int64_t *stride,
                            int64_t offset)
{
    bl_slot *slot = bl_slot_use(context, of);
    int64_t packed[BELAY_MAX_RANK], n, n_bytes;
    if (slot == NULL || !shape_is_legal(context, shape))
        return (belay_tensor){0};
    if (!bl_shape_strides(shape, packed, &n) || !bl_checked_mul(n, belay_dtype_size(slot->dtype), &n_bytes)) {
        raise_shape(context, BELAY_SIZE_OVERFLOW, shape, "has more bytes than 2^63 - 1");
        return (belay_tensor){0};
    }
    if (!view_fits(slot, shape, stride, offset)) {
        raise_shape(context, BELAY_SIZE_EXTENT, shape, "reaches past the bytes of the tensor that it views");
        return (belay_tensor){0};
    }
    slot->storage->holders++;
    belay_tensor view = slot_fill(context, slot->storage, slot->dtype, shape, stride, offset, slot->name);
    bl_slot *seen = bl_slot_get(context, view);
    if (seen != NULL) {
        seen->is_registered = slot->is_registered;
        seen->is_batch = slot->is_batch;
    }
    return view;
}

belay_tensor bl_tensor_hold(belay_context *context, belay_tensor tensor)
{
    bl_slot *slot = bl_slot_get(context, tensor);
    if (slot == NULL)
        return (belay_tensor){0};
    belay_shape shape = bl_slot_shape(slot);
    int64_t stride[BELAY_MAX_RANK];
    memcpy(stride, slot->stride, sizeof stride);
    slot->storage->holders++;
    belay_tensor held = bl_tensor_own(
        context, slot_fill(context, slot->storage, slot->dtype, &shape, stride, slot->offset, slot->name));
    bl_tensor_see(context, held);
    return held;
}

static belay_tensor move_to(belay_context *context, belay_tensor tensor, int32_t owner)
{
    if (bl_slot_get(context, tensor) == NULL)
        return (belay_tensor){0};
    unlink_slot(context, tensor.slot);
    link_slot(context, tensor.slot, owner);
    return tensor;
}

belay_tensor bl_tensor_own(belay_context *context, belay_tensor tensor)
{
    return move_to(context, tensor, BL_OWNER_OBJECT);
}

void bl_tensor_drop(belay_context *context, belay_tensor tensor)
{
    if (bl_slot_get(context, tensor) != NULL)
        slot_die(context, tensor.slot);
}

void bl_tensor_settle(belay_context *context, belay_tensor tensor, belay_tensor from)
{
    bl_slot *slot = bl_slot_get(context, tensor), *other = bl_slot_get(context, from);
    bl_storage *storage = slot->storage;
    slot->storage = other->storage;
    slot->data = other->data;
    slot->offset = other->offset;
    memcpy(slot->stride, other->stride, sizeof slot->stride);
    other->storage = storage;
    slot->storage->name = slot->name;
    bl_journal_storage_name(context->journal, slot->storage->listed, slot->name);
    bl_tensor_drop(context, from);
}

/* ---- scopes ---------------------------------------------------------------------------------------------------------- */

belay_scope belay_scope_open(belay_context *context)
{
    BL_ENTER(context);
    if (!belay_is_open(context))
        return (belay_scope){0};
    if (context->depth + 1 >= BL_MAX_SCOPES) {
        bl_context_raise(context, BELAY_LIFE_SCOPE, "%d scopes are open: the most are %d", BL_MAX_SCOPES - 2,
                         BL_MAX_SCOPES - 2);
        return (belay_scope){0};
    }
    bl_scope *scope = &context->scopes[++context->depth];
    scope->first = 0;
    scope->serial = ++context->scope_serial;
    scope->tape_mark = context->tape_mark != NULL ? context->tape_mark(context) : 0;
    return (belay_scope){context->number, context->depth, scope->serial};
}

static void close_innermost(belay_context *context)
{
    bl_scope *scope = &context->scopes[context->depth];
    if (context->tape_cut != NULL)
        context->tape_cut(context, scope->tape_mark);
    while (scope->first != 0)
        slot_die(context, scope->first);
    context->depth--;
}

void belay_scope_close(belay_scope scope)
{
    belay_context *context = bl_context_find(scope.context);
    BL_ENTER(context);
    if (context == NULL)
        return;
    bool is_open =
        scope.depth >= 2 && scope.depth <= context->depth && context->scopes[scope.depth].serial == scope.serial;
    if (!is_open && (scope.depth < 2 || scope.serial == 0 || scope.serial > context->scope_serial)) {
        bl_context_raise(context, BELAY_LIFE_SCOPE, "a scope was closed that was never opened");
        return;
    }
    if (is_open && scope.depth <= context->floor) {
        bl_context_raise(context, BELAY_LIFE_SCOPE,
                         "a scope was closed by a function that was called inside of it and has not ended");
        return;
    }
    int n_inside = (int)(context->depth - scope.depth);
    if (!is_open)
        bl_context_raise(context, BELAY_LIFE_SCOPE, "a scope was closed twice (%d scope%s open)",
                         (int)context->depth - 1, context->depth == 2 ? " is" : "s are");
    else if (n_inside > 0)
        bl_context_raise(context, BELAY_LIFE_SCOPE, "a scope was closed while %d inside of it %s open", n_inside,
                         n_inside == 1 ? "is" : "are");
    if (is_open)
        while (context->depth >= scope.depth)
            close_innermost(context);
}

belay_tensor belay_keep(belay_tensor tensor)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    if (context == NULL)
        return (belay_tensor){0};
    bl_slot *slot = bl_slot_use(context, tensor);
    if (slot == NULL)
        return (belay_tensor){0};
    return slot->owner > 1 ? move_to(context, tensor, slot->owner - 1) : tensor;
}

void belay_tensor_free(belay_tensor tensor)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    if (context == NULL)
        return;
    bl_slot *slot = bl_slot_use(context, tensor);
    if (slot != NULL && slot->owner > 0)
        slot_die(context, tensor.slot);
}
