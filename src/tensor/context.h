/* SPDX-License-Identifier: Apache-2.0 */
/* What a context is inside.  Rooms above may read these fields; they change them by the functions below.
 *
 * A *storage* is bytes on a device with a count of who holds it: tensors, the tape.  A *slot* is a tensor: a view of a
 * storage with an owner, either a scope (temporaries) or an object (parameters, gradients, batches).  A handle names
 * slot and generation; a slot's generation grows when its tensor dies, and a slot whose generation would wrap is
 * retired. */
#ifndef BL_TENSOR_CONTEXT_H
#define BL_TENSOR_CONTEXT_H

#include <belay/tensor.h>

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "device/device.h"
#include "device/trap.h"
#include "report/fault.h"
#include "report/journal.h"
#include "tensor/caller.h"
#include "tensor/clock.h"
#include "tensor/mixed.h"
#include "tensor/modes.h"

typedef struct bl_storage {
    int64_t holders;
    void *data;
    int64_t n_bytes;
    uint64_t serial;  /* number of its birth */
    uint64_t version; /* grows with each launch that writes it, and with belay_tensor_write(_later) */
    uint32_t written; /* where the last of them was called, a site of the journal; 0: not known */
    uint32_t name;    /* in the journal's texts */
    uintptr_t site;   /* that made it */
    uint32_t listed;  /* in the journal's list of storages alive, 0: none */
    int64_t flights;  /* launches whose faults are told by its values: its memory outlives its holders by them */
    int place;        /* of the context: the device that it lies on */
    bl_uses *uses;    /* who used it last; NULL on a synchronous device */
    struct bl_storage *next_free;
    struct bl_loan *loan;   /* of memory shared with another library; NULL: of none */
    struct bl_lease *lease; /* tensor/lease.h; NULL: never let */
} bl_storage;

enum { BL_OWNER_NONE = 0, BL_OWNER_OBJECT = -1 }; /* else the depth of the scope, from 1 */

typedef struct bl_slot {
    uint32_t generation;
    bool is_alive;
    bool is_registered; /* a module's parameter or buffer, or a view of one */
    bool is_batch;      /* a loader's, or a view of one */
    bool requires_grad; /* a leaf that collects, or the output of a recorded op */
    uint8_t dtype;
    uint8_t rank;
    int32_t owner;
    uint32_t name;
    int64_t size[BELAY_MAX_RANK];
    int64_t stride[BELAY_MAX_RANK]; /* in elements, never negative; 0 repeats */
    int64_t offset;                 /* in elements */
    void *data;                     /* the first element; device address */
    bl_storage *storage;
    uint64_t version;        /* of the storage when the slot was made to hold it (bl_tensor_hold) */
    uint32_t next, previous; /* in the owner's list, 0 ends */
    uint64_t node;           /* tape node that made it, 0: a leaf */
    int32_t node_output;
    belay_tensor grad;         /* of a leaf: owned by its object */
    bl_grad_scale grad_scale;  /* while it is there */
    uint32_t n_optimizers;     /* that step it */
    struct bl_grad_room *room; /* of a leaf, grad/tape.h: where its gradient has to lie; NULL: anywhere */
} bl_slot;

/* What a stale handle is told about: a tensor's last words.  They outlive the next tenants of its slot. */
typedef struct bl_death {
    uint32_t slot, generation;
    uint32_t name;
    uint8_t dtype, rank;
    int64_t size[BELAY_MAX_RANK];
    uintptr_t site;
    uint64_t step;
} bl_death;

typedef struct bl_scope {
    uint32_t first; /* slot list */
    uint32_t serial;
    uint64_t tape_mark; /* serial of the tape's last node when it was opened */
} bl_scope;

/* Words of a fault that was told. */
typedef struct bl_fault_entry {
    belay_fault fault; /* its texts point into `words` */
    char *words;
    uint64_t window; /* that it belongs to */
} bl_fault_entry;

