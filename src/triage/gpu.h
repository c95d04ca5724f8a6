/* SPDX-License-Identifier: Apache-2.0 */
/* Folds the events of kernel logs by GPU, and judges each GPU.
 *
 * The first Xid of a burst is the event; 43, 45 and 174 fold into it, 171 and 172 attach to 48, and lines that describe
 * the same failure further stand beside it.  A GPU is its UUID where the log tells it, else machine and PCI address; a
 * machine is the host name of the line's prefix, else the file.  One event beside an application's fault is its shadow;
 * only hardware evidence, or repeats across programs, speaks against the GPU.  Repeats are counted inside a time window
 * and since the last reset, so that old lines do not condemn a GPU for ever.
 *
 * Memory is bounded whatever is fed: of each GPU the first and the last incidents are kept, the others counted. */
#ifndef BL_TRIAGE_GPU_H
#define BL_TRIAGE_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attributes.h"
#include "triage/history.h"
#include "triage/kernel_log.h"
#include "triage/line.h"

enum {
    BL_GPU_MOST = 64,        /* GPUs that are told apart */
    BL_GPU_KEPT_FIRST = 192, /* incidents of one of them that are kept */
    BL_GPU_KEPT_LAST = 64,
    BL_GPU_DISTINCT = 64, /* counting of distinct pids and programs stops there */
    BL_GPU_NAME = 32,
    BL_GPU_CODES = 8,
    BL_GPU_TEXT = 160,
    BL_GPU_EVIDENCE = 16,
    BL_GPU_BESIDE = 6
};

/* Where and when a line stands. */
typedef struct bl_gpu_place {
    int file;
    int64_t line;
    int64_t time; /* microseconds; meaningless with BL_TIME_NONE */
    bl_time_kind time_kind;
} bl_gpu_place;

typedef enum bl_gpu_class {
    BL_GPU_CLASS_NONE,        /* nothing that needs a cause: repairs, notes, kills */
    BL_GPU_CLASS_APPLICATION, /* shadows of application faults; also what either side may have done */
    BL_GPU_CLASS_DRIVER,
    BL_GPU_CLASS_LINK,
    BL_GPU_CLASS_SUSPECT, /* repeats across programs speak against the hardware */
    BL_GPU_CLASS_HARDWARE
} bl_gpu_class;

typedef enum bl_gpu_role {
    BL_GPU_ROLE_ORIGIN,    /* the line that is the event */
    BL_GPU_ROLE_COMPANION, /* says more about the same failure */
    BL_GPU_ROLE_ACTION,    /* Xid 154 */
    BL_GPU_ROLE_SWITCH,    /* the SXid of the link's other end */
    BL_GPU_ROLE_CONTEXT,   /* a PCIe error beside it */
    BL_GPU_ROLE_REPEAT,    /* the same again */
    BL_GPU_ROLE_ECHO       /* 43, 45, 174: never a cause */
} bl_gpu_role;

typedef struct bl_gpu_line {
    bl_gpu_role role;
    int64_t code; /* Xid or SXid; 0 for none */
    bl_gpu_place place;
} bl_gpu_line;

/* One failure, with what folded into it. */
typedef struct bl_gpu_incident {
    bl_gpu_place place; /* of its first line */
    bl_kernel_kind kind;
    bl_pci pci;
    bl_gpu_class class;    /* of this incident by itself; never SUSPECT */
    int64_t code;          /* 79 for "fallen off the bus" without an Xid; 0: no number (RM init, AMD) */
    const bl_xid_row *row; /* NULL: no number, or one that is in no table */
    int64_t heaviest;      /* the code that weighs most among all of its lines */
    bl_gpu_place heaviest_place;
    int64_t codes[BL_GPU_CODES]; /* all codes of it, in the order of their first lines, its own first */
    int n_codes;
    int64_t n_lines;
    bl_gpu_line beside[BL_GPU_BESIDE]; /* its first companions, its last action */
    int n_beside;
    bl_gpu_line echoes[BL_GPU_BESIDE];
    int n_echoes;
    int64_t n_echoes_all;
    int64_t pid; /* -1: not known */
    char name[BL_GPU_NAME];
    bool name_is_uncertain;
    int gi, ci, gpc, tpc, sm;
    bool has_address, is_physical;
    uint64_t address;
    bl_mmu_type fault_type;
    char fault_text[48]; /* the type as printed */
    bl_mmu_client client;
    bl_mmu_access access;
    bl_sm_reason sm_reason;
    int64_t link;
    int sub_code;
    bl_xid_look look;
    bl_kernel_severity severity;
    int64_t cause;          /* 45 whose cause is not in this log; else -1 */
    bl_recovery action;     /* of the last 154 that belongs to it, BL_N_RECOVERIES without one */
    int needs_reset;        /* 94, 95; -1, 0, 1 */
    int epoch;              /* number of the boot in its file; times of two epochs are not compared */
    bool is_before_reset;   /* a reset came after it */
    uint64_t mark;          /* of what it says: the same line in another file has the same */
    char text[BL_GPU_TEXT]; /* the message of its first line, cut; raw bytes with a NUL */
    bl_gpu_place last;      /* of its last line */
} bl_gpu_incident;

typedef struct bl_gpu_switch {
    bool is_known, is_joined; /* joined: a GPU's link error belongs to it */
    int64_t number, code, link;
    bl_pci pci;
    bl_kernel_severity severity;
    const bl_xid_row *row;
    bl_gpu_place place;
    uint64_t machine; /* for comparison only */
} bl_gpu_switch;

