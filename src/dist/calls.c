/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a group.  A rank whose own call is refused tells the others so instead of leaving them to wait: where
 * all are refused alike the group goes on, else the odd ones are named. */
#include "dist/calls.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "tensor/lease.h"

belay_code bl_group_refuse(belay_group *group, bl_call_kind kind, belay_code code)
{
    bl_word word = bl_group_word(group, kind);
    word.flags |= BL_FLAG_REFUSED;
    snprintf(word.more, sizeof word.more, "%s", belay_code_name(code));
    belay_code met = bl_group_exchange(group, &word);
    return met != BELAY_OK ? met : code;
}

/* ---- tensors --------------------------------------------------------------------------------------------------------- */

/* What an operation moves. */
typedef struct moved {
    belay_tensor tensor;
    belay_dtype dtype;
    int64_t n, n_bytes;
} moved;

static belay_code check_tensor(belay_group *group, const char *call, belay_tensor tensor, bool writes, moved *out)
{
    belay_context *context = group->context;
    if (belay_tensor_is_nil(tensor))
        return bl_context_raise(context, BELAY_CONF_MISSING, "a nil tensor was given to %s", call);
    if (tensor.context != context->number) {
        char who[64];
        snprintf(who, sizeof who, "a tensor given to %s", call);
        return bl_context_raise_foreign(context, who, tensor);
    }
    const bl_slot *slot = bl_slot_use(context, tensor);
    if (slot == NULL)
        return BELAY_LIFE_STALE;
    if (!bl_slot_is_contiguous(slot))
        return bl_context_raise(context, BELAY_SHAPE_CONTRACT, "a tensor given to %s is not contiguous", call);
    if (writes && !bl_lease_permits(context, slot, true, call))
        return BELAY_LIFE_BUCKET;
    *out = (moved){.tensor = tensor, .dtype = (belay_dtype)slot->dtype, .n = bl_slot_elements(slot)};
    out->n_bytes = out->n * belay_dtype_size(out->dtype);
    return BELAY_OK;
}

static belay_code no_memory(belay_group *group, const char *call, int64_t n_bytes)
{
    return bl_context_raise(group->context, BELAY_MEM_EXHAUSTED, "no memory for %s of %" PRId64 " bytes", call,
                            n_bytes);
}

/* A copy on the host of what the tensor holds, or room for it. */
static belay_code take_host(belay_group *group, const char *call, const moved *m, bool reads, void **out)
{
    if ((*out = bl_alloc_aligned(bl_max_i64(m->n_bytes, 1), 64)) == NULL)
        return no_memory(group, call, m->n_bytes);
    return reads && m->n_bytes > 0 ? belay_tensor_read(m->tensor, *out, m->n_bytes) : BELAY_OK;
}

/* Runs a work of the data plane over memory of its own.  After a failure that stays, since the transport may still write
 * there: the worker keeps it. */
static belay_code run(belay_group *group, bl_work *work, void *host, void *more)
{
    if (work->n == 0)
        return BELAY_OK;
    work->plane = BL_PLANE_DATA;
    work->site = group->context->site;
    bl_group_post(group, work);
    if (bl_group_wait(group, work))
        return BELAY_OK;
    bl_group_keep(group, host);
    bl_group_keep(group, more);
    return group->broken;
}

/* The others have theirs by then and go on: they learn that this rank cannot. */
static belay_code write_back(belay_group *group, const char *call, const moved *m, const void *host)
{
    char why[160];
    belay_code code = m->n_bytes > 0 ? belay_tensor_write(m->tensor, host, m->n_bytes) : BELAY_OK;
    if (code == BELAY_OK)
        return BELAY_OK;
    snprintf(why, sizeof why, "what %s brought could not be written (%s)", call, belay_code_name(code));
    bl_group_give_up(group, why);
    return code;
}

/* ---- all-reduce ------------------------------------------------------------------------------------------------------ */

static bool can_reduce(belay_dtype dtype, belay_group_op op)
{
    bool is_small = dtype == BELAY_U16 || dtype == BELAY_U8 || dtype == BELAY_BOOL;
    switch (op) {
    case BELAY_GROUP_SUM:
        return !is_small;
    case BELAY_GROUP_MAX:
        return true;
    case BELAY_GROUP_OR:
        return !belay_dtype_is_float(dtype);
    }
    return false;
}

