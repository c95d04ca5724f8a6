/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel lines that are not NVIDIA's GPU driver: NVSwitch, PCIe, IOMMU, AMD GPUs, ended processes, memory of the host. */
#include "triage/kernel_parts.h"

enum { longest_program = 64, longest_driver = 32 };

/* "<driver> 0000:5d:01.0: ", for lines that the kernel prints about a device */
static bool take_device(bl_cursor *c, bl_pci *pci)
{
    bl_cursor in = *c;
    while (in.at < in.end && in.at - c->at < longest_driver && (bl_byte_is_word(*in.at) || *in.at == '-'))
        in.at++;
    if (in.at == c->at || !bl_cursor_take(&in, " ") || !bl_kernel_pci(&in, pci) || !bl_cursor_take(&in, ":"))
        return false;
    bl_cursor_skip_blanks(&in);
    *c = in;
    return true;
}

/* ---- NVSwitch ---------------------------------------------------------------------------------------------------- */

/* "Severity 1 Engine instance 30 Sub-engine instance 00", "Data {0x50610002, ...}" */
static bool read_continuation(bl_cursor c, bl_kernel_event *event)
{
    int64_t severity;
    event->is_continuation = true;
    if (bl_cursor_take(&c, "Data {"))
        return true;
    return bl_cursor_take(&c, "Severity ") && bl_cursor_count(&c, 255, &severity) &&
           bl_cursor_take(&c, " Engine instance ") && bl_cursor_count(&c, UINT16_MAX, &event->instance) &&
           bl_cursor_take(&c, " Sub-engine instance ") && bl_cursor_count(&c, UINT16_MAX, &event->sub_instance);
}

static bool read_severity(bl_cursor *c, bl_kernel_severity *out)
{
    *out = bl_cursor_take(c, "Fatal, ")         ? BL_KERNEL_FATAL
           : bl_cursor_take(c, "Non-fatal, ")   ? BL_KERNEL_NONFATAL
           : bl_cursor_take(c, "Correctable, ") ? BL_KERNEL_CORRECTABLE
                                                : BL_KERNEL_SEVERITY_NONE;
    return *out != BL_KERNEL_SEVERITY_NONE;
}

/* "Link 30 LTSSM Fault Up (First)", "<text>, instance=3, chiplet=0" */
static void read_switch_text(bl_cursor c, bl_kernel_event *event)
{
    bl_cursor in = c;
    if (bl_cursor_take(&in, "Link ") && (bl_cursor_take(&in, "-1") || bl_cursor_count(&in, UINT16_MAX, &event->link))) {
        bl_cursor_skip_blanks(&in);
        c = in;
    }
    event->reason = bl_kernel_rest(&c);
    in = (bl_cursor){c.at, c.at + event->reason.n_bytes};
    event->is_first = bl_cursor_pass(&in, " (First)") && in.at == in.end;
    if (event->is_first)
        event->reason.n_bytes -= (int64_t)strlen(" (First)");
    if (bl_cursor_pass(&c, ", instance=")) {
        bl_cursor_count(&c, UINT16_MAX, &event->instance);
        if (bl_cursor_take(&c, ", chiplet="))
            bl_cursor_count(&c, UINT16_MAX, &event->chiplet);
    }
}

bool bl_kernel_switch(bl_cursor c, bl_kernel_event *event)
{
    if (!bl_cursor_take(&c, "nvidia-nvswitch") || !bl_cursor_count(&c, 9999, &event->switch_number) ||
        !bl_cursor_take(&c, ": SXid (") || !bl_kernel_pci(&c, &event->pci) || !bl_cursor_take(&c, "): "))
        return false;
    const char *digits = c.at;
    if (!bl_cursor_count(&c, 99999, &event->code) || c.at - digits != 5 || !bl_cursor_take(&c, ", "))
        return false;
    event->kind = BL_KERNEL_SXID;
    event->message = bl_kernel_rest(&c);
    if (!read_severity(&c, &event->severity))
        return read_continuation(c, event);
    read_switch_text(c, event);
    return true;
}

/* ---- PCIe and IOMMU ---------------------------------------------------------------------------------------------- */

