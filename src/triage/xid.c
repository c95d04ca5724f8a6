/* SPDX-License-Identifier: Apache-2.0 */
#include "triage/xid.h"

#include <stddef.h>
#include <string.h>

#define ROW(code, is_switch, mnemonic, meaning, side, severity, action, repeat)                                        \
    {code,                                                                                                             \
     is_switch,                                                                                                        \
     mnemonic,                                                                                                         \
     meaning,                                                                                                          \
     BL_XID_SIDE_##side,                                                                                               \
     BL_XID_SEVERITY_##severity,                                                                                       \
     action,                                                                                                           \
     BL_XID_REPEAT_##repeat},

static const char unused[] = "not used by current drivers";

#define BL_XID(code, mnemonic, meaning, side, severity, action, repeat)                                                \
    ROW(code, false, mnemonic, meaning, side, severity, action, repeat)
#define BL_XID_UNUSED(code, mnemonic)                                                                                  \
    ROW(code, false, mnemonic, unused, UNKNOWN, UNKNOWN, "print the raw line; support", NONE)
#define BL_SXID(code, mnemonic, meaning, side, severity, action, repeat)
static const bl_xid_row xids[] = {
#include "triage/xid.def"
};
#undef BL_XID
#undef BL_XID_UNUSED
#undef BL_SXID

#define BL_XID(code, mnemonic, meaning, side, severity, action, repeat)
#define BL_XID_UNUSED(code, mnemonic)
#define BL_SXID(code, mnemonic, meaning, side, severity, action, repeat)                                               \
    ROW(code, true, mnemonic, meaning, side, severity, action, repeat)
static const bl_xid_row sxids[] = {
#include "triage/xid.def"
};
#undef BL_XID
#undef BL_XID_UNUSED
#undef BL_SXID

_Static_assert(sizeof xids / sizeof xids[0] == BL_N_XIDS, "xid.h tells the number of Xid rows");
_Static_assert(sizeof sxids / sizeof sxids[0] == BL_N_SXIDS, "xid.h tells the number of SXid rows");

static const bl_xid_row *find(const bl_xid_row *rows, int n_rows, int64_t code)
{
    int low = 0, high = n_rows;
    while (low < high) {
        int middle = (low + high) / 2;
        if (rows[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n_rows && rows[low].code == code ? &rows[low] : NULL;
}

const bl_xid_row *bl_xid_find(int64_t code) { return find(xids, BL_N_XIDS, code); }

const bl_xid_row *bl_xid_find_switch(int64_t code) { return find(sxids, BL_N_SXIDS, code); }

const bl_xid_row *bl_xid_at(int i) { return i >= 0 && i < BL_N_XIDS ? &xids[i] : NULL; }

const bl_xid_row *bl_xid_switch_at(int i) { return i >= 0 && i < BL_N_SXIDS ? &sxids[i] : NULL; }

bool bl_xid_is_unused(const bl_xid_row *row) { return row->meaning == unused; }

const char *bl_xid_side_describe(bl_xid_side side)
{
    static const char *const words[] = {"application", "hardware", "driver", "link", "thermal", "unknown", "secondary"};
    return words[side];
}

const char *bl_xid_severity_describe(bl_xid_severity severity)
{
    static const char *const words[] = {"not known",
                                        "nothing",
                                        "watch it",
                                        "restart the worker",
                                        "reset the GPU",
                                        "reboot or drain the node",
                                        "reset all GPUs and switches of the fabric"};
    return words[severity];
}

const char *bl_xid_repeat_describe(bl_xid_repeat repeat)
{
    static const char *const words[] = {
#define BL_XID_REPEAT(name, text) (text),
#include "triage/xid_repeat.def"
#undef BL_XID_REPEAT
    };
    return words[repeat];
}

/* ---- NVLink 5 -------------------------------------------------------------------------------------------------- */

/* The public decode table of Xid 149, unit NETIR_LINK_EVT. */
static bl_xid_look look_of_link_event(int sub_code)
{
    switch (sub_code) {
    case 1:
        return BL_XID_LOOK_IF_OFTEN;
    case 2:
    case 4:
    case 10:
        return BL_XID_LOOK_SIGNAL;
    case 15:
    case 17:
    case 22:
        return BL_XID_LOOK_SOFTWARE;
    case 16:
    case 18:
        return BL_XID_LOOK_SOFTWARE_THEN_LINK;
    case 38:
        return BL_XID_LOOK_SOFTWARE_NO_RESET;
    case 40:
        return BL_XID_LOOK_HOST;
    case 42:
    case 43:
        return BL_XID_LOOK_SIGNAL_AND_CABLE;
    default:
        return sub_code == 21 || (sub_code >= 32 && sub_code <= 37) ? BL_XID_LOOK_PEER : BL_XID_LOOK_UNKNOWN;
    }
}

bl_xid_look bl_xid_nvlink_look(int code, const char *unit, int64_t n_unit, int sub_code)
{
    static const char link_event[] = "NETIR_LINK_EVT";
    if (code != 149 || n_unit != (int64_t)sizeof link_event - 1 || memcmp(unit, link_event, sizeof link_event - 1) != 0)
        return BL_XID_LOOK_UNKNOWN;
    return look_of_link_event(sub_code);
}

const char *bl_xid_look_describe(bl_xid_look look)
{
    static const char *const words[] = {"not in the public table",
                                        "the peer device at the other end of the link",
                                        "signal integrity of the link",
                                        "signal integrity and cables",
                                        "software or user action",
                                        "software or user action; no reset is needed",
                                        "software or user action, then the link",
                                        "the host",
                                        "nothing, unless it is seen more than once a day"};
    return words[look];
}

/* ---- recovery actions ------------------------------------------------------------------------------------------- */

typedef struct recovery_row {
    const char *name, *words;
    bl_xid_severity severity;
} recovery_row;

static const recovery_row recoveries[BL_N_RECOVERIES] = {
    [BL_RECOVERY_NONE] = {"None", "nothing; an action that stood before is withdrawn", BL_XID_SEVERITY_INFO},
    [BL_RECOVERY_GPU_RESET] = {"GPU Reset Required", "reset the GPU", BL_XID_SEVERITY_GPU},
    [BL_RECOVERY_NODE_REBOOT] = {"Node Reboot Required", "reboot the node", BL_XID_SEVERITY_NODE},
    [BL_RECOVERY_DRAIN_P2P] = {"Drain P2P", "drain peer-to-peer traffic", BL_XID_SEVERITY_GPU},
    [BL_RECOVERY_DRAIN_AND_RESET] = {"Drain and Reset", "drain the GPU, then reset it", BL_XID_SEVERITY_GPU},
    [BL_RECOVERY_IMEX_DOMAIN] = {"Recover IMEX Domain", "recover the IMEX domain", BL_XID_SEVERITY_FABRIC},
    [BL_RECOVERY_BUS_RESET] = {"Bus Reset", "reset the bus", BL_XID_SEVERITY_NODE},
    [BL_RECOVERY_SYSTEM_REBOOT] = {"System Reboot", "reboot the system", BL_XID_SEVERITY_NODE},
};

const char *bl_recovery_name(bl_recovery action) { return action < BL_N_RECOVERIES ? recoveries[action].name : ""; }

const char *bl_recovery_describe(bl_recovery action)
{
    return action < BL_N_RECOVERIES ? recoveries[action].words : "no action was printed";
}

bl_xid_severity bl_recovery_severity(bl_recovery action)
{
    return action < BL_N_RECOVERIES ? recoveries[action].severity : BL_XID_SEVERITY_UNKNOWN;
}
