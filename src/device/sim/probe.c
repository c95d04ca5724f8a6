/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a user's kernel follows a pointer of the host.  A GPU cannot; here the kernel runs in the host's process, and
 * the read would succeed.  A word of its parameters that looks like an address may as well be a number, or what lay
 * between the fields of a struct: so the kernel runs once more, before, with an inaccessible address in its place, and
 * what it wrote is put back.  Only a kernel with such a word pays for that.
 *
 * Without memory for what it writes, or addresses for the inaccessible ones, nothing can be said: the kernel runs without
 * the probe, and may then follow the pointer unseen. */
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/memory.h"
#include "device/sim/sim.h"
#include "device/trap.h"
#include "kernel/custom.h"

enum { MOST_WORDS = 4 };
/* Around each of them: what lies farther from the pointer is not told from another illegal access. */
static const size_t window_bytes = (size_t)1 << 30;

typedef struct probe {
    const bl_cpu *cpu;
    const bl_launch *launch;
    char *region; /* inaccessible */
    int n_words;
    int at[MOST_WORDS]; /* in params, in words */
    uint64_t word[MOST_WORDS];
    unsigned char *saved[BELAY_MAX_KERNEL_OPERANDS];
} probe;

/* ---- words ----------------------------------------------------------------------------------------------------------- */

/* Numbers below 2^32 are no addresses here. */
static bool looks_like_ours(uint64_t word) { return word >> 32 != 0 && word >> 47 == 0 && bl_trap_is_readable(word); }

static void find_words(const belay_kernel_args *args, probe *p)
{
    for (int i = 0; i < args->params_bytes / 8 && p->n_words < MOST_WORDS; i++) {
        uint64_t word;
        memcpy(&word, &args->params[i], sizeof word);
        if (!looks_like_ours(word))
            continue;
        p->at[p->n_words] = i;
        p->word[p->n_words++] = word;
    }
}

/* The middle of word i's part of the region, as far from a multiple of 4096 as the word is. */
static uint64_t stand_in(const probe *p, int i)
{
    return (uint64_t)(uintptr_t)p->region + (uint64_t)i * window_bytes + window_bytes / 2 + p->word[i] % 4096;
}

static void replace_words(belay_kernel_args *args, const probe *p, bool by_stand_in)
{
    for (int i = 0; i < p->n_words; i++) {
        uint64_t word = by_stand_in ? stand_in(p, i) : p->word[i];
        memcpy(&args->params[p->at[i]], &word, sizeof word);
    }
}

/* ---- what the kernel writes ------------------------------------------------------------------------------------------ */

/* From its lowest byte to its highest. */
static unsigned char *extent_of(const belay_kernel_operand *o, void *data, int64_t *n_bytes)
{
    int64_t low = 0, high = 0, size = belay_dtype_size((belay_dtype)o->dtype);
    *n_bytes = 0;
    for (int axis = 0; axis < o->rank; axis++) {
        int64_t reach = (o->size[axis] - 1) * o->stride[axis];
        if (o->size[axis] == 0)
            return data;
        low += bl_min_i64(reach, 0);
        high += bl_max_i64(reach, 0);
    }
    *n_bytes = (high - low + 1) * size;
    return (unsigned char *)data + low * size;
}

static bool save(probe *p)
{
    const belay_kernel_args *args = &p->launch->custom->args;
    for (int k = 0; k < p->launch->n_operands; k++) {
        int64_t n_bytes;
        if (!args->operand[k].is_written || p->launch->operand[k].data == NULL)
            continue;
        const unsigned char *from = extent_of(&args->operand[k], p->launch->operand[k].data, &n_bytes);
        p->saved[k] = bl_alloc(bl_max_i64(n_bytes, 1), 1);
        if (p->saved[k] == NULL)
            return false;
        memcpy(p->saved[k], from, (size_t)n_bytes);
    }
    return true;
}

static void put_back(const probe *p)
{
    const belay_kernel_args *args = &p->launch->custom->args;
    for (int k = 0; k < p->launch->n_operands; k++) {
        int64_t n_bytes;
        if (p->saved[k] == NULL)
            continue;
        unsigned char *to = extent_of(&args->operand[k], p->launch->operand[k].data, &n_bytes);
        memcpy(to, p->saved[k], (size_t)n_bytes);
    }
}

/* ---- the run --------------------------------------------------------------------------------------------------------- */

static void run_body(void *state)
{
    const probe *p = state;
    bl_bad unused = {0};
    bl_cpu_run_custom(p->cpu, p->launch, &unused);
}

/* The host's address behind one of the region. */
static bool find_pointer(const probe *p, const bl_access *trapped, bl_access *out)
{
    uint64_t begin = (uint64_t)(uintptr_t)p->region, offset = trapped->address - begin;
    if (trapped->address < begin || offset >= (uint64_t)p->n_words * window_bytes)
        return false;
    int i = (int)(offset / window_bytes);
    *out = *trapped;
    out->launch = p->launch->serial;
    out->address = p->word[i] + (trapped->address - stand_in(p, i));
    return true;
}

static bool run_probe(probe *p, bl_access *out)
{
    bl_custom *custom = p->launch->custom;
    bl_access trapped = {0};
    replace_words(&custom->args, p, true);
    bool is_followed = !bl_trap_run(run_body, p, &trapped) && find_pointer(p, &trapped, out);
    replace_words(&custom->args, p, false);
    custom->message[0] = '\0';
    put_back(p);
    return is_followed;
}

bool bl_sim_follows_host(const bl_cpu *cpu, const bl_launch *launch, bl_access *out)
{
    probe p = {.cpu = cpu, .launch = launch};
    find_words(&launch->custom->args, &p);
    if (p.n_words == 0)
        return false;
    size_t n_bytes = (size_t)p.n_words * window_bytes;
    p.region = mmap(NULL, n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p.region == MAP_FAILED)
        return false;
    bool is_followed = save(&p) && run_probe(&p, out);
    for (int k = 0; k < BELAY_MAX_KERNEL_OPERANDS; k++)
        bl_free(p.saved[k]);
    munmap(p.region, n_bytes);
    return is_followed;
}