static belay_code check_op(belay_group *group, belay_dtype dtype, belay_group_op op)
{
    static const char *const names[] = {"sums", "largest values", "bits joined by or"};
    if ((int)op < 0 || op > BELAY_GROUP_OR)
        return bl_context_raise(group->context, BELAY_CONF_VALUE, "the operation of an all_reduce is %d, which is none",
                                (int)op);
    if (can_reduce(dtype, op))
        return BELAY_OK;
    return bl_context_raise(group->context, BELAY_TYPE_DTYPE, "all_reduce has no %s of %s", names[op],
                            belay_dtype_name(dtype));
}

static belay_code prepare_reduce(belay_group *group, belay_tensor tensor, belay_group_op op, moved *m, void **host)
{
    TRY(check_tensor(group, "all_reduce", tensor, true, m));
    TRY(check_op(group, m->dtype, op));
    return take_host(group, "all_reduce", m, true, host);
}

belay_code belay_group_all_reduce(belay_group *group, belay_tensor tensor, belay_group_op op)
{
    BL_ENTER(group != NULL ? group->context : NULL);
    if (!bl_group_use(group))
        return bl_group_code(group);
    moved m = {.n = 0};
    void *host = NULL;
    belay_code code = prepare_reduce(group, tensor, op, &m, &host);
    if (code == BELAY_OK) {
        bl_word word = bl_group_word(group, BL_CALL_ALL_REDUCE);
        word.dtype = m.dtype;
        word.op = op;
        word.count = m.n;
        code = bl_group_exchange(group, &word);
    } else {
        code = bl_group_refuse(group, BL_CALL_ALL_REDUCE, code);
    }
    bl_work work = {
        .kind = BL_WORK_ALL_REDUCE, .data = host, .n = m.n, .dtype = m.dtype, .op = op, .what = "all_reduce"};
    if (code == BELAY_OK && (code = run(group, &work, host, NULL)) == BELAY_OK)
        code = write_back(group, "all_reduce", &m, host);
    if (work.state != BL_WORK_FAILED)
        bl_free(host);
    return code;
}

/* ---- broadcast, all-gather ------------------------------------------------------------------------------------------- */

static belay_code check_root(belay_group *group, int root)
{
    if (root >= 0 && root < group->place.size)
        return BELAY_OK;
    return bl_context_raise(group->context, BELAY_CONF_VALUE, "the root of a broadcast is rank %d, of %d", root,
                            group->place.size);
}

static belay_code prepare_broadcast(belay_group *group, belay_tensor tensor, int root, moved *m, void **host)
{
    TRY(check_root(group, root));
    TRY(check_tensor(group, "broadcast", tensor, root != group->place.rank, m));
    return take_host(group, "broadcast", m, root == group->place.rank, host);
}

belay_code belay_group_broadcast(belay_group *group, belay_tensor tensor, int root)
{
    BL_ENTER(group != NULL ? group->context : NULL);
    if (!bl_group_use(group))
        return bl_group_code(group);
    moved m = {.n = 0};
    void *host = NULL;
    belay_code code = prepare_broadcast(group, tensor, root, &m, &host);
    if (code == BELAY_OK) {
        bl_word word = bl_group_word(group, BL_CALL_BROADCAST);
        word.dtype = m.dtype;
        word.root = (uint32_t)root;
        word.count = m.n;
        code = bl_group_exchange(group, &word);
    } else {
        code = bl_group_refuse(group, BL_CALL_BROADCAST, code);
    }
    bl_work work = {.kind = BL_WORK_BROADCAST, .data = host, .n = m.n_bytes, .root = root, .what = "broadcast"};
    if (code == BELAY_OK && (code = run(group, &work, host, NULL)) == BELAY_OK && root != group->place.rank)
        code = write_back(group, "broadcast", &m, host);
    if (work.state != BL_WORK_FAILED)
        bl_free(host);
    return code;
}

static belay_code check_gathered(belay_group *group, const moved *in, const moved *out)
{
    belay_shape a = belay_tensor_shape(in->tensor), b = belay_tensor_shape(out->tensor);
    bool fits = in->dtype == out->dtype && b.rank == a.rank + 1 && b.size[0] == group->place.size;
    for (int i = 0; i < a.rank && fits; i++)
        fits = a.size[i] == b.size[i + 1];
    if (fits)
        return BELAY_OK;
    bl_text got = {0}, wanted = {0};
    belay_shape whole = {.rank = a.rank + 1, .size = {group->place.size}};
    for (int i = 0; i < a.rank && i + 1 < BELAY_MAX_RANK; i++)
        whole.size[i + 1] = a.size[i];
    bl_report_shape(&b, &got);
    bl_report_shape(&whole, &wanted);
    belay_code code = bl_context_raise(group->context, BELAY_SHAPE_CONTRACT,
                                       "all_gather writes %s %s, and its output is %s %s", belay_dtype_name(in->dtype),
                                       bl_text_get(&wanted), belay_dtype_name(out->dtype), bl_text_get(&got));
    bl_text_fini(&got);
    bl_text_fini(&wanted);
    return code;
}

