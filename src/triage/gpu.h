/* SPDX-License-Identifier: Apache-2.0 */
/* Folds the events of kernel logs by GPU, and judges each GPU.
 *
 * The first Xid of a burst is the event; 43, 45 and 174 fold into it, 171 and 172 attach to 48, and the lines that
 * describe the same failure further stand beside it.  A GPU is its UUID where the log tells it, else machine and PCI
 * address; a machine is the host name of the line's prefix, else the file.  One event beside an application's fault is
 * its shadow; only hardware evidence, or repeats across programs, speaks against the GPU.  Old events do not: they are
 * counted inside a time window and since the last reset.
 *
 * Memory is bounded whatever is fed: of each GPU the first and the last events are kept, the others counted. */
#ifndef BL_TRIAGE_GPU_H
#define BL_TRIAGE_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attributes.h"
#include "triage/history.h"
#include "triage/kernel_log.h"
#include "triage/line.h"

/* Where and when a line stands. */
typedef struct bl_gpu_place {
    int file;
    int64_t line;
    int64_t time; /* microseconds; meaningless with BL_TIME_NONE */
    bl_time_kind time_kind;
} bl_gpu_place;

enum { BL_GPU_NAME = 32, BL_GPU_CODES = 8, BL_GPU_EVIDENCE = 16, BL_GPU_TEXT = 160 };

/* One failure, with what folded into it. */
typedef struct bl_gpu_incident {
    bl_gpu_place place; /* of its first line */
    bl_pci pci;
    int64_t code;          /* 79 for "fallen off the bus" without an Xid; 0: no number (RM init) */
    const bl_xid_row *row; /* NULL: a number that is in no table */
    int64_t heaviest;      /* the code that weighs most among all of its lines */
    bl_gpu_place heaviest_place;
    int64_t codes[BL_GPU_CODES]; /* all codes of it, in the order of their first lines, its own first */
    int n_codes;
    int64_t n_lines;
    int64_t pid; /* -1: not known */
    char name[BL_GPU_NAME];
    bool name_is_uncertain;
    int gi, ci, gpc, tpc, sm;
    bool has_address, is_physical;
    uint64_t address;
    bl_mmu_type fault_type;
    bl_mmu_client client;
    bl_mmu_access access;
    bl_sm_reason sm_reason;
    int64_t link;
    int sub_code;
    bl_xid_look look;
    bl_kernel_severity severity;
    int64_t cause;          /* 45 whose cause is not in this log; else -1 */
    bl_recovery action;     /* the last 154 after it, BL_N_RECOVERIES without one */
    int needs_reset;        /* 94, 95; -1, 0, 1 */
    int epoch;              /* number of the boot in its file; times of two epochs are not compared */
    bool is_before_reset;   /* a reset came after it */
    char text[BL_GPU_TEXT]; /* the message of its first line, cut; raw bytes */
} bl_gpu_incident;

typedef enum bl_gpu_class {
    BL_GPU_CLASS_NONE,        /* nothing that needs a cause: repairs, notes, kills */
    BL_GPU_CLASS_APPLICATION, /* shadows of application faults */
    BL_GPU_CLASS_DRIVER,
    BL_GPU_CLASS_LINK,
    BL_GPU_CLASS_SUSPECT, /* repeats across programs speak against the hardware */
    BL_GPU_CLASS_HARDWARE /* settled by the log alone */
} bl_gpu_class;

typedef enum bl_gpu_role {
    BL_GPU_ROLE_ORIGIN,    /* the line that is the event */
    BL_GPU_ROLE_COMPANION, /* says more about the same failure */
    BL_GPU_ROLE_ACTION,    /* Xid 154 */
    BL_GPU_ROLE_SWITCH,    /* the SXid of the link's other end */
    BL_GPU_ROLE_CONTEXT,   /* PCIe errors, failed initialisation */
    BL_GPU_ROLE_REPEAT,    /* the same again */
    BL_GPU_ROLE_ECHO       /* 43, 45, 174: never a cause */
} bl_gpu_role;

typedef struct bl_gpu_line {
    bl_gpu_role role;
    int64_t code; /* Xid or SXid; 0 for none */
    bl_gpu_place place;
} bl_gpu_line;

typedef struct bl_gpu_switch {
    bool is_known;
    int64_t number, code, link;
    bl_pci pci;
    bl_kernel_severity severity;
    bl_gpu_place place;
} bl_gpu_switch;