static bool read_aer(bl_cursor c, bl_kernel_event *event)
{
    if (!take_device(&c, &event->pci) || !(bl_cursor_take(&c, "AER: ") || bl_cursor_sees(&c, "PCIe Bus Error: ")))
        return false;
    event->kind = BL_KERNEL_AER;
    event->reason = bl_kernel_rest(&c);
    bl_cursor in = c;
    if (bl_cursor_pass(&in, "Corrected") || (in = c, bl_cursor_pass(&in, "Correctable")))
        event->severity = BL_KERNEL_CORRECTABLE;
    else if (in = c, bl_cursor_pass(&in, "on-Fatal"))
        event->severity = BL_KERNEL_NONFATAL;
    else if (in = c, bl_cursor_pass(&in, "Fatal"))
        event->severity = BL_KERNEL_FATAL;
    return true;
}

/* "41:00.0" or "0000:41:00.0", up to ']' or a blank */
static void read_short_pci(bl_cursor c, bl_pci *out)
{
    const char *end = c.at;
    while (end < c.end && (bl_byte_hex(*end) >= 0 || *end == ':' || *end == '.'))
        end++;
    bl_pci pci;
    if (bl_pci_read(c.at, end - c.at, &pci))
        *out = pci;
}

static void read_fault_address(bl_cursor c, const char *words, bl_kernel_event *event)
{
    uint64_t address;
    if (!bl_cursor_pass(&c, words))
        return;
    bl_cursor_take(&c, "0x");
    if (bl_cursor_hex(&c, 1, 16, &address)) {
        event->has_address = true;
        event->address = address;
    }
}

/* "nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT ...]", or with "device=41:00.0" inside */
static bool read_amd_vi(bl_cursor c, bl_kernel_event *event)
{
    bl_cursor in = c;
    if (!take_device(&in, &event->pci))
        in = c;
    if (!bl_cursor_take(&in, "AMD-Vi: Event logged ["))
        return false;
    event->kind = BL_KERNEL_IOMMU;
    event->reason = bl_kernel_rest(&in);
    read_fault_address(in, "address=", event);
    if (!event->pci.is_known && bl_cursor_pass(&in, "device="))
        read_short_pci(in, &event->pci);
    return true;
}

/* "DMAR: [DMA Read] Request device [41:00.0] fault addr 0x1000 [fault reason 06] ..." */
static bool read_dmar(bl_cursor c, bl_kernel_event *event)
{
    if (!bl_cursor_take(&c, "DMAR: ") || !bl_cursor_sees(&c, "[DMA ") || bl_cursor_find(&c, "fault addr ") == NULL)
        return false;
    event->kind = BL_KERNEL_IOMMU;
    event->reason = bl_kernel_rest(&c);
    read_fault_address(c, "fault addr ", event);
    if (bl_cursor_pass(&c, "Request device ")) {
        bl_cursor_take(&c, "[");
        read_short_pci(c, &event->pci);
    }
    return true;
}

bool bl_kernel_pcie(bl_cursor c, bl_kernel_event *event)
{
    return read_aer(c, event) || read_amd_vi(c, event) || read_dmar(c, event);
}

/* ---- AMD ----------------------------------------------------------------------------------------------------------- */

/* "for process python3 pid 1234 thread ..." */
static void read_amd_process(bl_cursor c, bl_kernel_event *event)
{
    int64_t pid;
    if (!bl_cursor_pass(&c, "rocess "))
        return;
    const char *begin = c.at;
    if (bl_cursor_pass(&c, " pid ") && bl_cursor_count(&c, INT32_MAX, &pid)) {
        event->name = bl_kernel_text_of(begin, bl_cursor_find(&(bl_cursor){begin, c.end}, " pid "));
        event->pid = pid > 0 ? pid : -1;
        event->pid_form = pid > 0 ? BL_KERNEL_PID_KNOWN : BL_KERNEL_PID_UNKNOWN;
    }
}

