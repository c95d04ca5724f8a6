/* SPDX-License-Identifier: Apache-2.0 */
#include "grad/tape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "launch/stray.h"

struct bl_tape {
    bl_node **node;
    int64_t n, capacity;
    bl_node **spare; /* nodes for re-use */
    int64_t n_spare, spare_capacity;
    uint64_t serial;
    bool is_written_told; /* in this walk */
    bool *reached;        /* of the nodes below the one that a watched walk begins at */
    int64_t reached_capacity;
    int n_freeing; /* states at work to free themselves: they record nothing, or a cut might never end */
};

static void release_holdings(belay_context *context, bl_node *node)
{
    for (int k = 0; k < node->n_in; k++)
        bl_tensor_drop(context, node->in[k].kept);
    for (int o = 0; o < node->n_out; o++) {
        bl_tensor_drop(context, node->kept_out[o]);
        bl_tensor_drop(context, node->grad[o]);
    }
    if (node->in != node->few)
        bl_free(node->in);
    node->n_in = 0;
    node->n_out = 0;
    node->in = node->few;
    void (*state_free)(belay_context *, void *) = node->state_free;
    node->state_free = NULL;
    if (state_free == NULL)
        return;
    context->tape->n_freeing++;
    state_free(context, node->state); /* last: it may be the user's, who may call anything */
    context->tape->n_freeing--;
}

static void recycle(belay_context *context, bl_node *node)
{
    bl_tape *tape = context->tape;
    release_holdings(context, node);
    if (bl_grow(&tape->spare, &tape->spare_capacity, tape->n_spare + 1, sizeof(bl_node *)))
        tape->spare[tape->n_spare++] = node;
    else
        bl_free(node);
}

static uint64_t tape_mark(const belay_context *context) { return context->tape->serial; }

/* Drops what was recorded after the mark. */
static void tape_cut(belay_context *context, uint64_t mark)
{
    bl_tape *tape = context->tape;
    while (tape->n > 0 && tape->node[tape->n - 1]->serial > mark)
        recycle(context, tape->node[--tape->n]);
}

/* Drops what has been walked; what stays keeps its order. */
static void tape_drop_walked(belay_context *context)
{
    bl_tape *tape = context->tape;
    bl_node *walked = NULL, **last = &walked;
    int64_t n = tape->n;
    tape->n = 0;
    for (int64_t i = 0; i < n; i++) {
        if (tape->node[i]->is_walked) {
            *last = tape->node[i];
            last = &tape->node[i]->next;
        } else
            tape->node[tape->n++] = tape->node[i];
    }
    *last = NULL;
    while (walked != NULL) { /* the tape is whole again: what they free may use it */
        bl_node *node = walked;
        walked = node->next;
        recycle(context, node);
    }
}

static void tape_free(void *object)
{
    belay_context *context = object;
    tape_cut(context, 0);
    for (int64_t i = 0; i < context->tape->n_spare; i++)
        bl_free(context->tape->spare[i]);
    bl_free(context->tape->spare);
    bl_free(context->tape->reached);
    bl_free(context->tape->node);
    bl_free(context->tape);
    context->tape = NULL;
    context->tape_cut = NULL;
    context->tape_mark = NULL;
}

static bl_tape *tape_of(belay_context *context)
{
    if (context->tape != NULL)
        return context->tape;
    bl_tape *tape = bl_alloc(1, sizeof *tape);
    if (tape == NULL || !bl_context_adopt(context, context, tape_free)) {
        bl_free(tape);
        return NULL;
    }
    context->tape = tape;
    context->tape_mark = tape_mark;
    context->tape_cut = tape_cut;
    return tape;
}

bool bl_grad_is_wanted(const belay_context *context, const belay_tensor *in, int n_in)
{
    if (!context->recording || (context->tape != NULL && context->tape->n_freeing > 0))
        return false;
    for (int k = 0; k < n_in; k++)
        if (belay_tensor_requires_grad(in[k]))
            return true;
    return false;
}

static bl_node *take_node(belay_context *context, int n_in)
{
    bl_tape *tape = tape_of(context);
    if (tape == NULL || !bl_grow(&tape->node, &tape->capacity, tape->n + 1, sizeof(bl_node *)))
        return NULL;
    bl_node *node = tape->n_spare > 0 ? tape->spare[--tape->n_spare] : bl_alloc(1, sizeof *node);
    if (node == NULL)
        return NULL;
    memset(node, 0, sizeof *node);
    node->in = n_in <= BL_COUNT(node->few) ? node->few : bl_alloc(n_in, sizeof *node->in);
    if (node->in == NULL) {
        node->in = node->few;
        recycle(context, node);
        return NULL;
    }
    node->serial = ++tape->serial;
    tape->node[tape->n++] = node;
    return node;
}