enum {
    BL_SLOT_BLOCK = 256,
    BL_MAX_FAULTS = 256,
    BL_MAX_LABELS = 16,
    BL_MAX_SCOPES = 256,
    BL_LAYER_SIZE = 128,
    BL_MAX_WARNED = 256,
#ifdef BELAY_SMALL
    BL_MAX_EVENTS = 64,
    BL_MAX_DEATHS = 4,
    BL_MAX_GRAVES = 4
#else
    BL_MAX_EVENTS = 4096, /* that nobody has waited for; of older ones a stream's latest is kept */
    BL_MAX_DEATHS = 4096,
    BL_MAX_GRAVES = 4096
#endif
};

/* Words about row `row` of the batch in work ("train.tsv:213"); false when there are none. */
typedef bool (*bl_describe_sample)(void *state, int64_t row, char *out, size_t size);

/* Something that the context frees at its end: modules, optimizers, loaders, the tape. */
typedef struct bl_member {
    void (*free)(void *object);
    void *object;
    struct bl_member *next, *previous;
} bl_member;

/* First in an object that is remembered after its death, so that a pointer to it can still be told to be one to a dead
 * object.  The last BL_MAX_GRAVES are; while the context closes, all are. */
typedef struct bl_grave {
    struct bl_grave *next;
    void (*free)(void *object);
} bl_grave;

typedef struct bl_tape bl_tape; /* grad/ */

enum { BL_MAX_PLACES = 8, BL_MAX_GUARDS = 32 };

/* An open device guard: where to go back to. */
typedef struct bl_guard {
    int place;
    uint32_t serial;
} bl_guard;

/* A device of the context. */
typedef struct bl_place {
    bl_device *device;
    int stream;        /* its current one, in the context's streams */
    bool loss_is_told; /* what lost it */
    char lost_by[256]; /* the headline of that fault and its site, "": it is not kept */
    bool mappings_are_told;
    uint64_t n_refused;  /* calls that were place.lost */
    uint64_t n_untold;   /* of them, those that the log has not heard of */
    uintptr_t untold_at; /* the site of the last */
} bl_place;

/* A stream of a device.  Number 0 of each device is open as long as the device is. */
typedef struct bl_stream {
    bool is_open;
    bool is_ending; /* the device has closed it */
    uint32_t generation;
    int place, number;     /* the device's */
    uint32_t name;         /* in the journal's texts */
    bl_stream_record *row; /* in the journal's table, under its number here */
    bl_clock clock;        /* what its next command is ordered behind */
} bl_stream;

/* An event: a stream up to a command, and what that was ordered behind. */
typedef struct bl_event {
    int stream;
    uint64_t number;
    bl_clock clock;
} bl_event;

/* A block that was given back while commands may still use it. */
typedef struct bl_pending {
    void *data;
    int64_t n_bytes;
    int place;
    bl_uses *uses;
} bl_pending;

/* What launch/ does for the rooms below it once something has been launched on an asynchronous device. */
typedef struct bl_fence_hooks {
    void (*look)(belay_context *context); /* tells the faults that have come to the host */
    /* And all up to that launch, which has ended.  False while faults are being told: they may not all be then. */
    bool (*look_upto)(belay_context *context, uint64_t launch);
    void (*tell_loss)(belay_context *context, int place); /* tells the illegal access that lost a device */
    void (*forget_stream)(belay_context *context, int number);
    void (*close)(belay_context *context);
} bl_fence_hooks;

/* A fault of a forward that was told: what the walk back over the same call meets again is its echo. */
enum { BL_MAX_CAUSES = 64 };
typedef struct bl_cause {
    uintptr_t site;
    uint64_t step;
    uint32_t layer, epoch, position;
    int code;
} bl_cause;

/* A window that has ended and that the host has not heard of: the device decides whether its step is applied. */
typedef struct bl_window {
    uint64_t number;
    struct belay_optimizer *optimizer;
    bool faulted; /* a fault while recording */
    belay_code code;
    uint64_t step;
    uint32_t epoch, position, micro_batch;
    uintptr_t site;  /* of its step */
    uint64_t launch; /* its last one */
    bl_first_bad first_bad;
} bl_window;

