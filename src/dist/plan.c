/* SPDX-License-Identifier: Apache-2.0 */
#include "dist/plan.h"

#include "base/checked.h"
#include "base/memory.h"

/* The bucket of a dtype that is being filled; it gets its number when it closes. */
typedef struct filling {
    int64_t n_elements, n_parameters, first; /* of `order`: of the first parameter in it */
    bool is_open;
} filling;

typedef struct planner {
    const bl_plan_parameter *parameter;
    const int64_t *order;
    bl_plan *plan;
    filling filling[BELAY_N_DTYPES];
} planner;

static int64_t align_of(belay_dtype dtype) { return BL_PLAN_ALIGN / belay_dtype_size(dtype); }

/* Numbers the bucket of that dtype: all of its parameters up to place `end` of the order. */
static void close_bucket(planner *p, belay_dtype dtype, int64_t end)
{
    filling *f = &p->filling[dtype];
    int64_t number = p->plan->n_buckets++;
    p->plan->bucket[number] = (bl_plan_bucket){f->n_elements, f->n_parameters, dtype};
    for (int64_t i = f->first; i < end; i++)
        if (p->parameter[p->order[i]].dtype == dtype)
            p->plan->place[p->order[i]].bucket = number;
    *f = (filling){0};
}

static bool put(planner *p, int64_t i)
{
    int64_t number = p->order[i], align = align_of(p->parameter[number].dtype);
    filling *f = &p->filling[p->parameter[number].dtype];
    if (!f->is_open)
        *f = (filling){.first = i, .is_open = true};
    int64_t room = 0;
    if (!bl_checked_add(p->parameter[number].n_elements, align - 1, &room))
        return false;
    p->plan->place[number].offset = f->n_elements;
    f->n_parameters++;
    return bl_checked_add(f->n_elements, room / align * align, &f->n_elements);
}

/* What is left, in the order of first parameters. */
static void close_rest(planner *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        belay_dtype dtype = p->parameter[p->order[i]].dtype;
        if (p->filling[dtype].is_open && p->filling[dtype].first == i)
            close_bucket(p, dtype, n);
    }
}

bool bl_plan_make(const bl_plan_parameter *parameter, const int64_t *order, int64_t n, int64_t first_bytes,
                  int64_t bytes, bl_plan *out)
{
    planner p = {.parameter = parameter, .order = order, .plan = out};
    *out = (bl_plan){.n = n};
    out->place = bl_alloc(bl_max_i64(n, 1), sizeof *out->place);
    out->bucket = bl_alloc(bl_max_i64(n, 1), sizeof *out->bucket);
    bool is_whole = out->place != NULL && out->bucket != NULL;
    for (int64_t i = 0; i < n && is_whole; i++) {
        belay_dtype dtype = parameter[order[i]].dtype;
        int64_t limit = out->n_buckets == 0 ? first_bytes : bytes;
        is_whole = put(&p, i);
        if (is_whole && p.filling[dtype].n_elements >= limit / belay_dtype_size(dtype))
            close_bucket(&p, dtype, i + 1);
    }
    if (is_whole)
        close_rest(&p, n);
    else
        bl_plan_free(out);
    return is_whole;
}

void bl_plan_free(bl_plan *plan)
{
    bl_free(plan->place);
    bl_free(plan->bucket);
    *plan = (bl_plan){0};
}