/* A node that does not exist: what leads there had no memory to be recorded, which was told, and absorbs. */
#define NODE_LOST UINT64_MAX

static void lose_record(bl_slot *slot)
{
    if (slot == NULL || !belay_dtype_is_float(slot->dtype))
        return;
    slot->requires_grad = true;
    slot->node = NODE_LOST;
}

bl_node *bl_grad_record(belay_context *context, bl_grad_rule rule, const belay_tensor *in, int n_in,
                        const belay_tensor *out, int n_out)
{
    bl_node *node = take_node(context, n_in);
    if (node == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to record an op for backward");
        for (int o = 0; o < n_out; o++)
            lose_record(bl_slot_get(context, out[o]));
        return NULL;
    }
    node->rule = rule;
    node->site = context->site;
    node->layer = context->layer_text;
    node->n_in = n_in;
    node->n_out = n_out;
    for (int k = 0; k < n_in; k++) {
        const bl_slot *slot = belay_tensor_is_nil(in[k]) ? NULL : bl_slot_get(context, in[k]);
        if (slot == NULL)
            continue;
        node->in[k] = (bl_edge){.is_wanted = slot->requires_grad,
                                .node = slot->node,
                                .output = slot->node_output,
                                .leaf = in[k],
                                .place = slot->storage->place,
                                .shape = bl_slot_shape(slot),
                                .dtype = slot->dtype};
    }
    for (int o = 0; o < n_out; o++) {
        bl_slot *slot = bl_slot_get(context, out[o]);
        if (slot == NULL)
            continue;
        node->out_shape[o] = bl_slot_shape(slot);
        node->out_dtype[o] = slot->dtype;
        if (!belay_dtype_is_float(slot->dtype))
            continue;
        slot->requires_grad = true;
        slot->node = node->serial;
        slot->node_output = o;
    }
    return node;
}

/* ---- walking back ---------------------------------------------------------------------------------------------------- */

bool bl_grad_bring(belay_context *context, const char *op, int home, belay_tensor *grad)
{
    const bl_slot *slot = bl_slot_get(context, *grad);
    if (slot->storage->place == home)
        return true;
    if (context->place != BELAY_PLACE_MOVE) {
        bl_prove_refuse(context, BELAY_PLACE_DEVICE, op, &(bl_given){"gradient", *grad}, 1,
                        "%s: a gradient lies on %s, what it is the gradient of on %s", op,
                        bl_slot_device(context, slot)->name, context->places[home].device->name);
        return false;
    }
    bl_stray_note(context, op, (bl_given){"gradient", *grad}, home);
    *grad = bl_launch_to(context, *grad, home);
    return !belay_tensor_is_nil(*grad);
}

/* -1: it is not on the tape. */
static int64_t index_of(const bl_tape *tape, uint64_t serial)
{
    int64_t low = 0, high = tape->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (tape->node[middle]->serial < serial)
            low = middle + 1;
        else
            high = middle;
    }
    return low < tape->n && tape->node[low]->serial == serial ? low : -1;
}

static bl_node *find_node(const bl_tape *tape, uint64_t serial)
{
    int64_t at = index_of(tape, serial);
    return at >= 0 ? tape->node[at] : NULL;
}

/* Nobody else looks at the storage: it may be added to in place. */
static bool is_alone(const belay_context *context, belay_tensor tensor)
{
    const bl_slot *slot = bl_slot_get((belay_context *)context, tensor);
    return slot != NULL && slot->storage->holders == 1 && bl_slot_is_contiguous(slot);
}

/* Adds `grad` to what has arrived in *sum, which holds its own view. */
static void arrive(belay_context *context, belay_tensor *sum, belay_tensor grad)
{
    if (belay_tensor_is_nil(*sum)) {
        *sum = bl_tensor_hold(context, grad);
    } else if (is_alone(context, *sum)) {
        bl_launch_add_to(context, *sum, grad);
    } else {
        bl_call call = {.context = context, .op = BL_OP_add, .n_in = 2, .in = {*sum, grad}, .is_backward = true};
        if (!bl_launch_run(&call))
            return;
        bl_tensor_drop(context, *sum);
        *sum = bl_tensor_own(context, call.out[0]);
    }
}