struct belay_context {
    bool is_open;
    bool is_closing;
    uint32_t number; /* in handles */
    belay_code open_code;
    uint32_t forks;                 /* who opened it: tensor/caller.h */
    const bl_caller_worker *worker; /* likewise; NULL: no worker */
    int64_t process;
    bl_place places[BL_MAX_PLACES]; /* devices in the order in which they were opened */
    int n_places;
    int here;          /* the current place: where tensors are made that come of none */
    bl_device *device; /* its device */
    bl_guard guards[BL_MAX_GUARDS];
    int n_guards;
    uint32_t guard_serial;
    bl_device_options device_options;
    struct bl_trace *trace; /* NULL: none */
    bl_fault_ring *ring;    /* written by the kernels of all places */
    bl_stream streams[BL_MAX_STREAMS];
    bl_clock host_clock; /* what the host has waited for */
    bl_event *events;    /* by number, from events_begin on */
    int64_t n_events, events_capacity;
    uint64_t events_begin;
    bl_event older[BL_MAX_STREAMS]; /* of each stream, the latest event before those; number 0: none */
    bl_pending *pending;            /* the oldest first */
    int64_t n_pending, pending_capacity;
    const bl_fence_hooks *fence_hooks;
    struct bl_flights *flights; /* launch/ */
    struct bl_hosts *hosts;     /* host memory for copies; NULL: none yet */
    bool is_watched;            /* a device has addresses that the host must not touch */
    bool has_read_only;         /* another library lent memory that nothing may write */
    int n_leases;               /* that are on: tensor/lease.h */
    belay_log_function log;
    void *log_state;
    belay_index_policy policy;
    belay_place place;
    bool launch_blocking, trace_nonfinite;
    int n_guarded; /* guarded functions at work: the context stays open */
    bl_modes modes;
    int rank;
    uint64_t seed;

    bl_slot **slot_blocks; /* blocks of BL_SLOT_BLOCK: a slot never moves */
    int64_t n_slots, n_blocks, blocks_capacity;
    uint32_t free_slot; /* list through next */
    uint32_t object_list;
    bl_storage *free_storage;
    int64_t n_storages_alive;
    uint64_t n_births;
    bl_death deaths[BL_MAX_DEATHS]; /* ring */
    uint64_t n_deaths;

    bl_scope scopes[BL_MAX_SCOPES];
    uint32_t depth; /* of the innermost, from 1 */
    uint32_t floor; /* scopes up to this depth may not be closed: a walk or a user's function stands on them */
    uint32_t scope_serial;

    bool recording;
    bool in_backward; /* walking back */
    bool is_gating;   /* what runs unrecorded belongs to a step: a walk back, or a recorded user's function */
    uint32_t epoch, position, micro_batch, ordinal;
    bool position_is_set; /* by the loop; else backward counts it */
    uint64_t step;
    char layer[BL_LAYER_SIZE];
    uint32_t layer_text;    /* the same in the journal's texts */
    int n_forwards;         /* of modules, at work inside of each other */
    int n_optimizers;       /* that are alive */
    int64_t forward_faults; /* `n_faults` when the outermost began */
    int64_t n_batch;
    int64_t sample_first; /* place of the batch's first sample in the global batch */
    uint64_t n_batches;   /* that were set */
    bl_describe_sample describe_sample;
    void *sample_state;

    uintptr_t site;                  /* of the outermost public call; 0 outside of one */
    uintptr_t entry;                 /* of it too, whatever its caller pushed and a walk back puts into `site` */
    uintptr_t labels[BL_MAX_LABELS]; /* sites */
    int n_labels, lost_labels;

    bl_fault_entry faults[BL_MAX_FAULTS + 1];
    int64_t n_faults;       /* all; kept are the first BL_MAX_FAULTS, and in the last place the one in front */
    int64_t first_fault;    /* number of the first since the last applied step; -1: none */
    belay_code first_code;  /* its code */
    uint64_t last_faulted;  /* the latest window that a fault belongs to */
    bool window_faulted;    /* a fault while recording since the window began */
    belay_code window_code; /* of the first of them */
    bl_cause causes[BL_MAX_CAUSES];
    uint64_t n_causes;
    uint64_t window;       /* number of the one at work */
    uint64_t first_window; /* of the oldest that is not told; as `window`: all are */
    bl_window windows[BL_RING_WINDOWS];
    /* optim/ sets it: says what became of a window, `outcome` as its words in the ring. */
    void (*tell_window)(belay_context *context, const bl_window *window, uint32_t outcome);

