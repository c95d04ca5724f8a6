/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one line of a kernel log: what GPU drivers, PCIe, the IOMMU and the OOM killer write when something failed.
 *
 * Strict: a line is an event only when it has the shape that the kernel prints, from its first byte after the prefixes
 * on; the word "Xid" in prose is none.  Never allocates, never reads behind the line, never trusts a number: what does
 * not fit its range is left out.  Texts of an event point into the line.
 *
 * Lines that continue the one before (three lines of "fallen off the bus", SXid data, the address of an AMD fault) need
 * the reader, which remembers what is open; its memory is fixed. */
#ifndef BL_TRIAGE_KERNEL_LOG_H
#define BL_TRIAGE_KERNEL_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "triage/line.h"
#include "triage/xid.h"

typedef enum bl_kernel_kind {
    BL_KERNEL_NONE,       /* not an event */
    BL_KERNEL_PART,       /* the beginning of one: keep feeding lines */
    BL_KERNEL_IDENTITY,   /* PCI address -> UUID */
    BL_KERNEL_SERIAL,     /* the board's serial number, of the GPU named last */
    BL_KERNEL_XID,        /* code; also from the trace point */
    BL_KERNEL_SXID,       /* code; is_continuation: belongs to the SXid before it */
    BL_KERNEL_OFF_BUS,    /* code 79, without an Xid line */
    BL_KERNEL_RM_INIT,    /* RmInitAdapter failed: the GPU could not be initialised */
    BL_KERNEL_LOAD,       /* the NVIDIA module was loaded: all GPUs begin anew */
    BL_KERNEL_BOOT,       /* the kernel started: its clock begins anew */
    BL_KERNEL_AER,        /* a PCIe error: context of the GPU below that port */
    BL_KERNEL_IOMMU,      /* a device touched memory that is not mapped for it */
    BL_KERNEL_AMD_FAULT,  /* page fault of an AMD GPU; is_continuation: its address */
    BL_KERNEL_AMD_ABORT,  /* what AMD's user side prints before it aborts (not a kernel line) */
    BL_KERNEL_AMD_RESET,  /* an AMD GPU was reset, or its ring timed out */
    BL_KERNEL_OOM_KILL,   /* the OOM killer ended pid */
    BL_KERNEL_SEGFAULT,   /* a process took a fatal signal: segfault or another trap */
    BL_KERNEL_HUNG_TASK,  /* a process waits for longer than the kernel likes */
    BL_KERNEL_HOST_MEMORY /* EDAC or machine check: memory of the host */
} bl_kernel_kind;

/* Bytes of the line; n_bytes 0: not given. */
typedef struct bl_kernel_text {
    const char *bytes;
    int64_t n_bytes;
} bl_kernel_text;

/* A PCI address; function -1: not told.  is_known false: the line has none. */
typedef struct bl_pci {
    bool is_known;
    uint32_t domain;
    uint8_t bus, device;
    int8_t function;
} bl_pci;

enum { BL_PCI_WORDS = 24, BL_KERNEL_UUID = 48 };

/* The same slot; the function is compared only when both have one. */
bool bl_pci_is_same(bl_pci a, bl_pci b);
/* "0000:3b:00" or, with a function, "0000:3b:00.0"; "unknown" without an address. */
const char *bl_pci_describe(bl_pci pci, char words[BL_PCI_WORDS]);
/* Reads "0000:3b:00[.0]", "PCI:0000:3b:00" or "3b:00.0", the whole text. */
bool bl_pci_read(const char *text, int64_t n_bytes, bl_pci *out);

typedef enum bl_kernel_pid_form {
    BL_KERNEL_PID_NONE, /* the line has no pid */
    BL_KERNEL_PID_UNKNOWN /* the line says that it is not known */,
    BL_KERNEL_PID_KNOWN
} bl_kernel_pid_form;

/* The reason of an SM exception (13) where it has a CUDA error of its own. */
typedef enum bl_sm_reason {
    BL_SM_NONE,
    BL_SM_OUT_OF_RANGE,        /* 719, sometimes 700 */
    BL_SM_MISALIGNED,          /* 716 */
    BL_SM_ILLEGAL_INSTRUCTION, /* 715: encoding or parameter */
    BL_SM_INVALID_SPACE,       /* 717 */
    BL_SM_INVALID_PC,          /* 718 */
    BL_SM_STACK,               /* 714 */
    BL_SM_MULTIPLE,            /* several warps; the warp lines tell which */
    BL_SM_OTHER                /* printed as it is */
} bl_sm_reason;

typedef enum bl_mmu_type {
    BL_MMU_NONE,
    BL_MMU_PDE,
    BL_MMU_PDE_SIZE,
    BL_MMU_PTE,
    BL_MMU_VA_LIMIT,
    BL_MMU_UNBOUND,
    BL_MMU_PRIV,
    BL_MMU_READ_ONLY,
    BL_MMU_POISONED,
    BL_MMU_OTHER /* rare, or another meaning by generation: print fault_text as it is */
} bl_mmu_type;

typedef enum bl_mmu_client {
    BL_CLIENT_NONE,
    BL_CLIENT_SM,          /* GPCCLIENT_T1_<n>: load and store of a kernel */
    BL_CLIENT_GPC_OTHER,   /* another unit of a GPC */
    BL_CLIENT_COPY_ENGINE, /* HUBCLIENT_CE<n>: a copy, not a kernel */
    BL_CLIENT_HUB_OTHER
} bl_mmu_client;