/* A temporary of the rule in work that nobody else holds: it may be taken over as it is. */
static bool is_ours(const belay_context *context, belay_tensor tensor)
{
    return is_alone(context, tensor) && bl_slot_get((belay_context *)context, tensor)->owner == (int32_t)context->depth;
}

/* The leaf went to another device after the forward. */
static void refuse_moved(belay_context *context, const bl_slot *leaf, const bl_slot *grad)
{
    bl_error error;
    const char *name = bl_journal_text_get(context->journal, leaf->name);
    bl_error_set(&error, BELAY_PLACE_DEVICE, "the gradient of %.100s was computed on %s, where it lay in the forward",
                 name[0] != '\0' ? name : "a leaf", bl_slot_device(context, grad)->name);
    bl_error_fact(&error, "it lies on %s by now", bl_slot_device(context, leaf)->name);
    bl_error_advise(&error, "Move a module before its forward or after its backward.");
    bl_context_raise_error(context, &error);
}

/* The first of a gradient that has a room is copied there. */
static belay_tensor move_in(belay_context *context, const bl_grad_room *room, belay_tensor grad)
{
    return bl_launch_move(context, room->view, grad) ? bl_tensor_hold(context, room->view) : (belay_tensor){0};
}

/* Which loss scale what arrives at a leaf was multiplied by; its optimizer's step asks. */
static void mark(belay_context *context, bl_slot *leaf)
{
    bl_scaling *scaling = &context->mixed.scaling;
    if (belay_tensor_is_nil(leaf->grad))
        leaf->grad_scale = (bl_grad_scale){0};
    bool is_late = (leaf->grad_scale.marks & BL_GRAD_UNSCALED) != 0;
    bl_grad_scale_join(&leaf->grad_scale, scaling->now);
    leaf->grad_scale.marks |= is_late ? BL_GRAD_LATE : 0;
    scaling->has_plain = scaling->has_plain || (scaling->now.marks & BL_GRAD_PLAIN) != 0;
}

/* A leaf's gradient belongs to the leaf. */
static void arrive_at_leaf(belay_context *context, belay_tensor leaf, belay_tensor grad)
{
    bl_slot *slot = bl_slot_get(context, leaf);
    if (slot == NULL || !slot->requires_grad)
        return;
    const bl_slot *arrived = bl_slot_get(context, grad);
    if (BL_UNLIKELY(arrived->storage->place != slot->storage->place)) {
        refuse_moved(context, slot, arrived);
        return;
    }
    if (BL_UNLIKELY(slot->room != NULL) && !slot->room->enter(slot->room))
        return;
    mark(context, slot);
    if (!belay_tensor_is_nil(slot->grad)) {
        bl_launch_add_to(context, slot->grad, grad);
        return;
    }
    if (BL_UNLIKELY(slot->room != NULL)) {
        slot->grad = move_in(context, slot->room, grad);
        return;
    }
    belay_tensor own = is_ours(context, grad) ? grad : bl_launch_copy(context, grad);
    if (belay_tensor_is_nil(own))
        return;
    slot->grad = bl_tensor_own(context, own);
    bl_slot *grad_slot = bl_slot_get(context, own);
    char name[160];
    if (slot->name == 0)
        return;
    snprintf(name, sizeof name, "%.150s.grad", bl_journal_text_get(context->journal, slot->name));
    grad_slot->name = bl_journal_text(context->journal, name);
    grad_slot->storage->name = grad_slot->name;
    bl_journal_storage_name(context->journal, grad_slot->storage->listed, grad_slot->name);
}

belay_tensor bl_grad_collected(belay_context *context, const bl_node *node, int k)
{
    const bl_edge *edge = &node->in[k];
    bl_slot *leaf = edge->is_wanted && edge->node == 0 ? bl_slot_get(context, edge->leaf) : NULL;
    const bl_slot *grad = leaf != NULL && leaf->requires_grad ? bl_slot_get(context, leaf->grad) : NULL;
    if (BL_UNLIKELY(grad != NULL && leaf->room != NULL) && !leaf->room->enter(leaf->room))
        return (belay_tensor){0};
    bool fits = grad != NULL && bl_slot_is_contiguous(grad) && grad->storage->place == edge->place;
    if (fits)
        mark(context, leaf);
    return fits ? leaf->grad : (belay_tensor){0};
}

