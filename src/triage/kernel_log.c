/* SPDX-License-Identifier: Apache-2.0 */
/* The outer grammar: which family a line belongs to, the NVIDIA driver's own lines, and what lines say together. */
#include "triage/kernel_log.h"

#include <inttypes.h>
#include <stdio.h>

#include "triage/kernel_parts.h"

/* longest_name: what the driver has room for; most_commas: names are cut at no more places than these. */
enum { longest_name = 100, most_commas = 16, most_lines_apart = 4096 };

void bl_kernel_event_init(bl_kernel_event *event)
{
    *event = (bl_kernel_event){
        .gi = -1,
        .ci = -1,
        .code = -1,
        .pid = -1,
        .cause = -1,
        .channel = -1,
        .gpc = -1,
        .tpc = -1,
        .sm = -1,
        .partition = -1,
        .subpartition = -1,
        .needs_reset = -1,
        .needs_drain = -1,
        .n_dram = -1,
        .n_ltc = -1,
        .n_mmu = -1,
        .n_pcie = -1,
        .n_corrected = -1,
        .n_uncorrected = -1,
        .link = -1,
        .xc = -1,
        .sub_code = -1,
        .switch_number = -1,
        .instance = -1,
        .chiplet = -1,
        .sub_instance = -1,
        .seconds = -1,
        .function = -1,
        .sequence = -1,
        .from = BL_N_RECOVERIES,
        .to = BL_N_RECOVERIES,
        .anon_kb = -1,
    };
}

/* ---- PCI addresses ----------------------------------------------------------------------------------------------- */

bool bl_kernel_pci(bl_cursor *c, bl_pci *out)
{
    bl_cursor in = *c;
    uint64_t domain, bus, device, function;
    bl_cursor_take(&in, "PCI:");
    if (!bl_cursor_hex(&in, 4, 8, &domain) || !bl_cursor_take(&in, ":") || !bl_cursor_hex(&in, 2, 2, &bus) ||
        !bl_cursor_take(&in, ":") || !bl_cursor_hex(&in, 2, 2, &device) || device > 31)
        return false;
    *out = (bl_pci){true, (uint32_t)domain, (uint8_t)bus, (uint8_t)device, -1};
    bl_cursor point = in;
    if (bl_cursor_take(&point, ".") && bl_cursor_hex(&point, 1, 1, &function) && function < 8) {
        out->function = (int8_t)function;
        in = point;
    }
    *c = in;
    return true;
}

bool bl_pci_read(const char *text, int64_t n_bytes, bl_pci *out)
{
    static const char domain[] = "0000:";
    char whole[40];
    bl_cursor c = {text, text + n_bytes};
    if (bl_kernel_pci(&c, out) && c.at == c.end)
        return true;
    if (n_bytes < 0 || n_bytes > 16)
        return false;
    memcpy(whole, domain, sizeof domain - 1);
    memcpy(whole + sizeof domain - 1, text, (size_t)n_bytes);
    c = (bl_cursor){whole, whole + sizeof domain - 1 + n_bytes};
    return bl_kernel_pci(&c, out) && c.at == c.end;
}

bool bl_pci_is_same(bl_pci a, bl_pci b)
{
    bool functions_fit = a.function < 0 || b.function < 0 || a.function == b.function;
    return a.is_known && b.is_known && a.domain == b.domain && a.bus == b.bus && a.device == b.device && functions_fit;
}

const char *bl_pci_describe(bl_pci pci, char words[BL_PCI_WORDS])
{
    if (!pci.is_known)
        snprintf(words, BL_PCI_WORDS, "unknown");
    else if (pci.function < 0)
        snprintf(words, BL_PCI_WORDS, "%04" PRIx32 ":%02x:%02x", pci.domain, pci.bus, pci.device);
    else
        snprintf(words, BL_PCI_WORDS, "%04" PRIx32 ":%02x:%02x.%d", pci.domain, pci.bus, pci.device, pci.function);
    return words;
}

/* ---- Xid ---------------------------------------------------------------------------------------------------------- */

/* "(PCI:0000:5e:00 GPU-I:05 GPU-CI:00): 13, " */
static bool read_device(bl_cursor *c, bl_kernel_event *event)
{
    if (!bl_cursor_take(c, "(") || !bl_kernel_pci(c, &event->pci))
        return false;
    if (bl_cursor_take(c, " GPU-I:") && !bl_cursor_small(c, 255, &event->gi))
        return false;
    if (bl_cursor_take(c, " GPU-CI:") && !bl_cursor_small(c, 255, &event->ci))
        return false;
    return bl_cursor_take(c, "): ");
}