typedef enum bl_mmu_access {
    BL_ACCESS_NONE,
    BL_ACCESS_READ,
    BL_ACCESS_WRITE,
    BL_ACCESS_ATOMIC,
    BL_ACCESS_PREFETCH
} bl_mmu_access;

typedef enum bl_kernel_severity {
    BL_KERNEL_SEVERITY_NONE,
    BL_KERNEL_CORRECTABLE,
    BL_KERNEL_NONFATAL,
    BL_KERNEL_FATAL
} bl_kernel_severity;

/* Numbers that a line does not tell are -1, texts empty, enums NONE. */
typedef struct bl_kernel_event {
    bl_kernel_kind kind;
    bl_kernel_text host; /* of a syslog or journal prefix */

    bl_pci pci;
    int gi, ci;   /* MIG: GPU instance, compute instance */
    int64_t code; /* Xid or SXid */
    bl_kernel_pid_form pid_form;
    int64_t pid; /* of the host; who allocated the channel, or was calling the driver */
    bl_kernel_text name;
    bool name_is_uncertain;
    bl_kernel_text message;
    bool message_fits; /* the message has a shape that is known for the code */
    int64_t cause;     /* 45: "caused by previous Xid" */

    int64_t channel;

    /* 13, and GPC of 31 */
    int gpc, tpc, sm;
    bool is_global; /* 13: Global Exception */
    bool is_detail; /* 13: registers of the exception before it (ESR, ChID) */
    bl_sm_reason sm_reason;
    bl_kernel_text reason; /* 13: reason; 64: the failure; 94, 95: the unit; 109: error string; 119: function's name;
                            * off the bus, RM init, AER, IOMMU, traps: the text that says why */

    /* 31; address also of 48, 63, 94, 95 (physical), AMD and IOMMU faults, segfaults */
    bool has_address;
    uint64_t address;
    bool is_physical;
    bl_kernel_text engine, client, fault_text;
    bl_mmu_client client_kind;
    bl_mmu_type fault_type;
    bl_mmu_access access;

    /* memory: 48, 63, 64, 94, 95, 140; EDAC */
    int64_t partition, subpartition;
    bool is_row_remap;                    /* 63, 64: the row remapper; else the older page retirement */
    int needs_reset, needs_drain;         /* 94, 95: RST and D-RST; -1, 0, 1 */
    int64_t n_dram, n_ltc, n_mmu, n_pcie; /* 140 */
    int64_t n_corrected, n_uncorrected;   /* EDAC */

    /* links: 74, 136, 144-150, SXid */
    int64_t link; /* -1 also where the line says so */
    bl_kernel_severity severity;
    bl_kernel_text unit; /* 144-150: "NETIR_LINK_EVT" */
    int64_t xc;
    int sub_code; /* 144-150 */
    uint64_t intrinfo, status;
    int64_t switch_number, instance, chiplet, sub_instance; /* SXid */
    bool is_first, is_continuation;

    /* 62: the words; 119: seconds, GPU, function, sequence; 154: the actions */
    int n_words;
    uint32_t words[8];
    int64_t seconds, function, sequence;
    bl_recovery from, to; /* 154; BL_N_RECOVERIES: none of ours, see from_name and to_name */
    bl_kernel_text from_name, to_name;

    char uuid[BL_KERNEL_UUID]; /* IDENTITY: "GPU-..." with a NUL; else empty */
    bl_kernel_text serial;

    bool in_cgroup;  /* OOM_KILL: the limit of a cgroup, not of the machine */
    int64_t anon_kb; /* OOM_KILL */
} bl_kernel_event;

/* Reads one line by itself; true: an event, or a part of one, is in *out (always filled, kind NONE otherwise).  `text`
 * may still carry the prefixes of dmesg, syslog, journal, /dev/kmsg or tracefs. */
bool bl_kernel_read(const char *text, int64_t n_bytes, bl_kernel_event *out);

/* ---- lines that belong together -------------------------------------------------------------------------------- */

/* What is open in one stream of lines (a file).  Zero-initialised before the first line. */
typedef struct bl_kernel_reader {
    bl_pci lost; /* "The NVIDIA GPU ..." was seen, its end not yet */
    int64_t lost_line;
    bl_pci named; /* the GPU of the last identity line */
    bl_pci amd;   /* of the last AMD fault */
    int64_t amd_pid;
    int64_t last_sxid; /* code of the last SXid, and its switch */
    int64_t last_switch;
} bl_kernel_reader;

/* As bl_kernel_read, but a part that ends here comes as the whole event, and continuations carry address and pid of the
 * line that they continue.  `line` is the line's number. */
bool bl_kernel_feed(bl_kernel_reader *reader, const char *text, int64_t n_bytes, int64_t line, bl_kernel_event *out);

/* The same for a line that was taken apart: its text, which has no colours, else the line as it stands; the host's name
 * comes from the prefix. */
bool bl_kernel_feed_line(bl_kernel_reader *reader, const bl_line *line, bl_kernel_event *out);

/* ---- words ------------------------------------------------------------------------------------------------------ */

/* The CUDA error that an SM exception usually shows up as, 0 for none. */
int bl_sm_reason_cuda(bl_sm_reason reason);

/* The host name of a syslog or journal prefix ("Jun  9 11:20:41 node7 kernel: ..."), for lines whose prefixes were taken
 * off before they were read; n_bytes 0 without one. */
bl_kernel_text bl_kernel_host(const char *raw, int64_t n_bytes);

#endif