static void route(belay_context *context, const bl_edge *edge, belay_tensor grad)
{
    if (edge->node == 0) {
        arrive_at_leaf(context, edge->leaf, grad);
        return;
    }
    if (edge->node == NODE_LOST)
        return;
    bl_node *to = find_node(context->tape, edge->node);
    if (to == NULL || to->is_walked)
        bl_context_raise(context, BELAY_LIFE_TAPE,
                         "backward reached an op whose record is gone: a backward before has walked it, or its scope "
                         "has closed");
    else {
        bl_grad_scale_join(&to->scale, context->mixed.scaling.now);
        arrive(context, &to->grad[edge->output], grad);
    }
}

static bool has_arrived(const bl_node *node)
{
    for (int o = 0; o < node->n_out; o++)
        if (!belay_tensor_is_nil(node->grad[o]))
            return true;
    return false;
}

void bl_grad_refuse_written(belay_context *context, const char *op, const char *role, belay_tensor held,
                            const belay_shape *shape)
{
    bl_report_fault f;
    bl_report_fault_init(&f, BELAY_LIFE_TAPE);
    bl_prove_describe_given(context, op, &(bl_given){role, held}, 1, &f);
    const bl_slot *slot = bl_slot_get(context, held);
    bl_report_tensor *t = &f.tensor[0];
    t->shape = shape != NULL ? *shape : t->shape;
    bl_text words = {0};
    bl_report_shape(&t->shape, &words);
    snprintf(f.what, sizeof f.what, "backward of %.60s reads %s %s, which was written after the forward had read it",
             op, t->name[0] != '\0' ? t->name : t->role, bl_text_get(&words));
    bl_text_fini(&words);
    uintptr_t written = bl_journal_site_get(context->journal, slot->storage->written);
    snprintf(f.other_words, sizeof f.other_words, "written at");
    if (written != 0)
        bl_context_site(context, written, f.other_site, sizeof f.other_site);
    bl_context_site(context, context->mixed.scaling.walked_at, f.surfaced, sizeof f.surfaced);
    snprintf(f.advice, sizeof f.advice,
             "Walk back before it is written, an optimizer's step included, or give the forward a copy of it.");
    f.is_echo = context->tape->is_written_told;
    context->tape->is_written_told = true;
    bl_context_fault(context, &f);
}

/* The op whose forward a node is of. */
static const char *op_of(const bl_node *node)
{
    if (node->rule == bl_grad_add_by_index)
        return node->op == BL_OP_gather ? "scatter_add" : "index_add";
    return node->op == BL_OP_none ? "an op" : bl_kernel_rows[node->op].name;
}

static bool is_written(const belay_context *context, const bl_node *node)
{
    bool is = false;
    for (int k = 0; k < node->n_in; k++)
        is = is || bl_tensor_is_written(context, node->in[k].kept);
    for (int o = 0; o < node->n_out; o++)
        is = is || bl_tensor_is_written(context, node->kept_out[o]);
    return is;
}

/* What that op calls its operand. */
static const char *role_of(const bl_node *node, int k)
{
    const bl_signature *s = bl_signature_of(node->op);
    if (node->rule == bl_grad_add_by_index)
        return node->op == BL_OP_gather ? "index" : "ids"; /* all that is kept */
    return k < s->n_in ? s->operand[k].name : "an operand";
}

/* Names the first that was written. */
static void refuse_written(belay_context *context, const bl_node *node)
{
    const bl_signature *s = bl_signature_of(node->op);
    for (int k = 0; k < node->n_in; k++)
        if (bl_tensor_is_written(context, node->in[k].kept)) {
            bl_grad_refuse_written(context, op_of(node), role_of(node, k), node->in[k].kept, &node->in[k].shape);
            return;
        }
    for (int o = 0; o < node->n_out; o++)
        if (bl_tensor_is_written(context, node->kept_out[o])) {
            bl_grad_refuse_written(context, op_of(node), o < s->n_out ? s->operand[s->n_in + o].name : "a result",
                                   node->kept_out[o], NULL);
            return;
        }
}

/* One node: its rule in a scope of its own, its gradients sent on, its holdings released.  All of it is told with site
 * and layer of the forward call. */
