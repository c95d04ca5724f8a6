/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks are about to train, compared before anything moves.  Items are lines of fixed size.  When all hashes are
 * equal, one exchange was all; else the first item that differs is found by halving, since a hash of a beginning that is
 * equal on all ranks rules that beginning out.  Every message has a fixed size, so that ranks which differ can still
 * speak to each other. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "dist/beat.h"
#include "dist/calls.h"
#include "dist/parts.h"
#include "dist/vote.h"

enum { ITEM = 192 };

typedef struct manifest {
    belay_reducer *r;
    char (*item)[ITEM];
    uint64_t *before; /* [n + 1]: hash of the items before each */
    int64_t n, capacity;
    uint64_t *value; /* [size], scratch */
    bool failed;
} manifest;

/* ---- items ----------------------------------------------------------------------------------------------------------- */

static void add(manifest *m, const char *format, ...) BL_PRINTF(2, 3);
static void add(manifest *m, const char *format, ...)
{
    va_list args;
    if (m->failed || !bl_grow(&m->item, &m->capacity, m->n + 1, sizeof *m->item)) {
        m->failed = true;
        return;
    }
    memset(m->item[m->n], 0, ITEM);
    va_start(args, format);
    vsnprintf(m->item[m->n], ITEM, format, args);
    va_end(args);
    m->n++;
}

static void add_tensor(manifest *m, const char *kind, int64_t number, const char *name, belay_tensor tensor)
{
    const bl_slot *slot = bl_slot_get(m->r->context, tensor);
    bl_text shape = {0};
    if (slot == NULL)
        return;
    belay_shape sizes = bl_slot_shape(slot);
    bl_report_shape(&sizes, &shape);
    add(m, "%s %" PRId64 ": %.90s %s %.60s%s", kind, number, name, belay_dtype_name((belay_dtype)slot->dtype),
        bl_text_get(&shape), slot->requires_grad ? ", wants a gradient" : "");
    m->failed = m->failed || shape.failed;
    bl_text_fini(&shape);
}

static void list(manifest *m)
{
    const belay_ddp_options *o = &m->r->options;
    const belay_module *module = m->r->module;
#ifdef BELAY_SMALL
    add(m, "build: belay %s, small", BELAY_VERSION);
#else
    add(m, "build: belay %s", BELAY_VERSION);
#endif
    add(m, "seed: %" PRIu64, m->r->context->seed);
    add(m, "batch: %" PRId64, o->batch);
    add(m, "first_bucket_bytes: %" PRId64, o->first_bucket_bytes);
    add(m, "bucket_bytes: %" PRId64, o->bucket_bytes);
    add(m, "find_unused_parameters: %s", o->find_unused_parameters ? "yes" : "no");
    add(m, "broadcast_buffers: %s", o->broadcast_buffers ? "yes" : "no");
    add(m, "digest_every: %" PRId64, o->digest_every);
    for (int64_t i = 0; i < belay_module_n_parameters(module); i++)
        add_tensor(m, "parameter", i, belay_module_parameter_name(module, i), belay_module_parameter(module, i));
    for (int64_t i = 0; i < belay_module_n_buffers(module); i++)
        add_tensor(m, "buffer", i, belay_module_buffer_name(module, i), belay_module_buffer(module, i));
}

/* FNV-1a (Fowler, Noll, Vo) over whole items. */
static bool hash(manifest *m)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    m->before = m->failed ? NULL : bl_alloc(m->n + 1, sizeof *m->before);
    m->value = bl_alloc(belay_group_size(m->r->group), sizeof *m->value);
    if (m->before == NULL || m->value == NULL)
        return false;
    for (int64_t i = 0; i <= m->n; i++) {
        m->before[i] = h;
        for (int k = 0; k < ITEM && i < m->n; k++)
            h = (h ^ (unsigned char)m->item[i][k]) * UINT64_C(0x100000001B3);
    }
    return true;
}

/* ---- comparing ------------------------------------------------------------------------------------------------------- */

/* Of the first n items, or of fewer where there are not so many: never the same as with another number. */
static uint64_t hash_of(const manifest *m, int64_t n)
{
    return n <= m->n ? m->before[n] : m->before[m->n] + (uint64_t)(n - m->n);
}

/* Whether all ranks begin with the same n items. */
static belay_code ask(manifest *m, int64_t n, bool *is_same, int64_t *most)
{
    belay_group *group = m->r->group;
    bl_word word = bl_group_word(group, BL_CALL_MANIFEST);
    word.count = n;
    word.value = m->n;
    word.digest = hash_of(m, n < 0 ? m->n : n);
    TRY(bl_group_exchange(group, &word));
    *is_same = true;
    for (int q = 0; q < belay_group_size(group); q++) {
        const bl_word *w = &group->all[q];
        *is_same = *is_same && w->digest == group->all[0].digest && (n >= 0 || w->value == group->all[0].value);
        *most = w->value > *most ? w->value : *most;
    }
    return BELAY_OK;
}