/* "pid=41207, " or "pid='<unknown>', " */
static void read_pid(bl_cursor *c, bl_kernel_event *event)
{
    bl_cursor in = *c;
    int64_t pid;
    if (!bl_cursor_take(&in, "pid="))
        return;
    if (bl_cursor_take(&in, "'<unknown>', ") || bl_cursor_take(&in, "<unknown>, ")) {
        event->pid_form = BL_KERNEL_PID_UNKNOWN;
    } else if (bl_cursor_count(&in, INT32_MAX, &pid) && bl_cursor_take(&in, ", ")) {
        event->pid_form = BL_KERNEL_PID_KNOWN;
        event->pid = pid;
    } else {
        return;
    }
    *c = in;
}

static void set_name(bl_kernel_event *event, const char *begin, const char *end, bool is_uncertain)
{
    event->name = bl_kernel_text_of(begin, end);
    event->name_is_uncertain = is_uncertain;
    if (event->name.n_bytes == 9 && memcmp(begin, "<unknown>", 9) == 0)
        event->name = (bl_kernel_text){0};
}

/* The shortest name behind which a message begins that the code can have; else the shortest. */
static void read_name(bl_cursor *c, bl_kernel_event *event)
{
    bl_cursor in = *c;
    const char *shortest = NULL;
    if (!bl_cursor_take(&in, "name="))
        return;
    const char *begin = in.at;
    for (int i = 0; i < most_commas && bl_cursor_pass(&in, ", "); i++) {
        const char *end = in.at - 2;
        if (end - begin > longest_name)
            break;
        if (shortest == NULL)
            shortest = end;
        if (bl_kernel_xid_message(event->code, in, event)) {
            set_name(event, begin, end, false);
            event->message_fits = true;
            *c = in;
            return;
        }
    }
    if (shortest == NULL)
        return;
    bl_cursor from = {shortest + 2, c->end};
    set_name(event, begin, shortest, true);
    *c = from;
}

/* Behind "Xid ". */
static bool read_xid(bl_cursor c, bl_kernel_event *event)
{
    if (!read_device(&c, event) || !bl_cursor_count(&c, 99999, &event->code) || !bl_cursor_take(&c, ", "))
        return false;
    event->kind = BL_KERNEL_XID;
    c.end = c.at + bl_kernel_rest(&c).n_bytes;
    read_pid(&c, event);
    if (event->pid_form != BL_KERNEL_PID_NONE)
        read_name(&c, event);
    event->message = bl_kernel_rest(&c);
    if (!event->message_fits)
        event->message_fits = bl_kernel_xid_message(event->code, c, event);
    if (event->code == 45 && event->cause < 0) {
        bl_cursor tail = c;
        uint64_t cause;
        if (bl_cursor_pass(&tail, " caused by previous Xid ") && bl_cursor_decimal(&tail, 9999, &cause))
            event->cause = (int64_t)cause;
    }
    return true;
}

/* "<program>-<pid> [cpu] flags seconds: nvidia_dev_xid: Xid (...)" */
static bool read_trace_point(bl_cursor c, bl_kernel_event *event)
{
    const char *name = bl_cursor_find(&c, ": nvidia_dev_xid: Xid (");
    const char *digit = name;
    if (name == NULL)
        return false;
    while (digit > c.at && (bl_byte_is_digit(digit[-1]) || digit[-1] == '.'))
        digit--;
    if (digit == name || digit == c.at || digit[-1] != ' ')
        return false;
    c.at = name;
    return bl_cursor_take(&c, ": nvidia_dev_xid: Xid ") && read_xid(c, event);
}

/* ---- other lines of the NVIDIA driver ------------------------------------------------------------------------- */

/* "GPU-5e1f0a2c-1111-2222-3333-444455556666"; MIG devices have "MIG-" */
static bool read_uuid(bl_cursor *c, char uuid[BL_KERNEL_UUID])
{
    static const int groups[] = {8, 4, 4, 4, 12};
    bl_cursor in = *c;
    uint64_t ignored;
    if (!bl_cursor_take(&in, "GPU"))
        return false;
    for (int i = 0; i < 5; i++)
        if (!bl_cursor_take(&in, "-") || !bl_cursor_hex(&in, groups[i], groups[i], &ignored))
            return false;
    memcpy(uuid, c->at, (size_t)(in.at - c->at));
    uuid[in.at - c->at] = '\0';
    *c = in;
    return true;
}