    void (*fault_observer)(void *state, const bl_report_fault *fault); /* the trainer writes faults.jsonl */
    void *observer_state;

    uint64_t n_corrected; /* indices that a policy clamped or zeroed */
    uintptr_t warned[BL_MAX_WARNED];
    int n_warned;
    uint64_t n_moved; /* tensors that place move copied; told once at each of these sites */
    uintptr_t moved_at[BL_MAX_WARNED];
    int n_moved_at;

    /* dist/ sets it: groups are left by all ranks together, while what that meets still counts. */
    void (*close_groups)(belay_context *context);
    /* dist/ sets it: devices hold for ranks, whose deadline a wait for the device would not know; see bl_place_let_go. */
    void (*let_go)(belay_context *context);
    bool gave_up; /* this rank gave up a group by itself: dist/ sets it */
    bl_member *members;
    bl_grave *first_grave, *last_grave; /* the oldest first */
    int64_t n_graves;
    bl_journal *journal; /* never NULL in an open context: in memory where there is no file */
    bool keep_journal;
    uint64_t n_launches;
    uint64_t n_parameters;               /* made so far: the key of the next one's first values */
    struct bl_commit_hook *commit_hooks; /* optim/: run at the end of each window, before the update */
    bl_mixed mixed;                      /* precision */
    struct bl_advances *advances;        /* tensor/advance.h */
    bl_tape *tape;
    struct bl_grad_watch *grad_watches; /* grad/: who follows walks back */
    /* grad/ sets these when it records for the first time. */
    uint64_t (*tape_mark)(const belay_context *context);
    void (*tape_cut)(belay_context *context, uint64_t mark);
};

/* Tells (place.host) what the host touched of the devices' memory since the last look. */
void bl_touch_look(belay_context *context);

/* ---- public calls and sites ------------------------------------------------------------------------------------------ */

/* The outermost public call notes where it was called from: a return address, or the label that its caller pushed.  A
 * public function that may fault starts with BL_ENTER. */
typedef struct bl_enter {
    belay_context *context;
    bool is_refused;
} bl_enter;
/* Whether the caller is not one that may use the context. */
static inline bool bl_context_is_elsewhere(const belay_context *context)
{
    return BL_UNLIKELY(context->forks != bl_caller_forks) ||
           (BL_UNLIKELY(bl_caller_here != NULL) && context->worker != bl_caller_here);
}
static inline bl_enter bl_enter_refused(belay_context *context, uintptr_t site)
{
    if (context == NULL && bl_caller_refused == NULL)
        return (bl_enter){0};
    return (bl_enter){.is_refused = bl_caller_begin(context, site)};
}
static inline bl_enter bl_enter_call(belay_context *context, uintptr_t site)
{
    if (context == NULL || (bl_context_is_elsewhere(context) && context->is_open))
        return bl_enter_refused(context, site);
    if (context->site != 0 || !context->is_open)
        return (bl_enter){0};
    context->entry = site;
    context->site = context->n_labels > 0 ? context->labels[context->n_labels - 1] : site;
    if (BL_UNLIKELY(context->is_watched) && bl_trap_has_touches())
        bl_touch_look(context);
    return (bl_enter){.context = context};
}
static inline void bl_enter_end(bl_enter *call)
{
    if (call->context != NULL)
        call->context->site = 0;
    else if (BL_UNLIKELY(call->is_refused))
        bl_caller_end();
}
#define BL_ENTER(context)                                                                                              \
    __attribute__((cleanup(bl_enter_end), unused)) bl_enter enter_ =                                                   \
        bl_enter_call((context), (uintptr_t)__builtin_return_address(0))

/* For what has no call inside of it, such as questions: whether the context is open and may be used by the caller; told
 * when it may not. */
static inline bool bl_ask_call(const belay_context *context, uintptr_t site)
{
    if (context == NULL)
        return bl_caller_refused != NULL && bl_caller_refuse(NULL, site);
    if (BL_LIKELY(!bl_context_is_elsewhere(context)))
        return context->is_open;
    return context->is_open && bl_caller_refuse((belay_context *)context, site);
}
#define BL_ASK(context) bl_ask_call((context), (uintptr_t)__builtin_return_address(0))

