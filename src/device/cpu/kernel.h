/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU's stamps make of a body, by skeleton, and how the skeletons call it. */
#ifndef BL_DEVICE_CPU_KERNEL_H
#define BL_DEVICE_CPU_KERNEL_H

#include "device/device.h"

/* One run of a map: n elements along the innermost axis.  Operand 0 is the output. */
typedef struct bl_cpu_run {
    const bl_params *params;
    int64_t n;
    int64_t first; /* linear element of the output where the run starts */
    void *data[4];
    int64_t stride[4]; /* in elements */
} bl_cpu_run;

typedef void (*bl_cpu_map)(const bl_cpu_run *run);
/* Items [begin, end) of a LANE or REDUCE. */
typedef void (*bl_cpu_items)(const bl_launch *launch, int64_t begin, int64_t end, bl_bad *bad);
/* Where n items of a TAKE from (o, n, i) = `at` on, all with the same o, are copied from: rows, or -1.  True: each is a row. */
typedef bool (*bl_cpu_rows)(const bl_launch *launch, const int64_t at[3], int64_t n, int64_t *rows, bl_bad *bad);
/* Keys of source rows [begin, end) of a SORTED, and the sum of sources into one target row. */
typedef void (*bl_cpu_keys)(const bl_launch *launch, int64_t begin, int64_t end, int64_t *keys, bl_bad *bad);
typedef void (*bl_cpu_gather)(const bl_launch *launch, int64_t target, const int64_t *sources, int64_t n,
                              int64_t width);

/* One stamped body: an op in one dtype column. */
typedef struct bl_cpu_entry {
    int op;
    int dtype;
    bl_cpu_map map;
    bl_cpu_items items;
    bl_cpu_rows rows;
    bl_cpu_keys keys;
    bl_cpu_gather gather;
} bl_cpu_entry;

typedef struct bl_cpu_family {
    const bl_cpu_entry *entry;
    int n;
} bl_cpu_family;

/* Every family's entries, ended by one without. */
extern const bl_cpu_family *const bl_cpu_families[];

typedef struct bl_cpu {
    bl_device device;
    bl_pool *pool;    /* tensors */
    bl_pool *scratch; /* of kernels */
    int threads;
    bl_device_options options;
    bool traps;     /* an illegal access of a user's kernel ends that kernel here */
    bool is_serial; /* a user's kernel runs on one thread */
    const bl_cpu_entry *entry[BL_N_OPS][BELAY_N_DTYPES];
} bl_cpu;

/* Attention and its gradient; whether an op calls the BLAS. */
static inline bool bl_cpu_is_attention(int op) { return op == BL_OP_attention || op == BL_OP_attention_grad; }
static inline bool bl_cpu_is_product(int op) { return op == BL_OP_matmul || bl_cpu_is_attention(op); }

/* Fills in `entry`: what every device that runs on the host's processors does. */
void bl_cpu_fill_entries(bl_cpu *cpu);
/* Whether there is code for this op in this dtype. */
bool bl_cpu_has(const bl_cpu *cpu, const bl_launch *launch);
/* place.cpu when the processor lacks instructions. */
belay_code bl_cpu_check_processor(bl_error *error);
/* Tells who opened the device that a launch has run. */
void bl_cpu_tell_ran(const bl_cpu *cpu, int stream, const bl_launch *launch, int64_t start);
/* Runs a launch on the calling thread (and `threads` - 1 more) and publishes its bad elements. */
belay_code bl_cpu_dispatch(bl_cpu *cpu, const bl_launch *launch);

/* A function with OpenMP in it: clang calls the runtime as soon as it is entered, and a device that runs on threads of
 * its own keeps them out of OpenMP. */
#define BL_CPU_THREADED __attribute__((noinline))

/* The skeletons.  On one thread they do without OpenMP: a kernel that is ended in the middle leaves no team behind.  Each folds its threads' bad elements into `bad`. */
void bl_cpu_run_map(bl_cpu *cpu, const bl_launch *launch, bl_cpu_map body);
void bl_cpu_run_items(bl_cpu *cpu, const bl_launch *launch, const bl_cpu_entry *entry, bl_bad *bad);
bool bl_cpu_run_sorted(bl_cpu *cpu, const bl_launch *launch, const bl_cpu_entry *entry, bl_bad *bad);
void bl_cpu_run_copy(bl_cpu *cpu, const bl_launch *launch);
void bl_cpu_run_spread(bl_cpu *cpu, const bl_launch *launch);
bool bl_cpu_run_matmul(bl_cpu *cpu, const bl_launch *launch);
bool bl_cpu_run_attention(bl_cpu *cpu, const bl_launch *launch);
void bl_cpu_run_custom(const bl_cpu *cpu, const bl_launch *launch, bl_bad *bad);

/* Where part `part` of `parts` of n items begins. */
static inline int64_t bl_cpu_part_begin(int64_t n, int part, int parts)
{
    int64_t rest = n % parts;
    return n / parts * part + (rest < part ? rest : part);
}

/* Threads worth starting for that much work (element operations). */
int bl_cpu_threads_for(const bl_cpu *cpu, int64_t work);

/* Keeps the lower of two; adds the counts. */
void bl_cpu_merge_bad(bl_bad *into, const bl_bad *from);

#endif