static bool read_amd_driver(bl_cursor c, bl_kernel_event *event)
{
    if (!bl_cursor_sees(&c, "amdgpu ") || !take_device(&c, &event->pci) || !bl_cursor_take(&c, "amdgpu:"))
        return false;
    bl_cursor_skip_blanks(&c);
    event->message = event->reason = bl_kernel_rest(&c);
    bool is_fault = bl_cursor_sees(&c, "[") && bl_cursor_find(&c, "page fault (src_id:") != NULL;
    event->is_continuation = !is_fault && (bl_cursor_sees(&c, "in page starting at address ") ||
                                           bl_cursor_sees(&c, "for process ") || bl_cursor_sees(&c, "Process "));
    bool is_reset = bl_cursor_sees(&c, "GPU reset") || bl_cursor_sees(&c, "ring ");
    if (!is_fault && !event->is_continuation && !is_reset)
        return false;
    event->kind = is_reset ? BL_KERNEL_AMD_RESET : BL_KERNEL_AMD_FAULT;
    read_amd_process(c, event);
    read_fault_address(c, "starting at address ", event);
    return true;
}

/* "Memory access fault by GPU node-1 (Agent handle: 0x55d0) on address 0x7f5a1c000000. Reason: ..." */
static bool read_amd_abort(bl_cursor c, bl_kernel_event *event)
{
    if (!bl_cursor_take(&c, "Memory access fault by GPU node-") || !bl_cursor_count(&c, 9999, &event->instance))
        return false;
    event->kind = BL_KERNEL_AMD_ABORT;
    event->message = bl_kernel_rest(&c);
    read_fault_address(c, "on address ", event);
    if (bl_cursor_pass(&c, "Reason: "))
        event->reason = bl_kernel_rest(&c);
    return true;
}

bool bl_kernel_amd(bl_cursor c, bl_kernel_event *event)
{
    return read_amd_driver(c, event) || read_amd_abort(c, event);
}

/* ---- processes ---------------------------------------------------------------------------------------------------- */

static void set_process(bl_kernel_event *event, bl_kernel_kind kind, int64_t pid)
{
    event->kind = kind;
    event->pid = pid;
    event->pid_form = BL_KERNEL_PID_KNOWN;
}

/* "Out of memory: Killed process 4242 (python) total-vm:..., anon-rss:1234kB, ..." */
static bool read_killed(bl_cursor c, bl_kernel_event *event)
{
    int64_t pid;
    event->in_cgroup = bl_cursor_take(&c, "Memory cgroup out of memory: Kill");
    if (!event->in_cgroup && !bl_cursor_take(&c, "Out of memory: Kill") &&
        !bl_cursor_take(&c, "Out of memory (oom_kill_allocating_task): Kill"))
        return false;
    bl_cursor_take(&c, "ed");
    if (!bl_cursor_take(&c, " process ") || !bl_cursor_count(&c, INT32_MAX, &pid) || !bl_cursor_take(&c, " ("))
        return false;
    set_process(event, BL_KERNEL_OOM_KILL, pid);
    bl_kernel_until(&c, ")", &event->name);
    if (bl_cursor_pass(&c, "anon-rss:"))
        bl_cursor_count(&c, INT64_MAX, &event->anon_kb);
    return true;
}

/* "oom-kill:constraint=CONSTRAINT_MEMCG,...,task=python,pid=4242,uid=0" */
static bool read_oom_summary(bl_cursor c, bl_kernel_event *event)
{
    int64_t pid;
    if (!bl_cursor_take(&c, "oom-kill:constraint="))
        return false;
    event->in_cgroup = bl_cursor_sees(&c, "CONSTRAINT_MEMCG");
    if (!bl_cursor_pass(&c, ",task=") || !bl_kernel_until(&c, ",pid=", &event->name) ||
        !bl_cursor_count(&c, INT32_MAX, &pid))
        return false;
    set_process(event, BL_KERNEL_OOM_KILL, pid);
    event->is_detail = true;
    return true;
}

/* The program and "[pid]" in front of the literal. */
static bool read_program(bl_cursor *c, const char *literal, bl_kernel_event *event, int64_t *pid)
{
    const char *close = bl_cursor_find(c, literal);
    if (close == NULL || close - c->at > longest_program)
        return false;
    const char *open = close;
    while (open > c->at && bl_byte_is_digit(open[-1]))
        open--;
    bl_cursor digits = {open, close};
    if (open <= c->at + 1 || open[-1] != '[' || !bl_cursor_count(&digits, INT32_MAX, pid))
        return false;
    event->name = bl_kernel_text_of(c->at, open - 1);
    c->at = close + strlen(literal);
    return true;
}

