/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing contexts, and the table by which a handle finds its context. */
#include "tensor/context.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "tensor/host.h"
#include "tensor/place.h"
#include "tensor/timeline.h"
#include "tensor/window.h"

enum { MAX_CONTEXTS = 4096 };

/* Handles carry place + MAX_CONTEXTS * use, where the first use of a place is 1: a place's number is never given twice,
 * so a handle of a closed context is found to be one. */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER; /* held over a fork */
static struct {
    belay_context *context;
    uint32_t use;
} table[MAX_CONTEXTS];

static belay_context nil_context = {.open_code = BELAY_MEM_EXHAUSTED};

static bool table_enter(belay_context *context)
{
    bool entered = false;
    pthread_mutex_lock(&table_lock);
    for (uint32_t place = 0; place < MAX_CONTEXTS && !entered; place++)
        if (table[place].context == NULL && table[place].use < UINT32_MAX / MAX_CONTEXTS - 1) {
            __atomic_store_n(&table[place].use, table[place].use + 1, __ATOMIC_RELEASE);
            context->number = place + MAX_CONTEXTS * table[place].use;
            __atomic_store_n(&table[place].context, context, __ATOMIC_RELEASE);
            entered = true;
        }
    pthread_mutex_unlock(&table_lock);
    return entered;
}

/* A child finds the lock as it finds the table: whole, and free. */
void bl_context_table_hold(bool holds)
{
    if (holds)
        pthread_mutex_lock(&table_lock);
    else
        pthread_mutex_unlock(&table_lock);
}

static void table_leave(belay_context *context)
{
    pthread_mutex_lock(&table_lock);
    __atomic_store_n(&table[context->number % MAX_CONTEXTS].context, NULL, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&table_lock);
}

/* Looks at no context but the one that is found: another thread may be closing any other.  A place that was never used,
 * to which only made-up numbers belong, holds none. */
belay_context *bl_context_find(uint32_t number)
{
    uint32_t place = number % MAX_CONTEXTS;
    belay_context *context = __atomic_load_n(&table[place].context, __ATOMIC_ACQUIRE);
    uint32_t use = __atomic_load_n(&table[place].use, __ATOMIC_ACQUIRE);
    return use == number / MAX_CONTEXTS ? bl_context_here(context) : NULL;
}

belay_context *bl_tensor_context(belay_tensor tensor) { return bl_context_find(tensor.context); }

belay_code bl_tensor_foreign(belay_tensor tensor, const char **words)
{
    uint32_t use = tensor.context / MAX_CONTEXTS;
    bool was_given = use != 0 && use <= __atomic_load_n(&table[tensor.context % MAX_CONTEXTS].use, __ATOMIC_ACQUIRE);
    *words = !was_given                          ? "is a handle that no context ever gave"
             : bl_tensor_context(tensor) != NULL ? "belongs to another context"
                                                 : "belongs to another context, which is closed";
    return was_given ? BELAY_LIFE_FOREIGN : BELAY_LIFE_STALE;
}

belay_context *belay_tensor_context(belay_tensor tensor)
{
    belay_context *context = bl_tensor_context(tensor);
    return BL_ASK(context) ? context : NULL;
}

/* The journal that was asked for; when the default place cannot be written, memory. */
static belay_code open_journal(belay_context *context, const belay_options *options, bl_error *error)
{
    const char *names[BL_N_OPS];
    for (int i = 0; i < BL_N_OPS; i++)
        names[i] = bl_kernel_rows[i].name;
    context->keep_journal = options->journal != NULL;
    if (options->journal != NULL)
        return bl_journal_open(options->journal, names, BL_N_OPS, &context->journal, error);
    const char *folder = getenv("TMPDIR");
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/belay-%ld-%u.journal",
                          folder != NULL && folder[0] != '\0' ? folder : "/tmp", (long)getpid(), context->number);
    bool fits = length > 0 && (size_t)length < sizeof path;
    belay_code code = BELAY_FILE_OPEN;
    if (!options->no_journal && fits)
        code = bl_journal_open(path, names, BL_N_OPS, &context->journal, error);
    bool no_file = code == BELAY_FILE_OPEN || code == BELAY_FILE_WRITE;
    return no_file ? bl_journal_open(NULL, names, BL_N_OPS, &context->journal, error) : code;
}