/* "GPU at PCI:0000:3b:00: GPU-<uuid>" */
static bool read_identity(bl_cursor c, bl_kernel_event *event)
{
    if (!bl_cursor_take(&c, "GPU at ") || !bl_kernel_pci(&c, &event->pci) || !bl_cursor_take(&c, ": ") ||
        !read_uuid(&c, event->uuid))
        return false;
    event->kind = BL_KERNEL_IDENTITY;
    return true;
}

static bool read_serial(bl_cursor c, bl_kernel_event *event)
{
    if (!bl_cursor_take(&c, "GPU Board Serial Number: "))
        return false;
    event->kind = BL_KERNEL_SERIAL;
    event->serial = bl_kernel_rest(&c);
    return event->serial.n_bytes > 0;
}

static bool set_off_bus(bl_cursor c, bl_kernel_event *event)
{
    event->kind = BL_KERNEL_OFF_BUS;
    event->code = 79;
    event->reason = bl_kernel_rest(&c);
    return true;
}

/* In one line, "GPU 0000:5e:00.0: GPU has fallen off the bus.", or the first two lines of three. */
static bool read_off_bus(bl_cursor c, bl_kernel_event *event)
{
    bl_cursor in = c;
    if (bl_cursor_take(&in, "GPU at ") || bl_cursor_take(&in, "GPU ")) {
        if (!bl_kernel_pci(&in, &event->pci))
            return false;
        bl_cursor_take(&in, ":");
        return (bl_cursor_take(&in, " GPU has fallen off the bus") || bl_cursor_take(&in, " has fallen off the bus")) &&
               set_off_bus(c, event);
    }
    if (bl_cursor_take(&in, "The NVIDIA GPU ") && bl_kernel_pci(&in, &event->pci)) {
        if (bl_cursor_find(&in, "fallen off the bus") != NULL)
            return set_off_bus(c, event);
        event->kind = BL_KERNEL_PART;
        return true;
    }
    if (bl_cursor_take(&in, "(PCI ID: ") && bl_cursor_find(&in, "installed in this system has") != NULL) {
        event->kind = BL_KERNEL_PART;
        return true;
    }
    return bl_cursor_sees(&in, "fallen off the bus and is not responding to commands") && set_off_bus(c, event);
}

static bool read_rm_init(bl_cursor c, bl_kernel_event *event)
{
    if (bl_cursor_find(&c, "RmInitAdapter failed") == NULL && bl_cursor_find(&c, "rm_init_adapter failed") == NULL)
        return false;
    event->kind = BL_KERNEL_RM_INIT;
    event->reason = bl_kernel_rest(&c);
    if (bl_cursor_take(&c, "GPU at ") || bl_cursor_take(&c, "GPU "))
        bl_kernel_pci(&c, &event->pci);
    return true;
}

bool bl_kernel_nvrm(bl_cursor c, bl_kernel_event *event)
{
    bl_cursor_skip_blanks(&c);
    if (bl_cursor_take(&c, "Xid "))
        return read_xid(c, event);
    if (bl_cursor_sees(&c, "loading NVIDIA ")) {
        event->kind = BL_KERNEL_LOAD;
        event->reason = bl_kernel_rest(&c);
        return true;
    }
    return read_identity(c, event) || read_serial(c, event) || read_off_bus(c, event) || read_rm_init(c, event);
}

/* ---- a line -------------------------------------------------------------------------------------------------------- */

static bool read_driver(bl_cursor c, bl_kernel_event *event)
{
    return bl_cursor_take(&c, "NVRM: ") && bl_kernel_nvrm(c, event);
}

static bool read_boot(bl_cursor c, bl_kernel_event *event)
{
    (void)c;
    event->kind = BL_KERNEL_BOOT;
    return true;
}

/* How a line of each family begins. */
static const struct family {
    const char *begin;
    bool (*read)(bl_cursor, bl_kernel_event *);
} families[] = {
    {"NVRM: ", read_driver},
    {"nvidia-nvswitch", bl_kernel_switch},
    {"Linux version ", read_boot},
    {"amdgpu ", bl_kernel_amd},
    {"Memory access fault by GPU", bl_kernel_amd},
    {"DMAR: ", bl_kernel_pcie},
    {"AMD-Vi: ", bl_kernel_pcie},
    {"Out of memory", bl_kernel_process},
    {"Memory cgroup out of memory", bl_kernel_process},
    {"oom-kill:", bl_kernel_process},
    {"traps: ", bl_kernel_process},
    {"INFO: task ", bl_kernel_process},
    {"EDAC MC", bl_kernel_memory},
    {"Memory failure: ", bl_kernel_memory},
    {"MCE 0x", bl_kernel_memory},
    {"mce: ", bl_kernel_memory},
    /* These begin with the name of a driver or of a program. */
    {"", bl_kernel_pcie},
    {"", bl_kernel_process},
};

