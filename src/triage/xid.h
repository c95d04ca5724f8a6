/* SPDX-License-Identifier: Apache-2.0 */
/* What a number in the kernel log means: all Xid codes of NVIDIA GPUs and SXid codes of NVSwitch, as rows of xid.def.
 * A look-up never fails for a code that exists; a number that is in no row is unknown, which is not an error. */
#ifndef BL_TRIAGE_XID_H
#define BL_TRIAGE_XID_H

#include <stdbool.h>
#include <stdint.h>

typedef enum bl_xid_side {
    BL_XID_SIDE_APPLICATION,
    BL_XID_SIDE_HARDWARE,
    BL_XID_SIDE_DRIVER,
    BL_XID_SIDE_LINK,
    BL_XID_SIDE_THERMAL,
    BL_XID_SIDE_UNKNOWN,  /* either side, or not used by current drivers */
    BL_XID_SIDE_SECONDARY /* never a root cause */
} bl_xid_side;

/* How much has to be started anew, in ascending order; UNKNOWN says nothing. */
typedef enum bl_xid_severity {
    BL_XID_SEVERITY_UNKNOWN,
    BL_XID_SEVERITY_INFO,
    BL_XID_SEVERITY_WARNING,
    BL_XID_SEVERITY_PROCESS, /* restart the worker */
    BL_XID_SEVERITY_GPU,     /* reset the GPU */
    BL_XID_SEVERITY_NODE,    /* reboot or drain the node */
    BL_XID_SEVERITY_FABRIC   /* the whole switch fabric */
} bl_xid_severity;

/* What more than one of them says.  Each has one text (bl_xid_repeat_describe). */
typedef enum bl_xid_repeat {
#define BL_XID_REPEAT(name, text) BL_XID_REPEAT_##name,
#include "triage/xid_repeat.def"
#undef BL_XID_REPEAT
    BL_N_XID_REPEATS
} bl_xid_repeat;

typedef struct bl_xid_row {
    int code;
    bool is_switch;       /* an SXid */
    const char *mnemonic; /* as the driver or the fabric guide calls it */
    const char *meaning;
    bl_xid_side side;
    bl_xid_severity severity;
    const char *action; /* one phrase; an action printed by Xid 154 comes before it */
    bl_xid_repeat repeat;
} bl_xid_row;

enum { BL_N_XIDS = 176, BL_N_SXIDS = 93 };

/* The row of a code, NULL for a number that is in none. */
const bl_xid_row *bl_xid_find(int64_t code);
const bl_xid_row *bl_xid_find_switch(int64_t code);

/* All rows, ascending by code: 0 .. BL_N_XIDS - 1, then the switch's, 0 .. BL_N_SXIDS - 1. */
const bl_xid_row *bl_xid_at(int i);
const bl_xid_row *bl_xid_switch_at(int i);

/* Whether the catalogue gives this number no use today ("not used by current drivers"). */
bool bl_xid_is_unused(const bl_xid_row *row);

const char *bl_xid_side_describe(bl_xid_side side);             /* "application", ... */
const char *bl_xid_severity_describe(bl_xid_severity severity); /* "restart the worker", ... */
const char *bl_xid_repeat_describe(bl_xid_repeat repeat);

/* ---- NVLink 5 (Xid 144-150) ------------------------------------------------------------------------------------ */

/* The sub-code of the first hex word of the line. */
static inline int bl_xid_nvlink_sub_code(uint64_t intrinfo) { return (int)((intrinfo >> 20) & 0x3F); }

typedef enum bl_xid_look {
    BL_XID_LOOK_UNKNOWN,
    BL_XID_LOOK_PEER,             /* the device at the other end of the link */
    BL_XID_LOOK_SIGNAL,           /* signal integrity of the link */
    BL_XID_LOOK_SIGNAL_AND_CABLE, /* signal integrity and cables */
    BL_XID_LOOK_SOFTWARE,         /* software or user action */
    BL_XID_LOOK_SOFTWARE_NO_RESET,
    BL_XID_LOOK_SOFTWARE_THEN_LINK,
    BL_XID_LOOK_HOST,
    BL_XID_LOOK_IF_OFTEN /* report it if seen more than once a day */
} bl_xid_look;

/* Where to look for a sub-code of Xid 149 with unit NETIR_LINK_EVT; UNKNOWN where the public table says nothing. */
bl_xid_look bl_xid_nvlink_look(int code, const char *unit, int64_t n_unit, int sub_code);
const char *bl_xid_look_describe(bl_xid_look look);

/* ---- recovery actions (Xid 154, and NVML) ---------------------------------------------------------------------- */

typedef enum bl_recovery {
    BL_RECOVERY_NONE,
    BL_RECOVERY_GPU_RESET,
    BL_RECOVERY_NODE_REBOOT,
    BL_RECOVERY_DRAIN_P2P,
    BL_RECOVERY_DRAIN_AND_RESET,
    BL_RECOVERY_IMEX_DOMAIN,
    BL_RECOVERY_BUS_RESET,     /* NVML only */
    BL_RECOVERY_SYSTEM_REBOOT, /* NVML only */
    BL_N_RECOVERIES
} bl_recovery;

/* The name as the line prints it ("GPU Reset Required"), what to do, and how much it takes. */
const char *bl_recovery_name(bl_recovery action);
const char *bl_recovery_describe(bl_recovery action);
bl_xid_severity bl_recovery_severity(bl_recovery action);

#endif