static void walk_node(belay_context *context, bl_node *node)
{
    belay_tensor few[BL_COUNT(node->few)] = {{0}}, *grad_in = few;
    if (node->n_in > BL_COUNT(few))
        grad_in = bl_alloc(node->n_in, sizeof *grad_in);
    if (grad_in == NULL) {
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory for the gradients of an op with %d inputs",
                         node->n_in);
        return;
    }
    uintptr_t site = context->site;
    uint32_t layer = context->layer_text;
    context->site = node->site;
    bl_layer_set(context, node->layer);
    node->is_walked = true; /* from here on: a rule that walks back itself does not come here again */
    belay_scope scope = belay_scope_open(context);
    if (scope.context != 0) { /* else as many are open as there can be, which was told */
        uint32_t floor = bl_scope_floor_set(context);
        context->mixed.scaling.now = node->scale;
        if (BL_UNLIKELY(is_written(context, node)))
            refuse_written(context, node);
        else
            node->rule(context, node, grad_in);
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k].is_wanted && !belay_tensor_is_nil(grad_in[k]))
                route(context, &node->in[k], grad_in[k]);
        context->floor = floor;
        belay_scope_close(scope);
    }
    context->site = site;
    bl_layer_set(context, layer);
    if (grad_in != few)
        bl_free(grad_in);
    release_holdings(context, node);
}

/* ---- who follows ------------------------------------------------------------------------------------------------------ */

void bl_grad_watch_add(belay_context *context, bl_grad_watch *watch)
{
    watch->next = context->grad_watches;
    context->grad_watches = watch;
}

void bl_grad_watch_remove(belay_context *context, bl_grad_watch *watch)
{
    bl_grad_watch **at = &context->grad_watches;
    while (*at != NULL && *at != watch)
        at = &(*at)->next;
    if (*at != NULL)
        *at = watch->next;
}

static void tell_reached(const belay_context *context, const bl_edge *edge, int64_t at)
{
    const bl_slot *leaf = bl_slot_get((belay_context *)context, edge->leaf);
    if (leaf == NULL || leaf->room == NULL)
        return;
    for (bl_grad_watch *watch = context->grad_watches; watch != NULL; watch = watch->next)
        watch->reach(watch->state, leaf->room, at);
}

/* All that lies below node number `at`, from there down: inputs of a node were made before it. */
static bool mark_reached(belay_context *context, int64_t at)
{
    bl_tape *tape = context->tape;
    if (!bl_grow(&tape->reached, &tape->reached_capacity, at + 1, sizeof *tape->reached))
        return false;
    memset(tape->reached, 0, (size_t)(at + 1) * sizeof *tape->reached);
    tape->reached[at] = true;
    for (; at >= 0; at--) {
        const bl_node *node = tape->node[at];
        for (int k = 0; k < node->n_in && tape->reached[at] && !node->is_walked; k++) {
            int64_t to = node->in[k].is_wanted && node->in[k].node != 0 ? index_of(tape, node->in[k].node) : -1;
            if (to >= 0)
                tape->reached[to] = true;
            else if (node->in[k].is_wanted && node->in[k].node == 0)
                tell_reached(context, &node->in[k], at);
        }
    }
    return true;
}

static void begin_watched(belay_context *context, int64_t at)
{
    bl_grad_watch *watches = context->grad_watches;
    for (bl_grad_watch *w = watches; w != NULL; w = w->next)
        w->begin(w->state, context->site);
    if (!mark_reached(context, at))
        bl_context_raise(context, BELAY_MEM_EXHAUSTED, "no memory to follow a backward through %" PRId64 " ops",
                         at + 1);
    for (bl_grad_watch *w = watches; w != NULL; w = w->next)
        w->start(w->state);
}

static void pass_watched(const belay_context *context, int64_t at)
{
    for (bl_grad_watch *w = context->grad_watches; w != NULL; w = w->next)
        w->pass(w->state, at);
}

