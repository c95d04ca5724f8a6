/* SPDX-License-Identifier: Apache-2.0 */
/* What the files gpu_*.c share: the records that folding leaves and judging reads. */
#ifndef BL_TRIAGE_GPU_PARTS_H
#define BL_TRIAGE_GPU_PARTS_H

#include "triage/gpu.h"

#define BL_SECOND INT64_C(1000000)
#define BL_DAY    (INT64_C(86400) * BL_SECOND)

enum { BL_GPU_SWITCHES = 48, BL_GPU_PORTS = 48, BL_GPU_FILES = 4096 };

/* One GPU as one machine's log shows it; judging joins those with one UUID. */
typedef struct bl_gpu {
    uint64_t machine; /* of the host's name, or of the file */
    char host[BL_GPU_NAME];
    bl_pci pci;
    char uuid[BL_KERNEL_UUID];
    char serial[BL_GPU_NAME];

    /* The first BL_GPU_KEPT_FIRST, then a ring of the last ones. */
    bl_gpu_incident *incidents;
    int64_t n_kept, capacity;
    int64_t n_incidents;
    int64_t latest; /* index of the one that lines fold into, -1 for none */

    bl_recovery action;
    bool action_is_withdrawn;
    bl_gpu_place action_place;
    bool is_pending_repair;
} bl_gpu;

/* An error of a PCIe port. */
typedef struct bl_gpu_port {
    uint64_t machine;
    bl_pci pci;
    bl_kernel_severity severity;
    bl_gpu_place place;
    int epoch;
} bl_gpu_port;

/* How far a file has been read. */
typedef struct bl_gpu_file {
    int epoch;
    int64_t boot_time; /* the latest of a boot clock */
    int64_t time;      /* of the last line that had one */
    bl_time_kind time_kind;
} bl_gpu_file;

struct bl_gpu_fold {
    bl_gpu gpus[BL_GPU_MOST];
    int n_gpus;
    bl_gpu_switch switches[BL_GPU_SWITCHES];
    int switch_epochs[BL_GPU_SWITCHES];
    int n_switches;
    bl_gpu_port ports[BL_GPU_PORTS]; /* a ring */
    int64_t n_ports;
    bl_gpu_file *files;
    int64_t n_files, files_capacity;
    int64_t n_lost;
    bool lacks_memory;
    bl_gpu_verdict verdicts[BL_GPU_MOST];
    int n_verdicts;
    const bl_gpu_incident **order; /* the verdicts' incidents, one after the other */
    int64_t order_capacity;
};

/* Microseconds from a to b; false when their clocks cannot be compared. */
bool bl_gpu_between(bl_gpu_place a, int epoch_a, bl_gpu_place b, int epoch_b, int64_t *out);
/* Order of two incidents, as of qsort: those with wall times by time, then the others by file and line. */
int bl_gpu_compare(const bl_gpu_incident *a, const bl_gpu_incident *b);

/* What a code says by itself; kind and row as in the incident. */
bl_gpu_class bl_gpu_class_of(bl_kernel_kind kind, int64_t code, bl_mmu_type fault_type);
/* Order of classes, the worst highest; `code` decides between two of one class. */
int bl_gpu_weight(bl_gpu_class class, int64_t code);
bool bl_gpu_code_is_echo(int64_t code);
/* Whether the code's repeats on one GPU across programs speak against the hardware. */
bool bl_gpu_code_can_repeat(int64_t code);
/* Whether the log alone settles the class. */
bool bl_gpu_code_settles(int64_t code);

#endif