/* The first item that is not the same on all: items before `low` are, those before `high` are not. */
static belay_code find_first(manifest *m, int64_t most, int64_t *first)
{
    int64_t low = 0, high = most + 1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2, unused = 0;
        bool is_same;
        TRY(ask(m, middle, &is_same, &unused));
        low = is_same ? middle : low;
        high = is_same ? high : middle;
    }
    *first = low;
    return BELAY_OK;
}

static uint64_t hash_text(const char *text)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (; *text != '\0'; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001B3);
    return h;
}

/* "batch" of "batch: 8"; what it is about where one side has none. */
static void name_item(const char *a, const char *b, char *out, size_t size)
{
    const char *from = a[0] != '\0' ? a : b, *colon = strchr(from, ':');
    snprintf(out, size, "%.*s", colon != NULL ? (int)(colon - from) : 40, from);
}

static void tell(manifest *m, char (*all)[ITEM])
{
    belay_group *group = m->r->group;
    int size = belay_group_size(group), culprits[BL_MAX_CULPRITS], n = 0;
    bl_report_fault f;
    bl_text names = {0}, others = {0};
    char about[48];
    for (int q = 0; q < size; q++) {
        all[q][ITEM - 1] = '\0';
        m->value[q] = hash_text(all[q]);
    }
    bl_vote vote = bl_vote_of(m->value, size);
    if (vote.odd < 0)
        vote.odd = vote.reference;
    bl_report_fault_init(&f, BELAY_COMM_MISMATCH);
    name_item(all[vote.reference], all[vote.odd], about, sizeof about);
    bl_vote_name(m->value, size, vote.odd, &names);
    bl_vote_name(m->value, size, vote.reference, &others);
    snprintf(f.what, sizeof f.what, "%.80s and %.80s are about to train different things: they differ in %s%s",
             bl_text_get(&names), bl_text_get(&others), about, vote.is_tie ? ", and as many say one as the other" : "");
    bl_report_fault_fact(&f, "%.80s: %s", bl_text_get(&names),
                         all[vote.odd][0] != '\0' ? all[vote.odd] : "nothing there");
    bl_report_fault_fact(&f, "%.80s: %s", bl_text_get(&others),
                         all[vote.reference][0] != '\0' ? all[vote.reference] : "nothing there");
    bl_text_fini(&names);
    bl_text_fini(&others);
    for (int q = 0; q < size && n < BL_MAX_CULPRITS && !vote.is_tie; q++)
        if (m->value[q] != m->value[vote.reference])
            culprits[n++] = q;
    bl_group_break(group, &f, culprits, n);
    bl_group_look(group);
}

static belay_code tell_first(manifest *m, int64_t most)
{
    int64_t first = 0;
    char mine[ITEM] = {0};
    TRY(find_first(m, most, &first));
    if (first < m->n)
        memcpy(mine, m->item[first], ITEM);
    char(*all)[ITEM] = bl_alloc(belay_group_size(m->r->group), sizeof *all);
    if (all == NULL) {
        bl_context_raise(m->r->context, BELAY_MEM_EXHAUSTED, "no memory to compare what the ranks train");
        return bl_group_refuse(m->r->group, BL_CALL_ALL_GATHER, BELAY_MEM_EXHAUSTED);
    }
    belay_code code = bl_group_host_all_gather(m->r->group, mine, all, ITEM, "the item that differs");
    if (code == BELAY_OK)
        tell(m, all);
    bl_free(all);
    return code != BELAY_OK ? code : m->r->group->broken;
}

static belay_code compare(manifest *m)
{
    bool is_same;
    int64_t most = 0;
    TRY(ask(m, -1, &is_same, &most));
    return is_same ? BELAY_OK : tell_first(m, most);
}

bool bl_manifest_agree(belay_reducer *r)
{
    manifest m = {.r = r};
    belay_code code;
    list(&m);
    if (hash(&m)) {
        code = compare(&m);
    } else {
        code = bl_context_raise(r->context, BELAY_MEM_EXHAUSTED, "no memory to compare what the ranks train");
        code = bl_group_refuse(r->group, BL_CALL_MANIFEST, code);
    }
    bl_free(m.item);
    bl_free(m.before);
    bl_free(m.value);
    return code == BELAY_OK;
}