typedef struct bl_gpu_verdict {
    bl_pci pci;
    char uuid[BL_KERNEL_UUID]; /* "" when no line tells it */
    char serial[BL_GPU_NAME];
    char host[BL_GPU_NAME];

    bl_gpu_class class;
    const bl_gpu_incident *origin; /* the incident that the class stands on; NULL: none */
    bl_gpu_place decisive;         /* the line that settles it: of the origin, or of the heaviest code within it */
    int64_t decisive_code;
    bl_xid_severity severity; /* what has to be started anew: of 154 when there is one, else of the row */
    bl_recovery action;       /* of the last 154, BL_N_RECOVERIES without one */
    bool action_is_withdrawn; /* the last 154 went back to None */
    bool is_pending_repair;   /* 63 without a reset after it: a remap waits for one */

    int64_t n_incidents;        /* all, over all time */
    int64_t n_counted;          /* those of the class, inside the window and since the last reset */
    int64_t n_pids, n_programs; /* distinct among the counted; counting stops at BL_GPU_DISTINCT */
    bool pids_are_at_least;
    int64_t first_time, last_time; /* of the counted, microseconds; comparable only when has_span */
    bool has_span;
    int gpc, tpc;     /* the one TPC that most SM exceptions name, -1 for none */
    int64_t n_on_tpc; /* of those with a place, how many name it */
    int64_t n_with_tpc;
    int64_t n_from_history;      /* of the counted, those that come from the history */
    int64_t n_by_code_dropped;   /* incidents that were only counted */
    int64_t codes[BL_GPU_CODES]; /* distinct codes of the GPU, by their first line */
    int n_codes;

    bl_gpu_switch switch_event; /* joined to a link error */
    bl_pci upstream;            /* the port of a PCIe error beside it */

    bl_gpu_line lines[BL_GPU_EVIDENCE]; /* the decisive one first */
    int n_lines;
    bl_gpu_line echoes[BL_GPU_EVIDENCE];
    int n_echoes;
    int64_t n_echoes_all;
} bl_gpu_verdict;

enum { BL_GPU_DISTINCT = 64 };

typedef struct bl_gpu_fold bl_gpu_fold;

/* NULL without memory. */
BL_MUST_USE bl_gpu_fold *bl_gpu_fold_new(void);
void bl_gpu_fold_free(bl_gpu_fold *fold);

/* Takes one event; lines of one file come in their order, files in any.  False: no memory, and the event is counted as
 * lost.  Events that are none of a GPU's (OOM kills, segfaults) are passed over. */
BL_MUST_USE bool bl_gpu_fold_add(bl_gpu_fold *fold, const bl_kernel_event *event, bl_gpu_place place);

typedef struct bl_gpu_options {
    int64_t window;            /* microseconds back from the last event; 0: 30 days */
    const bl_history *history; /* NULL: none */
} bl_gpu_options;

/* Judges all GPUs; may be called again after more events.  Returns their number; the verdicts, worst first, belong to
 * the fold and live until the next call on it. */
int bl_gpu_judge(bl_gpu_fold *fold, const bl_gpu_options *options, const bl_gpu_verdict **out);

/* Fatal switch events that no GPU's link error explains; -> their number. */
int bl_gpu_switches(const bl_gpu_fold *fold, const bl_gpu_switch **out);

/* Incidents of one verdict in order of time: those that were kept. */
int64_t bl_gpu_n_incidents(const bl_gpu_fold *fold, int verdict);
const bl_gpu_incident *bl_gpu_incident_at(const bl_gpu_fold *fold, int verdict, int64_t i);

/* Events that were not kept for want of memory or because there are more GPUs than are told apart. */
int64_t bl_gpu_n_lost(const bl_gpu_fold *fold);

/* ---- whose fault is it? ----------------------------------------------------------------------------------------- */

/* An error that an application printed. */
typedef struct bl_gpu_error {
    int64_t pid; /* -1: not known */
    int64_t time;
    bl_time_kind time_kind;
    int64_t cuda_code; /* 0: not known */
} bl_gpu_error;

typedef enum bl_gpu_join {
    BL_GPU_JOIN_NONE,
    BL_GPU_JOIN_ALONE,        /* nothing but its kind and its being the only one: neither pid nor time to compare */
    BL_GPU_JOIN_TIME,         /* the moment fits, the pid is not known on one side (a container has other pids) */
    BL_GPU_JOIN_PID,          /* the pid fits, times cannot be compared */
    BL_GPU_JOIN_PID_AND_ZONE, /* the pid fits, and the moment when one clock is in another time zone */
    BL_GPU_JOIN_PID_AND_TIME
} bl_gpu_join;

typedef struct bl_gpu_match {
    bl_gpu_join join;
    int verdict; /* index among the verdicts of the last bl_gpu_judge */
    const bl_gpu_incident *incident;
    bool kind_fits;    /* the Xid can show up as that CUDA error */
    bool is_ambiguous; /* another GPU's incident fits as well; the earliest is given */
} bl_gpu_match;

/* The incident that belongs to an application's error, the best join first. */
bl_gpu_match bl_gpu_find(const bl_gpu_fold *fold, const bl_gpu_error *error);

const char *bl_gpu_class_describe(bl_gpu_class class);
const char *bl_gpu_join_describe(bl_gpu_join join);

#endif