static belay_code prepare_gather(belay_group *group, belay_tensor in, belay_tensor out, moved m[2], void *host[2])
{
    TRY(check_tensor(group, "all_gather", in, false, &m[0]));
    TRY(check_tensor(group, "all_gather", out, true, &m[1]));
    if (belay_tensor_shape(in).rank == BELAY_MAX_RANK)
        return bl_context_raise(group->context, BELAY_SHAPE_CONTRACT, "all_gather of a tensor of rank %d, the most",
                                BELAY_MAX_RANK);
    TRY(check_gathered(group, &m[0], &m[1]));
    TRY(take_host(group, "all_gather", &m[0], true, &host[0]));
    return take_host(group, "all_gather", &m[1], false, &host[1]);
}

belay_code belay_group_all_gather(belay_group *group, belay_tensor in, belay_tensor out)
{
    BL_ENTER(group != NULL ? group->context : NULL);
    if (!bl_group_use(group))
        return bl_group_code(group);
    moved m[2] = {{.n = 0}};
    void *host[2] = {NULL, NULL};
    belay_code code = prepare_gather(group, in, out, m, host);
    if (code == BELAY_OK) {
        bl_word word = bl_group_word(group, BL_CALL_ALL_GATHER);
        word.dtype = m[0].dtype;
        word.count = m[0].n;
        code = bl_group_exchange(group, &word);
    } else {
        code = bl_group_refuse(group, BL_CALL_ALL_GATHER, code);
    }
    bl_work work = {.kind = BL_WORK_ALL_GATHER, .what = "all_gather"};
    if (code == BELAY_OK) {
        work.mine = host[0];
        work.data = host[1];
        work.n = m[0].n_bytes;
        code = run(group, &work, host[0], host[1]);
    }
    if (code == BELAY_OK)
        code = write_back(group, "all_gather", &m[1], host[1]);
    if (work.state != BL_WORK_FAILED) {
        bl_free(host[0]);
        bl_free(host[1]);
    }
    return code;
}

/* ---- barrier, agreeing ----------------------------------------------------------------------------------------------- */

belay_code belay_group_barrier(belay_group *group)
{
    BL_ENTER(group != NULL ? group->context : NULL);
    if (!bl_group_use(group))
        return bl_group_code(group);
    bl_word word = bl_group_word(group, BL_CALL_BARRIER);
    return bl_group_exchange(group, &word);
}

static void warn_of_more(belay_group *group, int64_t n, int64_t least, int rank)
{
    if (n == least)
        return;
    bl_report_fault fault;
    bl_report_fault_init(&fault, BELAY_COMM_UNEVEN);
    snprintf(fault.what, sizeof fault.what,
             "rank %d leaves out %" PRId64 " of its %" PRId64 " batches: rank %d has %" PRId64, group->place.rank,
             n - least, n, rank, least);
    bl_context_fault(group->context, &fault);
}

belay_code belay_group_agree(belay_group *group, int64_t n, int64_t *agreed)
{
    BL_ENTER(group != NULL ? group->context : NULL);
    if (agreed != NULL)
        *agreed = 0;
    if (!bl_group_use(group))
        return bl_group_code(group);
    if (agreed == NULL)
        return bl_group_refuse(group, BL_CALL_AGREE,
                               bl_context_raise(group->context, BELAY_CONF_MISSING,
                                                "ranks agree on a number of batches, and its place is NULL"));
    if (n < 0)
        return bl_group_refuse(
            group, BL_CALL_AGREE,
            bl_context_raise(group->context, BELAY_CONF_VALUE, "ranks agree on numbers of batches, not %" PRId64, n));
    bl_word word = bl_group_word(group, BL_CALL_AGREE);
    word.value = n;
    TRY(bl_group_exchange(group, &word));
    int least = 0;
    for (int r = 1; r < group->place.size; r++)
        if (group->all[r].value < group->all[least].value)
            least = r;
    *agreed = group->all[least].value;
    warn_of_more(group, n, *agreed, least);
    return BELAY_OK;
}

/* ---- host memory, for rooms above ------------------------------------------------------------------------------------ */