static void walk(belay_context *context, bl_node *from)
{
    bool was_recording = context->recording, was_gating = context->is_gating, was_backward = context->in_backward;
    int was_autocast = context->mixed.autocast;
    bl_scaling *scaling = &context->mixed.scaling, was = *scaling;
    scaling->walked_at = context->site;
    context->mixed.cast_window = 0;
    scaling->has_plain = false;
    context->mixed.autocast = 0; /* gradients have the dtypes that the forward's casts gave them */
    context->in_backward = true;
    context->is_gating = true;
    context->recording = false;
    context->tape->is_written_told = was_backward && context->tape->is_written_told;
    int64_t at = context->tape->n - 1;
    while (at >= 0 && context->tape->node[at] != from)
        at--;
    bool is_watched = context->grad_watches != NULL && !was_backward;
    if (BL_UNLIKELY(is_watched))
        begin_watched(context, at);
    for (; at >= 0; at--) {
        if (!context->tape->node[at]->is_walked && has_arrived(context->tape->node[at]))
            walk_node(context, context->tape->node[at]);
        if (BL_UNLIKELY(is_watched))
            pass_watched(context, at);
    }
    for (bl_grad_watch *w = is_watched ? context->grad_watches : NULL; w != NULL; w = w->next)
        w->end(w->state);
    scaling->plain_at = scaling->has_plain ? context->site : scaling->plain_at;
    scaling->has_plain = was.has_plain;
    scaling->walked_at = was.walked_at;
    scaling->now = was.now;
    context->in_backward = was_backward;
    context->mixed.autocast = was_autocast;
    context->is_gating = was_gating;
    context->recording = was_recording;
    if (!was_backward) /* a walk inside of a walk leaves this to the outer one */
        tape_drop_walked(context);
}

static void backward(belay_context *context, belay_tensor tensor, belay_tensor upstream)
{
    bl_slot *slot = bl_slot_use(context, tensor);
    if (slot == NULL || !belay_is_open(context) || slot->node == NODE_LOST)
        return;
    bl_node *node = context->tape != NULL ? find_node(context->tape, slot->node) : NULL;
    if (slot->node == 0 || node == NULL || node->is_walked) {
        bl_context_raise(context, BELAY_LIFE_TAPE,
                         slot->node == 0 ? "backward was called on a tensor that no recorded op made"
                                         : "backward was called on a tensor whose record is gone: a backward before "
                                           "has walked it, or its scope has closed");
        return;
    }
    belay_shape shape = bl_slot_shape(slot), given = belay_tensor_shape(upstream);
    bool is_given = !belay_tensor_is_nil(upstream);
    if (!is_given && bl_slot_elements(slot) != 1) {
        bl_text words = {0};
        bl_report_shape(&shape, &words);
        bl_context_raise(context, BELAY_SHAPE_CONTRACT,
                         "backward needs a loss with one element; this tensor has shape %s", bl_text_get(&words));
        bl_text_fini(&words);
        return;
    }
    if (is_given && (bl_slot_use(context, upstream) == NULL || !bl_shape_equal(&given, &shape) ||
                     (int)belay_tensor_dtype(upstream) != slot->dtype)) {
        bl_context_raise(context, BELAY_SHAPE_CONTRACT,
                         "the gradient given does not have the tensor's shape and dtype");
        return;
    }
    if (is_given && !bl_grad_bring(context, "backward", slot->storage->place, &upstream))
        return;
    bl_modes_look(context); /* once a micro-batch: a variable that a loop was meant to see is told at its first round */
    belay_scope scope = belay_scope_open(context);
    bool was = belay_recording_set(context, false), was_gating = context->is_gating;
    int output = slot->node_output;
    context->is_gating = true; /* without the first gradient there is no other */
    belay_tensor one = is_given ? upstream : bl_launch_fill_like(context, tensor, slot->dtype, &shape, 1);
    if (!belay_tensor_is_nil(one)) {
        bool is_inside = context->in_backward; /* of a walk: of what that one is at */
        bl_grad_scale_join(&node->scale,
                           is_inside ? context->mixed.scaling.now : (bl_grad_scale){.marks = BL_GRAD_PLAIN});
        arrive(context, &node->grad[output], one);
    }
    context->is_gating = was_gating;
    belay_recording_set(context, was);
    belay_scope_close(scope);
    walk(context, node);
    context->micro_batch++;
    if (!context->position_is_set) {
        context->position++;
        context->ordinal = 0;
    }
}

void belay_backward_from(belay_tensor tensor, belay_tensor upstream)
{
    belay_context *context = bl_tensor_context(tensor);
    BL_ENTER(context);
    if (context == NULL)
        return;
    if (belay_tensor_is_nil(upstream))
        return;
    backward(context, tensor, upstream);
}

void belay_backward(belay_tensor loss)
{
    belay_context *context = bl_tensor_context(loss);
    BL_ENTER(context);
    if (context == NULL)
        return;
    backward(context, loss, (belay_tensor){0});
}