/* The context, or NULL where its caller may not use it: the call that knows its site then tells. */
static inline belay_context *bl_context_here(belay_context *context)
{
    if (context == NULL || BL_LIKELY(!bl_context_is_elsewhere(context)) || !context->is_open)
        return context;
    bl_caller_keep(context);
    return NULL;
}

/* ---- faults ---------------------------------------------------------------------------------------------------------- */

/* Records and tells a fault; fills in site, layer, position and rank where they are empty.  A fault of severity FAULT
 * while recording is on closes the window's gate.  An echo is recorded as any other, and the log does not hear of it.
 * Returns its code. */
belay_code bl_context_fault(belay_context *context, bl_report_fault *fault);
/* The same from a headline or an error of a lower room. */
belay_code bl_context_raise(belay_context *context, belay_code code, const char *format, ...) BL_PRINTF(3, 4);
belay_code bl_context_raise_error(belay_context *context, const bl_error *error);

/* Tells the log, in one paragraph a device, of the calls that were refused there since it last heard of them. */
void bl_context_tell_refused(belay_context *context);

/* Keeps and tells a fault of a forked child: nothing that other processes share is touched. */
void bl_context_tell_apart(belay_context *context, bl_report_fault *fault);

/* Words for a site: "train.c:88", "function+0x1c", or a label. */
void bl_context_site(const belay_context *context, uintptr_t site, char *out, size_t size);
/* As the fault's own site, with the line of source there. */
void bl_context_site_tell(const belay_context *context, uintptr_t site, bl_report_fault *fault);

/* Forgets the faults from number `n` on, as after an attempt that nobody need hear of. */
void bl_context_rewind(belay_context *context, int64_t n);

/* After a step: the faults before it are history, all or those of windows up to that one. */
void bl_context_commit(belay_context *context);
void bl_context_commit_upto(belay_context *context, uint64_t window);

/* ---- storage and slots ----------------------------------------------------------------------------------------------- */

static inline bl_slot *bl_slot_at(const belay_context *context, uint32_t number)
{
    return &context->slot_blocks[number / BL_SLOT_BLOCK][number % BL_SLOT_BLOCK];
}
/* NULL, silently, for nil, stale and foreign handles. */
static inline bl_slot *bl_slot_get(const belay_context *context, belay_tensor tensor)
{
    if (tensor.slot == 0 || tensor.context != context->number || (int64_t)tensor.slot >= context->n_slots)
        return NULL;
    bl_slot *slot = bl_slot_at(context, tensor.slot);
    return slot->is_alive && slot->generation == tensor.generation ? slot : NULL;
}
/* The slot, or NULL: nothing is said for nil, life.stale is raised for a dead one. */
bl_slot *bl_slot_use(belay_context *context, belay_tensor tensor);
/* Around a fork: nobody writes the table of contexts. */
void bl_context_table_hold(bool holds);
/* The open context with that number in its handles, or NULL. */
belay_context *bl_context_find(uint32_t number);
/* The context of a handle; for a stale one too.  NULL for nil or a closed context. */
belay_context *bl_tensor_context(belay_tensor tensor);
/* What is wrong with a handle that is not of the context at work: life.foreign, or life.stale for one that no context
 * ever gave, and how a sentence about it ends; and such a sentence as a fault. */
belay_code bl_tensor_foreign(belay_tensor tensor, const char **words);
belay_code bl_context_raise_foreign(belay_context *context, const char *who, belay_tensor tensor);

/* An uninitialised contiguous tensor in the innermost scope, at the current place or at that one; nil after
 * size.overflow, mem.exhausted or place.lost. */
belay_tensor bl_tensor_new(belay_context *context, belay_dtype dtype, const belay_shape *shape, const char *name);
belay_tensor bl_tensor_new_on(belay_context *context, int place, belay_dtype dtype, const belay_shape *shape,
                              const char *name);
/* A tensor in the innermost scope over the `n_bytes` of a guest's loan at a synchronous place, from its first element on;
 * the caller has checked that they hold it.  Takes over one hold on the loan, whatever happens.  Nil after
 * mem.exhausted. */
belay_tensor bl_tensor_over(belay_context *context, int place, belay_dtype dtype, const belay_shape *shape,
                            const int64_t *stride, void *data, int64_t n_bytes, struct bl_loan *loan);