/* Before the word: a rank that has no memory for it says so instead. */
static belay_code take_room(belay_group *group, bl_call_kind kind, const char *what, int64_t n_bytes, void **out)
{
    *out = NULL;
    if (n_bytes == 0 || (*out = bl_alloc_aligned(n_bytes, 64)) != NULL)
        return BELAY_OK;
    return bl_group_refuse(group, kind, no_memory(group, what, n_bytes));
}

static belay_code host_call(belay_group *group, bl_word *word, const char *what)
{
    snprintf(word->more, sizeof word->more, "%s", what != NULL ? what : "");
    return bl_group_exchange(group, word);
}

/* Over a copy, which stays when the work fails: the caller's memory is his. */
static belay_code host_run(belay_group *group, bl_word *word, bl_work *work, void *data, int64_t n_bytes)
{
    void *copy;
    const char *what = work->what;
    TRY(take_room(group, (bl_call_kind)word->kind, what, n_bytes, &copy));
    if (n_bytes > 0)
        memcpy(copy, data, (size_t)n_bytes);
    work->data = copy;
    belay_code code = host_call(group, word, what);
    if (code == BELAY_OK && (code = run(group, work, copy, NULL)) == BELAY_OK && n_bytes > 0)
        memcpy(data, copy, (size_t)n_bytes);
    if (work->state != BL_WORK_FAILED)
        bl_free(copy);
    return code;
}

belay_code bl_group_host_broadcast(belay_group *group, void *data, int64_t n_bytes, int root, const char *what)
{
    if (!bl_group_use(group))
        return bl_group_code(group);
    bl_word word = bl_group_word(group, BL_CALL_BROADCAST);
    word.dtype = BELAY_U8;
    word.root = (uint32_t)root;
    word.count = n_bytes;
    bl_work work = {.kind = BL_WORK_BROADCAST, .n = n_bytes, .root = root, .what = what};
    return host_run(group, &word, &work, data, n_bytes);
}

belay_code bl_group_host_all_reduce(belay_group *group, void *data, int64_t n, belay_dtype dtype, belay_group_op op,
                                    const char *what)
{
    if (!bl_group_use(group))
        return bl_group_code(group);
    bl_word word = bl_group_word(group, BL_CALL_ALL_REDUCE);
    word.dtype = dtype;
    word.op = op;
    word.count = n;
    bl_work work = {.kind = BL_WORK_ALL_REDUCE, .n = n, .dtype = dtype, .op = op, .what = what};
    return host_run(group, &word, &work, data, n * belay_dtype_size(dtype));
}

static belay_code prepare_host_gather(belay_group *group, int64_t n_bytes, const char *what, void *copy[2])
{
    int64_t n_all;
    if (!bl_checked_mul(n_bytes, group->place.size, &n_all))
        return bl_group_refuse(group, BL_CALL_ALL_GATHER,
                               bl_context_raise(group->context, BELAY_SIZE_OVERFLOW,
                                                "%s, %" PRId64 " bytes of each of %d ranks, are more than there can be",
                                                what, n_bytes, group->place.size));
    TRY(take_room(group, BL_CALL_ALL_GATHER, what, n_bytes, &copy[0]));
    return take_room(group, BL_CALL_ALL_GATHER, what, n_all, &copy[1]);
}

belay_code bl_group_host_all_gather(belay_group *group, const void *mine, void *all, int64_t n_bytes, const char *what)
{
    if (!bl_group_use(group))
        return bl_group_code(group);
    void *copy[2] = {NULL, NULL};
    bl_word word = bl_group_word(group, BL_CALL_ALL_GATHER);
    word.dtype = BELAY_U8;
    word.count = n_bytes;
    bl_work work = {.kind = BL_WORK_ALL_GATHER, .n = n_bytes, .what = what};
    belay_code code = prepare_host_gather(group, n_bytes, what, copy);
    bool has_data = copy[0] != NULL && copy[1] != NULL;
    if (code == BELAY_OK && (code = host_call(group, &word, what)) == BELAY_OK && has_data) {
        memcpy(copy[0], mine, (size_t)n_bytes);
        work.mine = copy[0];
        work.data = copy[1];
        code = run(group, &work, copy[0], copy[1]);
        if (code == BELAY_OK)
            memcpy(all, copy[1], (size_t)n_bytes * (size_t)group->place.size);
    }
    if (work.state != BL_WORK_FAILED) {
        bl_free(copy[0]);
        bl_free(copy[1]);
    }
    return code;
}