static belay_code check_options(const belay_options *options, bl_error *error)
{
    if (options->threads < 0 || options->threads > 1024)
        return bl_error_set(error, BELAY_CONF_VALUE, "threads is %d, outside [0, 1024]", options->threads);
    if ((int)options->index_policy < 0 || options->index_policy > BELAY_INDEX_ZERO)
        return bl_error_set(error, BELAY_CONF_VALUE, "index_policy is %d, which is no policy",
                            (int)options->index_policy);
    if ((int)options->place < 0 || options->place > BELAY_PLACE_MOVE)
        return bl_error_set(error, BELAY_CONF_VALUE, "place is %d, which is none", (int)options->place);
    return BELAY_OK;
}

static belay_code open_parts(belay_context *context, const belay_options *options, bl_error *error)
{
    TRY(check_options(options, error));
    context->ring = bl_alloc_aligned(sizeof *context->ring, 64);
    if (context->ring == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for a context");
    memset(context->ring, 0, sizeof *context->ring);
    /* The threads of the pool that a parent had are not in its child, where the pool would wait for them. */
    context->device_options = (bl_device_options){.threads = bl_caller_forks == 0 ? options->threads : 1};
    TRY(bl_modes_open(context, options, error));
    if (options->trace != NULL)
        TRY(bl_timeline_open(context, options->trace, error));
    TRY(bl_place_open(context, options->device != NULL ? options->device : "cpu", &context->here, error));
    context->device = context->places[context->here].device;
    TRY(open_journal(context, options, error));
    bl_places_show(context);
    context->n_slots = 1; /* slot 0 ends lists */
    context->depth = 1;
    return BELAY_OK;
}

static void free_oldest_grave(belay_context *context)
{
    bl_grave *grave = context->first_grave;
    context->first_grave = grave->next;
    context->n_graves--;
    grave->free(grave);
}

/* What is still in flight ends, and is told, before anything that it uses is freed.  A second time it does nothing. */
static void close_places(belay_context *context)
{
    if (context->is_open)
        bl_window_settle(context, NULL);
    if (context->fence_hooks != NULL)
        context->fence_hooks->close(context);
    if (context->trace != NULL)
        bl_timeline_close(context);
}

static void free_context(belay_context *context)
{
    context->is_closing = true;
    close_places(context);
    while (context->members != NULL) {
        bl_member *member = context->members;
        context->members = member->next;
        if (member->next != NULL)
            member->next->previous = NULL;
        member->free(member->object);
        bl_free(member);
    }
    while (context->first_grave != NULL)
        free_oldest_grave(context);
    for (int64_t s = 1; s < context->n_slots; s++)
        if (bl_slot_at(context, (uint32_t)s)->is_alive) {
            belay_tensor tensor = {context->number, (uint32_t)s, bl_slot_at(context, (uint32_t)s)->generation};
            bl_tensor_drop(context, tensor);
        }
    while (context->free_storage != NULL) {
        bl_storage *storage = context->free_storage;
        context->free_storage = storage->next_free;
        bl_free(storage->uses);
        bl_free(storage);
    }
    bl_host_close(context);
    bl_places_hide(context);
    bl_journal_close(context->journal, context->keep_journal);
    belay_faults_clear(context);
    bl_places_close(context);
    bl_free(context->ring);
    for (int64_t b = 0; b < context->n_blocks; b++)
        bl_free(context->slot_blocks[b]);
    bl_free(context->slot_blocks);
    if (context->number != 0)
        table_leave(context);
    bl_free(context);
}

/* What could not be opened is told here: there is no context to keep it. */
static void tell_failure(const belay_options *options, const bl_error *error)
{
    bl_report_fault fault;
    bl_text words = {0};
    bl_report_fault_init(&fault, error->code);
    snprintf(fault.what, sizeof fault.what, "%s", error->what);
    snprintf(fault.facts, sizeof fault.facts, "%.*s", (int)sizeof fault.facts - 1, error->facts);
    snprintf(fault.advice, sizeof fault.advice, "%s", error->advice);
    bl_report_fault_describe(&fault, &words);
    if (options->log != NULL)
        options->log(options->log_state, error->code, bl_text_get(&words));
    bl_text_fini(&words);
}

belay_context *belay_open(const belay_options *options)
{
    static const belay_options defaults = {0};
    options = options != NULL ? options : &defaults;
    bl_error error = {0};
    belay_context *context = bl_alloc(1, sizeof *context);
    belay_code code;
    if (context != NULL)
        bl_caller_open(context);
    if (context == NULL)
        code = bl_error_set(&error, BELAY_MEM_EXHAUSTED, "no memory for a context");
    else if (!table_enter(context))
        code =
            bl_error_set(&error, BELAY_SIZE_OVERFLOW, "%d contexts are open, the most that there can be", MAX_CONTEXTS);
    else
        code = open_parts(context, options, &error);
    if (code != BELAY_OK) {
        tell_failure(options, &error);
        if (context == NULL)
            return &nil_context;
        context->open_code = code;
        return context;
    }
    context->is_open = true;
    context->log = options->log;
    context->log_state = options->log_state;
    context->policy = options->index_policy != BELAY_INDEX_DEFAULT ? options->index_policy : BELAY_INDEX_RAISE;
    context->place = options->place;
    context->trace_nonfinite = options->trace_nonfinite;
    context->rank = options->rank;
    context->seed = options->seed;
    context->recording = true;
    context->first_fault = -1;
    return context;
}

bool belay_is_open(const belay_context *context)
{
    return context != NULL && context->is_open && !bl_context_is_elsewhere(context);
}

/* The calls on the stack would go on with what was freed. */
static belay_code refuse_to_close(belay_context *context, uintptr_t site)
{
    __attribute__((cleanup(bl_enter_end), unused)) bl_enter call = bl_enter_call(context, site);
    bl_error error;
    bl_error_set(&error, BELAY_CONF_ORDER, "a context was closed inside of a call that uses it");
    bl_error_advise(&error, "Close it after the outermost call has returned.");
    return bl_context_raise_error(context, &error);
}

/* What the process that opened it, or the thread that uses it, goes on to use stays as it is. */
static int close_elsewhere(belay_context *context, uintptr_t site)
{
    bool is_child = context->forks != bl_caller_forks;
    if (context->is_open)
        bl_caller_refuse(context, site);
    return belay_code_status(!context->is_open ? context->open_code : is_child ? BELAY_PLACE_FORK : BELAY_PLACE_WORKER);
}

/* The status of a rank that gave its group up and has no fault to tell. */
enum { GAVE_UP = 3 };

/* A process that cannot use its device again says so, whatever the fault before was. */
static belay_code last_code(const belay_context *context)
{
    for (int i = 0; i < context->n_places; i++)
        if (context->places[i].loss_is_told)
            return BELAY_PLACE_LOST;
    return context->first_code;
}

int belay_close(belay_context *context)
{
    if (context == NULL || context == &nil_context)
        return belay_code_status(context == NULL ? BELAY_CONF_VALUE : nil_context.open_code);
    if (bl_context_is_elsewhere(context))
        return close_elsewhere(context, (uintptr_t)__builtin_return_address(0));
    if (context->site != 0 || context->n_guarded > 0)
        return belay_code_status(refuse_to_close(context, (uintptr_t)__builtin_return_address(0)));
    /* What is called from here on cannot close it again. */
    context->site =
        context->n_labels > 0 ? context->labels[context->n_labels - 1] : (uintptr_t)__builtin_return_address(0);
    if (context->is_open) {
        close_places(context); /* whose faults count */
        if (context->close_groups != NULL)
            context->close_groups(context);
        bl_modes_close(context);
        bl_context_tell_refused(context);
    }
    int status = belay_code_status(context->is_open ? last_code(context) : context->open_code);
    status = status == 0 && context->gave_up ? GAVE_UP : status;
    free_context(context);
    return status;
}

void belay_log_stderr(void *state, belay_code code, const char *text)
{
    (void)state, (void)code;
    fputs(text, stderr);
}

bool bl_context_adopt(belay_context *context, void *object, void (*free)(void *object))
{
    bl_member *member = bl_alloc(1, sizeof *member);
    if (member == NULL)
        return false;
    *member = (bl_member){.free = free, .object = object, .next = context->members};
    if (context->members != NULL)
        context->members->previous = member;
    context->members = member;
    return true;
}

void bl_context_forget(belay_context *context, void *object)
{
    bl_member *member = context->members;
    while (member != NULL && member->object != object)
        member = member->next;
    if (member == NULL)
        return;
    if (member->previous != NULL)
        member->previous->next = member->next;
    else
        context->members = member->next;
    if (member->next != NULL)
        member->next->previous = member->previous;
    bl_free(member);
}

void bl_context_bury(belay_context *context, bl_grave *grave, void (*free)(void *object))
{
    *grave = (bl_grave){.free = free};
    if (context->first_grave == NULL)
        context->first_grave = grave;
    else
        context->last_grave->next = grave;
    context->last_grave = grave;
    if (++context->n_graves > BL_MAX_GRAVES && !context->is_closing)
        free_oldest_grave(context);
}

size_t bl_layer_push(belay_context *context, const char *name)
{
    size_t length = strlen(context->layer);
    snprintf(context->layer + length, sizeof context->layer - length, "%s%s", length > 0 ? "." : "", name);
    context->layer_text = belay_is_open(context) ? bl_journal_text(context->journal, context->layer) : 0;
    return length;
}

void bl_layer_pop(belay_context *context, size_t length)
{
    context->layer[length] = '\0';
    context->layer_text = belay_is_open(context) ? bl_journal_text(context->journal, context->layer) : 0;
}

void bl_layer_set(belay_context *context, uint32_t text)
{
    if (text == context->layer_text)
        return;
    snprintf(context->layer, sizeof context->layer, "%s", bl_journal_text_get(context->journal, text));
    context->layer_text = text;
}

void bl_context_batch_set(belay_context *context, int64_t n, bl_describe_sample describe, void *state)
{
    context->n_batch = n;
    context->sample_first = 0;
    context->n_batches++;
    context->describe_sample = describe;
    context->sample_state = state;
}

void bl_context_sample_first_set(belay_context *context, int64_t first) { context->sample_first = first; }

int64_t bl_context_first_element(const belay_context *context, int64_t n_rows, int64_t n_elements)
{
    int64_t first, n = context->n_batch;
    bool has_batch = context->sample_first > 0 && n > 0 && n_rows % n == 0;
    return has_batch && bl_checked_mul(context->sample_first, n_elements / n, &first) ? first : 0;
}

bl_rng_key bl_context_key(belay_context *context)
{
    return (bl_rng_key){context->seed, context->epoch, context->position, context->ordinal++};
}

bool belay_recording_set(belay_context *context, bool recording)
{
    if (!BL_ASK(context))
        return false;
    bool was = context->recording;
    context->recording = recording;
    return was;
}

bool belay_recording_get(const belay_context *context) { return BL_ASK(context) && context->recording; }

void belay_position_set(belay_context *context, uint32_t epoch, uint32_t position)
{
    if (!BL_ASK(context))
        return;
    context->epoch = epoch;
    context->position = position;
    context->position_is_set = true;
    context->ordinal = 0;
}

belay_memory belay_memory_get(const belay_context *context)
{
    belay_memory m = {0};
    if (BL_ASK(context))
        bl_pool_memory(context->device->api->pool(context->device), &m.in_use, &m.held, &m.peak);
    return m;
}

int belay_threads_get(const belay_context *context)
{
    return BL_ASK(context) ? context->device->api->threads(context->device) : 0;
}

const char *belay_device_get(const belay_context *context) { return BL_ASK(context) ? context->device->name : ""; }

void belay_site_push(belay_context *context, const char *label)
{
    if (!BL_ASK(context))
        return;
    bool hides = label != NULL && label[0] == '\0';
    uint32_t text = bl_journal_text(context->journal, label != NULL ? label : "");
    if ((text == 0 && !hides) || context->n_labels == BL_MAX_LABELS) {
        context->lost_labels++;
        return;
    }
    context->labels[context->n_labels++] = BL_SITE_LABEL | text;
}

void belay_site_pop(belay_context *context)
{
    if (!BL_ASK(context))
        return;
    if (context->lost_labels > 0)
        context->lost_labels--;
    else if (context->n_labels > 0)
        context->n_labels--;
}