/* Each family gets an event of its own, so that one that gave up leaves nothing behind. */
static bool read_family(bl_cursor c, bl_kernel_event *event)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (!bl_cursor_sees(&c, families[i].begin))
            continue;
        if (families[i].read(c, event))
            return true;
        bl_kernel_event_init(event);
    }
    return false;
}

bool bl_kernel_read(const char *text, int64_t n_bytes, bl_kernel_event *out)
{
    bl_cursor c = {text, text + n_bytes};
    bl_kernel_text host = {0};
    bl_kernel_event_init(out);
    if (n_bytes <= 0)
        return false;
    bl_cursor whole = c;
    bl_kernel_strip(&c, &host);
    if (!read_family(c, out) && !read_trace_point(whole, out)) {
        bl_kernel_event_init(out);
        return false;
    }
    out->host = host;
    return true;
}

/* ---- lines that belong together --------------------------------------------------------------------------------- */

/* Three lines say that a GPU fell off the bus, and only the first has its address. */
static void feed_lost(bl_kernel_reader *reader, int64_t line, bl_kernel_event *event)
{
    if (event->kind == BL_KERNEL_PART && event->pci.is_known) {
        reader->lost = event->pci;
        reader->lost_line = line;
    } else if (event->kind == BL_KERNEL_OFF_BUS && !event->pci.is_known) {
        if (reader->lost.is_known && line - reader->lost_line <= most_lines_apart)
            event->pci = reader->lost;
        reader->lost.is_known = false;
    }
}

static void feed_switch(bl_kernel_reader *reader, const bl_kernel_event *event)
{
    if (event->is_continuation)
        return;
    reader->last_sxid = event->code;
    reader->last_switch = event->switch_number;
}

static void feed_amd(bl_kernel_reader *reader, bl_kernel_event *event)
{
    if (!event->is_continuation) {
        reader->amd = event->pci;
        reader->amd_pid = event->pid;
    } else if (bl_pci_is_same(reader->amd, event->pci) && event->pid < 0) {
        event->pid = reader->amd_pid;
        event->pid_form = event->pid < 0 ? BL_KERNEL_PID_NONE : BL_KERNEL_PID_KNOWN;
    }
}

bool bl_kernel_feed(bl_kernel_reader *reader, const char *text, int64_t n_bytes, int64_t line, bl_kernel_event *out)
{
    if (!bl_kernel_read(text, n_bytes, out))
        return false;
    if (out->kind == BL_KERNEL_PART || out->kind == BL_KERNEL_OFF_BUS)
        feed_lost(reader, line, out);
    else if (out->kind == BL_KERNEL_SXID)
        feed_switch(reader, out);
    else if (out->kind == BL_KERNEL_AMD_FAULT)
        feed_amd(reader, out);
    else if (out->kind == BL_KERNEL_IDENTITY)
        reader->named = out->pci;
    else if (out->kind == BL_KERNEL_SERIAL && !out->pci.is_known)
        out->pci = reader->named;
    return true;
}

bool bl_kernel_feed_line(bl_kernel_reader *reader, const bl_line *line, bl_kernel_event *out)
{
    const char *bytes;
    int64_t at = 0, n_bytes;
    while (bl_line_segment(line, &at, &bytes, &n_bytes)) {
        if (!bl_kernel_feed(reader, bytes, n_bytes, line->number, out))
            continue;
        if (out->host.n_bytes == 0)
            out->host = line->host != NULL ? (bl_kernel_text){line->host, line->n_host}
                                           : bl_kernel_host(line->raw, line->n_raw);
        return true;
    }
    return bl_kernel_feed(reader, line->raw, line->n_raw, line->number, out);
}

/* ---- words -------------------------------------------------------------------------------------------------------- */

int bl_sm_reason_cuda(bl_sm_reason reason)
{
    static const int codes[] = {
        [BL_SM_OUT_OF_RANGE] = 719,  [BL_SM_MISALIGNED] = 716, [BL_SM_ILLEGAL_INSTRUCTION] = 715,
        [BL_SM_INVALID_SPACE] = 717, [BL_SM_INVALID_PC] = 718, [BL_SM_STACK] = 714,
        [BL_SM_OTHER] = 0,
    };
    return codes[reason];
}