typedef struct bl_gpu_verdict {
    bl_pci pci;
    char uuid[BL_KERNEL_UUID]; /* "" when no line tells it */
    char serial[BL_GPU_NAME];
    char host[BL_GPU_NAME]; /* "" when no line tells it */

    bl_gpu_class class;
    bool is_settled;               /* HARDWARE and LINK: the log alone settles it; else it is likely */
    const bl_gpu_incident *origin; /* the incident that the class stands on; NULL: none */
    bl_gpu_place decisive;         /* the line that tells it: the heaviest one of the origin */
    int64_t decisive_code;
    bl_xid_severity severity; /* what has to be started anew: of 154 when there is one, else of the row */
    bl_recovery action;       /* of the last 154, BL_N_RECOVERIES without one */
    bl_gpu_place action_place;
    bool action_is_withdrawn; /* the last 154 went back to None */
    bool is_pending_repair;   /* 63 without a reset after it: a remap waits for one */

    int64_t n_incidents;        /* all, over all time */
    int64_t n_only_counted;     /* of those, not kept */
    int64_t n_counted;          /* those of the class; of SUSPECT inside the window and since the last reset */
    int64_t n_pids, n_programs; /* distinct among the counted, at most BL_GPU_DISTINCT */
    int64_t n_from_history;     /* of the counted, those that come from the history */
    bool has_span;              /* the times of the counted can be compared: first and last, microseconds */
    int64_t first_time, last_time;
    int gpc, tpc;                /* the one TPC that most SM exceptions name, -1 for none */
    int64_t n_on_tpc;            /* how many name it */
    int64_t n_with_tpc;          /* of those that name any */
    int64_t codes[BL_GPU_CODES]; /* distinct codes of the GPU, by their first line */
    int n_codes;

    bl_gpu_switch link_partner; /* the switch event joined to a link error */
    bl_pci upstream;            /* the port of a PCIe error beside it */
    bl_kernel_severity upstream_severity;

    bl_gpu_line lines[BL_GPU_EVIDENCE]; /* the decisive one first */
    int n_lines;
    bl_gpu_line echoes[BL_GPU_EVIDENCE];
    int n_echoes;
    int64_t n_echoes_all;

    const bl_gpu_incident **incidents; /* those that were kept, in order of time */
    int64_t n_kept;
} bl_gpu_verdict;

typedef struct bl_gpu_fold bl_gpu_fold;

/* NULL without memory. */
BL_MUST_USE bl_gpu_fold *bl_gpu_fold_new(void);
void bl_gpu_fold_free(bl_gpu_fold *fold);

/* Takes one event; lines of one file come in their order, files in any.  False: no memory, and the event is counted as
 * lost.  Events that are none of a GPU's (OOM kills, segfaults) are passed over. */
BL_MUST_USE bool bl_gpu_fold_add(bl_gpu_fold *fold, const bl_kernel_event *event, bl_gpu_place place);

typedef struct bl_gpu_options {
    int64_t window;      /* microseconds back from the last event; 0: 30 days */
    bl_history *history; /* NULL: none */
    const char *host;    /* name of this machine in the history, for GPUs without a UUID; NULL: "" */
} bl_gpu_options;

/* Judges all GPUs; may be called again after more events.  Returns their number, -1 without memory; the verdicts, worst
 * first, belong to the fold and live until the next call of it or of bl_gpu_fold_add. */
int bl_gpu_judge(bl_gpu_fold *fold, const bl_gpu_options *options, const bl_gpu_verdict **out);

/* Switch events as they were seen, at most some dozens; those with is_joined belong to a GPU's link error (after
 * bl_gpu_judge). */
int bl_gpu_switches(const bl_gpu_fold *fold, const bl_gpu_switch **out);

/* Events that were not kept for want of memory, or because there are more GPUs than are told apart. */
int64_t bl_gpu_n_lost(const bl_gpu_fold *fold);
/* Whether any of them was lost for want of memory, and not because a limit was reached. */
bool bl_gpu_lacks_memory(const bl_gpu_fold *fold);

/* Puts the incidents of this machine's GPUs into the history, of which nothing is written yet.  boot: when its kernel
 * started, microseconds since 1970 (0: not known, events without a wall time are then as of `now`, seconds).
 * mem.exhausted. */
BL_MUST_USE belay_code bl_gpu_remember(const bl_gpu_fold *fold, bl_history *history, const char *host, int64_t boot,
                                       int64_t now, bl_error *error);

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
    BL_GPU_JOIN_ALONE,        /* the only incident of a kind that fits; neither pid nor time to compare */
    BL_GPU_JOIN_TIME,         /* the moment fits; the pid is not known, or is one of a container */
    BL_GPU_JOIN_PID,          /* the pid fits, times cannot be compared */
    BL_GPU_JOIN_PID_AND_ZONE, /* the pid fits, and the moment when one clock is in another time zone */
    BL_GPU_JOIN_PID_AND_TIME
} bl_gpu_join;

typedef struct bl_gpu_match {
    bl_gpu_join join;
    int verdict;                     /* index among the verdicts; -1 for none */
    const bl_gpu_incident *incident; /* NULL for none */
    bool kind_fits;                  /* the Xid can show up as that CUDA error */
    bool pids_differ;                /* both are known and not the same */
    bool is_ambiguous;               /* an incident of another GPU fits as well; the earliest is given */
} bl_gpu_match;

/* The incident that belongs to an application's error, the best join first.  After bl_gpu_judge. */
bl_gpu_match bl_gpu_find(const bl_gpu_fold *fold, const bl_gpu_error *error);

/* Whether an incident can show up in the application as that CUDA error (0: any). */
bool bl_gpu_incident_fits(const bl_gpu_incident *incident, int64_t cuda_code);

#endif
