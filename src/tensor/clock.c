/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/clock.h"

static bool overlap(const bl_extent *a, const bl_extent *b) { return a->begin < b->end && b->begin < a->end; }
static bool covers(const bl_extent *a, const bl_extent *b) { return a->begin <= b->begin && b->end <= a->end; }

static bool is_behind(const bl_use *use, const bl_clock *clock)
{
    return bl_clock_is_behind(clock, use->stream, use->number);
}

int bl_uses_conflict(const bl_uses *uses, int at, const bl_clock *clock, const bl_extent *extent, bool writes)
{
    for (int i = at; i < uses->n; i++) {
        const bl_use *use = &uses->use[i];
        if ((writes || use->is_write) && overlap(&use->extent, extent) && !is_behind(use, clock))
            return i;
    }
    return -1;
}

bool bl_uses_are_behind(const bl_uses *uses, const bl_clock *clock)
{
    for (int i = 0; i < uses->n; i++)
        if (!is_behind(&uses->use[i], clock))
            return false;
    return true;
}

/* What is ordered behind `by` is ordered behind `use`: a write comes behind all uses of its bytes, a stream's read behind
 * its earlier ones. */
static bool is_replaced(const bl_use *use, const bl_use *by)
{
    return covers(&by->extent, &use->extent) && (by->is_write || (use->stream == by->stream && !use->is_write));
}

/* Takes `use` into one of the same kind, which then reaches over both. */
static bool merge(bl_uses *uses, const bl_use *use)
{
    for (int i = 0; i < uses->n; i++) {
        bl_use *u = &uses->use[i];
        if (u->stream != use->stream || u->is_write != use->is_write || u->is_inherited != use->is_inherited)
            continue;
        bl_extent both = {use->extent.begin < u->extent.begin ? use->extent.begin : u->extent.begin,
                          use->extent.end > u->extent.end ? use->extent.end : u->extent.end};
        if (use->number >= u->number)
            *u = *use;
        u->extent = both;
        return true;
    }
    return false;
}

/* One a stream and kind is left, and none that the host has waited for. */
static void squeeze(bl_uses *uses, const bl_clock *clock)
{
    bl_uses all = *uses;
    uses->n = 0;
    for (int i = 0; i < all.n; i++)
        if (!is_behind(&all.use[i], clock) && !merge(uses, &all.use[i]))
            uses->use[uses->n++] = all.use[i];
}

void bl_uses_note(bl_uses *uses, const bl_use *use, const bl_clock *clock)
{
    int n = 0;
    for (int i = 0; i < uses->n; i++)
        if (!is_replaced(&uses->use[i], use))
            uses->use[n++] = uses->use[i];
    uses->n = n;
    if (n == BL_MAX_USES)
        squeeze(uses, clock);
    if (uses->n < BL_MAX_USES || !merge(uses, use))
        uses->use[uses->n++] = *use;
}

void bl_uses_inherit(bl_uses *to, const bl_uses *from, int64_t n_bytes)
{
    to->n = 0;
    for (int i = 0; i < from->n; i++) {
        bl_use use = from->use[i];
        use.is_write = use.is_inherited = true;
        use.extent = (bl_extent){0, n_bytes};
        if (!merge(to, &use))
            to->use[to->n++] = use;
    }
}

void bl_uses_forget(bl_uses *uses, int stream)
{
    int n = 0;
    for (int i = 0; i < uses->n; i++)
        if (uses->use[i].stream != stream)
            uses->use[n++] = uses->use[i];
    uses->n = n;
}