/* A view of the same storage; sizes, strides and offset are checked against its bytes (size.extent). */
belay_tensor bl_tensor_view(belay_context *context, belay_tensor of, const belay_shape *shape, const int64_t *stride,
                            int64_t offset);
/* A second handle to the same view, owned by no scope; for the tape and for objects. */
belay_tensor bl_tensor_hold(belay_context *context, belay_tensor tensor);
/* Whether what is held has been written since, or since it was last seen; nil was not. */
static inline bool bl_tensor_is_written(const belay_context *context, belay_tensor held)
{
    const bl_slot *slot = bl_slot_get(context, held);
    return slot != NULL && slot->version != slot->storage->version;
}
/* What is held counts as seen from now on. */
static inline void bl_tensor_see(const belay_context *context, belay_tensor held)
{
    bl_slot *slot = bl_slot_get(context, held);
    if (slot != NULL)
        slot->version = slot->storage->version;
}
/* Lets go of one hold on a storage; it dies with the last. */
void bl_storage_release(belay_context *context, bl_storage *storage);
/* The same of a flight's hold: by it the memory outlives the storage. */
void bl_storage_land(belay_context *context, bl_storage *storage);
/* Moves a tensor from its scope to the object list: from now on bl_tensor_drop frees it. */
belay_tensor bl_tensor_own(belay_context *context, belay_tensor tensor);
void bl_tensor_drop(belay_context *context, belay_tensor tensor);
/* The tensor goes on in the memory of `from`, a contiguous one of its shape and dtype that nothing else uses; its own is
 * let go of, and `from` dies. */
void bl_tensor_settle(belay_context *context, belay_tensor tensor, belay_tensor from);

/* From now on the innermost scope and those around it stay open; returns the floor to go back to. */
static inline uint32_t bl_scope_floor_set(belay_context *context)
{
    uint32_t floor = context->floor;
    context->floor = context->depth;
    return floor;
}

belay_shape bl_slot_shape(const bl_slot *slot);
int64_t bl_slot_elements(const bl_slot *slot);
bool bl_slot_is_contiguous(const bl_slot *slot);
static inline void *bl_slot_data(const bl_slot *slot) { return slot->data; }
/* Sizes beyond the rank, and bytes between the fields, mean nothing. */
static inline bool bl_shape_equal(const belay_shape *a, const belay_shape *b)
{
    return a->rank == b->rank && memcmp(a->size, b->size, (size_t)a->rank * sizeof a->size[0]) == 0;
}

/* Row-major strides of a shape; false when its elements overflow. */
bool bl_shape_strides(const belay_shape *shape, int64_t stride[BELAY_MAX_RANK], int64_t *n_elements);

/* ---- members, layers, batches ---------------------------------------------------------------------------------------- */

/* Frees `object` by `free` when the context closes; false when memory ends. */
BL_MUST_USE bool bl_context_adopt(belay_context *context, void *object, void (*free)(void *object));
/* The object frees itself earlier. */
void bl_context_forget(belay_context *context, void *object);

/* Keeps the shell of a dead object, which begins with its grave, for as long as it is remembered. */
void bl_context_bury(belay_context *context, bl_grave *grave, void (*free)(void *object));

/* Appends ".name" to the layer path; returns the length to go back to. */
size_t bl_layer_push(belay_context *context, const char *name);
void bl_layer_pop(belay_context *context, size_t length);
/* Replaces the whole path by a text of the journal; for the walk back. */
void bl_layer_set(belay_context *context, uint32_t text);

/* The batch that the next launches work on: how many samples and who knows their origin. */
void bl_context_batch_set(belay_context *context, int64_t n, bl_describe_sample describe, void *state);
/* That it is a part of a global batch, and where in it the part begins; at 0 until this is called. */
void bl_context_sample_first_set(belay_context *context, int64_t first);
/* Where the elements of a tensor whose first axis has n_rows rows begin among those of the global batch; 0 where that axis
 * is not the batch, or a multiple of it (its heads). */
int64_t bl_context_first_element(const belay_context *context, int64_t n_rows, int64_t n_elements);

/* The next key of random numbers: seed, epoch, position, ordinal of the op in the micro-batch. */
bl_rng_key bl_context_key(belay_context *context);

#endif
