/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the user's own on the host's processors.  Threads split the items; what is told is that of the lowest
 * item, so that a report does not depend on their number. */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "device/cpu/kernel.h"
#include "device/trap.h"
#include "kernel/custom.h"

typedef struct part {
    const bl_custom *custom;
    int64_t begin, end;
    belay_kernel_thread thread;
} part;

static void run_part(void *state)
{
    part *p = state;
    p->custom->items(&p->custom->args, &p->thread, p->begin, p->end);
}

/* An illegal access ends the items of its thread. */
static void run_trapped(part *p)
{
    bl_trap_access access = {0};
    if (bl_trap_run(run_part, p, &access))
        return;
    p->thread = (belay_kernel_thread){.count = 1,
                                      .item = p->begin,
                                      .got = (int64_t)access.address,
                                      .limit = access.is_write_known ? 1 + access.is_write : 0,
                                      .code = BELAY_MEM_ACCESS,
                                      .operand = -1};
}

/* Keeps the lower item; an illegal access stands before all. */
static void merge(belay_kernel_thread *into, const belay_kernel_thread *from)
{
    if (from->count == 0)
        return;
    uint64_t count = into->count + from->count;
    bool is_worse = (from->code == BELAY_MEM_ACCESS) > (into->code == BELAY_MEM_ACCESS);
    bool is_equal = (from->code == BELAY_MEM_ACCESS) == (into->code == BELAY_MEM_ACCESS);
    if (into->count == 0 || is_worse || (is_equal && from->item < into->item))
        *into = *from;
    into->count = count;
}

static void run_one(const bl_cpu *cpu, part *p)
{
    if (cpu->traps)
        run_trapped(p);
    else
        run_part(p);
}

static BL_CPU_THREADED void run_on_threads(const bl_cpu *cpu, const bl_launch *l, int n_threads,
                                           belay_kernel_thread *all)
{
#pragma omp parallel num_threads(n_threads)
    {
        int number = omp_get_thread_num(), parts = omp_get_num_threads();
        part mine = {.custom = l->custom,
                     .begin = bl_cpu_part_begin(l->n_items, number, parts),
                     .end = bl_cpu_part_begin(l->n_items, number + 1, parts)};
        run_one(cpu, &mine);
#pragma omp critical
        merge(all, &mine.thread);
    }
}

static void run_items(const bl_cpu *cpu, const bl_launch *l, belay_kernel_thread *all)
{
    int n_threads = cpu->is_serial ? 1 : (int)bl_min_i64(bl_cpu_threads_for(cpu, l->work), bl_max_i64(l->n_items, 1));
    if (n_threads > 1) {
        run_on_threads(cpu, l, n_threads, all);
        return;
    }
    part whole = {.custom = l->custom, .begin = 0, .end = l->n_items};
    run_one(cpu, &whole);
    *all = whole.thread;
}

void bl_cpu_run_custom(const bl_cpu *cpu, const bl_launch *l, bl_bad *bad)
{
    bl_custom *custom = l->custom;
    for (int k = 0; k < l->n_operands; k++)
        custom->args.operand[k].data = l->operand[k].data;
    belay_kernel_thread all = {.count = 0};
    run_items(cpu, l, &all);
    if (all.count == 0)
        return;
    if (all.message != NULL)
        snprintf(custom->message, sizeof custom->message, "%s", all.message);
    *bad = (bl_bad){.element = all.item,
                    .got = all.got,
                    .limit = all.limit,
                    .count = all.count,
                    .operand = (uint8_t)all.operand,
                    .axis = (uint8_t)all.axis,
                    .code = (uint16_t)all.code};
}