/* "python[4242]: segfault at 10 ip 00007f... sp 00007f... error 4 in libcuda.so.1[...]" */
static bool read_segfault(bl_cursor c, bl_kernel_event *event)
{
    int64_t pid;
    uint64_t ignored;
    if (!read_program(&c, "]: segfault at ", event, &pid))
        return false;
    bl_cursor in = c;
    if (!bl_cursor_hex(&in, 1, 16, &ignored) || !bl_cursor_take(&in, " ip "))
        return false;
    set_process(event, BL_KERNEL_SEGFAULT, pid);
    event->has_address = true;
    event->address = ignored;
    if (bl_cursor_pass(&in, " in "))
        event->reason = bl_kernel_rest(&in);
    return true;
}

/* "traps: python[4242] general protection fault ip:7f.. sp:7f.. error:0 in libc.so.6[...]" */
static bool read_trap(bl_cursor c, bl_kernel_event *event)
{
    int64_t pid;
    if (!bl_cursor_take(&c, "traps: ") || !read_program(&c, "] ", event, &pid) || bl_cursor_find(&c, " ip:") == NULL)
        return false;
    set_process(event, BL_KERNEL_SEGFAULT, pid);
    event->reason = bl_kernel_rest(&c);
    return true;
}

/* "INFO: task python:4242 blocked for more than 120 seconds." */
static bool read_hung_task(bl_cursor c, bl_kernel_event *event)
{
    int64_t pid;
    if (!bl_cursor_take(&c, "INFO: task "))
        return false;
    const char *end = bl_cursor_find(&c, " blocked for more than ");
    if (end == NULL || end - c.at > longest_program)
        return false;
    const char *digit = end;
    while (digit > c.at && bl_byte_is_digit(digit[-1]))
        digit--;
    bl_cursor digits = {digit, end};
    if (digit <= c.at + 1 || digit[-1] != ':' || !bl_cursor_count(&digits, INT32_MAX, &pid))
        return false;
    set_process(event, BL_KERNEL_HUNG_TASK, pid);
    event->name = bl_kernel_text_of(c.at, digit - 1);
    c.at = end + strlen(" blocked for more than ");
    bl_cursor_count(&c, INT32_MAX, &event->seconds);
    return true;
}

bool bl_kernel_process(bl_cursor c, bl_kernel_event *event)
{
    return read_killed(c, event) || read_oom_summary(c, event) || read_hung_task(c, event) || read_trap(c, event) ||
           read_segfault(c, event);
}

/* ---- memory of the host ------------------------------------------------------------------------------------------ */

/* "EDAC MC0: 1 CE memory read error on ..." */
static bool read_edac(bl_cursor c, bl_kernel_event *event)
{
    int64_t ignored, n;
    if (!bl_cursor_take(&c, "EDAC MC") || !bl_cursor_count(&c, 9999, &ignored) || !bl_cursor_take(&c, ": ") ||
        !bl_cursor_count(&c, INT32_MAX, &n))
        return false;
    if (bl_cursor_take(&c, " CE "))
        event->n_corrected = n;
    else if (bl_cursor_take(&c, " UE "))
        event->n_uncorrected = n;
    else
        return false;
    event->reason = bl_kernel_rest(&c);
    return true;
}

/* "Memory failure: 0x1a2b3: Sending SIGBUS to python:4242 due to hardware memory corruption" and its relatives */
static bool read_memory_failure(bl_cursor c, bl_kernel_event *event)
{
    if (!bl_cursor_sees(&c, "Memory failure: 0x") && !bl_cursor_sees(&c, "MCE 0x") &&
        !bl_cursor_sees(&c, "mce: Uncorrected hardware memory error"))
        return false;
    event->n_uncorrected = 1;
    event->reason = bl_kernel_rest(&c);
    bl_kernel_text name;
    int64_t pid;
    if ((bl_cursor_pass(&c, " SIGBUS to ") || bl_cursor_pass(&c, " Killing ")) && bl_kernel_until(&c, ":", &name) &&
        name.n_bytes <= longest_program && bl_cursor_count(&c, INT32_MAX, &pid)) {
        set_process(event, BL_KERNEL_HOST_MEMORY, pid);
        event->name = name;
    }
    return true;
}

bool bl_kernel_memory(bl_cursor c, bl_kernel_event *event)
{
    if (!read_edac(c, event) && !read_memory_failure(c, event))
        return false;
    event->kind = BL_KERNEL_HOST_MEMORY;
    return true;
}
