/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel log beside the program's: whose fault is it?  One Xid 13 or 31 that belongs to an application's error is its
 * shadow; hardware is said only on what gpu.c found. */
#include <string.h>

#include "base/memory.h"
#include "triage/case.h"
#include "triage/kills.h"

static bl_event *derive_at(bl_case *c, bl_signal signal, bl_gpu_place place)
{
    bl_event *event = bl_events_derive(c->events, signal, NULL);
    if (event == NULL)
        return NULL;
    event->file = place.file;
    event->line = place.line;
    event->time = place.time_kind == BL_TIME_WALL ? place.time : BL_NO_TIME;
    event->has_own_time = place.time_kind == BL_TIME_WALL;
    const bl_event *seen = NULL; /* the same line as a signal of its own carries its text */
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_kernlog_line); e != NULL; e = e->next)
        if (e->file == place.file && e->line == place.line)
            seen = e;
    if (seen != NULL) {
        event->text = seen->text;
        event->rank = seen->rank;
    }
    return event;
}

static void add_incident_facts(bl_case *c, bl_event *event, const bl_gpu_verdict *gpu)
{
    char pci[BL_PCI_WORDS];
    const bl_gpu_incident *origin = gpu->origin;
    for (int i = 0; i < gpu->n_codes && i < 5; i++)
        bl_event_fact_of(c->events, event, "xid", -1, "%lld", (long long)gpu->codes[i]);
    bl_event_fact_of(c->events, event, "pci", -1, "%s", bl_pci_describe(gpu->pci, pci));
    if (gpu->uuid[0] != '\0')
        bl_event_fact_of(c->events, event, "gpu_uuid", -1, "%s", gpu->uuid);
    if (origin != NULL && origin->pid >= 0)
        bl_event_fact_of(c->events, event, "pid", -1, "%lld", (long long)origin->pid);
    if (gpu->action != BL_N_RECOVERIES)
        bl_event_fact_of(c->events, event, "recovery_action", -1, "%s", bl_recovery_name(gpu->action));
}

/* The lines of a verdict beside the decisive one, as evidence of their own. */
static void add_lines(bl_case *c, bl_signal signal, const bl_gpu_verdict *gpu)
{
    for (int i = 1; i < gpu->n_lines && i < 4; i++)
        (void)derive_at(c, signal, gpu->lines[i].place);
}

static const char *access_text(const bl_gpu_incident *incident)
{
    static const char *const words[] = {"", "ACCESS_TYPE_VIRT_READ", "ACCESS_TYPE_VIRT_WRITE",
                                        "ACCESS_TYPE_VIRT_ATOMIC", "ACCESS_TYPE_VIRT_PREFETCH"};
    return words[incident->access];
}

static void add_address(bl_case *c, bl_event *event, const bl_gpu_incident *incident)
{
    if (incident == NULL)
        return;
    if (incident->has_address) {
        bl_event_fact_of(c->events, event, "address", -1, "0x%llx_%08llx",
                         (unsigned long long)(incident->address >> 32),
                         (unsigned long long)(incident->address & 0xffffffffu));
        bl_event_fact_of(c->events, event, "access", -1, "%s", access_text(incident));
    }
    if (incident->gi >= 0)
        bl_event_fact_of(c->events, event, "gpu_instance", -1, "%d", incident->gi);
    if (incident->ci >= 0)
        bl_event_fact_of(c->events, event, "compute_instance", -1, "%d", incident->ci);
}

static void add_fault_type(bl_case *c, bl_event *event, const bl_gpu_incident *incident)
{
    static const char *const names[] = {[BL_MMU_PDE] = "FAULT_PDE",
                                        [BL_MMU_PDE_SIZE] = "FAULT_PDE_SIZE",
                                        [BL_MMU_PTE] = "FAULT_PTE",
                                        [BL_MMU_VA_LIMIT] = "FAULT_VA_LIMIT_VIOLATION",
                                        [BL_MMU_UNBOUND] = "FAULT_UNBOUND_INST_BLOCK",
                                        [BL_MMU_PRIV] = "FAULT_PRIV_VIOLATION",
                                        [BL_MMU_READ_ONLY] = "FAULT_RO_VIOLATION",
                                        [BL_MMU_POISONED] = "FAULT_INFO_TYPE_POISONED"};
    if (incident != NULL && (size_t)incident->fault_type < sizeof names / sizeof names[0] &&
        names[incident->fault_type] != NULL)
        bl_event_fact_of(c->events, event, "fault_type", -1, "%s", names[incident->fault_type]);
}

/* The application's errors that a kernel's fault can show up as. */
static const bl_event *joined_error(bl_case *c, int verdict, bool *is_misaligned)
{
    static const struct {
        bl_signal signal;
        int code;
    } errors[] = {{BL_SIGNAL_error_700, 700}, {BL_SIGNAL_error_716, 716}, {BL_SIGNAL_error_719, 719},
                  {BL_SIGNAL_error_715, 715}, {BL_SIGNAL_error_717, 717}, {BL_SIGNAL_error_718, 718}};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        for (const bl_event *e = bl_events_first(c->events, errors[i].signal); e != NULL; e = e->next) {
            bl_gpu_error error = {.pid = e->pid,
                                  .time = e->time,
                                  .time_kind = e->time == BL_NO_TIME ? BL_TIME_NONE : BL_TIME_WALL,
                                  .cuda_code = errors[i].code};
            bl_gpu_match match = bl_gpu_find(c->gpus, &error);
            if (match.join == BL_GPU_JOIN_NONE || match.verdict != verdict)
                continue;
            *is_misaligned = match.incident->sm_reason == BL_SM_MISALIGNED;
            return e;
        }
    return NULL;
}

static void judge_application(bl_case *c, const bl_gpu_verdict *gpu, int number)
{
    bool is_misaligned = false;
    const bl_event *joined = joined_error(c, number, &is_misaligned);
    bl_signal signal = joined == NULL  ? BL_SIGNAL_xid_alone
                       : is_misaligned ? BL_SIGNAL_xid_shadow_misaligned
                                       : BL_SIGNAL_xid_shadow;
    bl_event *event = derive_at(c, signal, gpu->decisive);
    add_incident_facts(c, event, gpu);
    add_address(c, event, gpu->origin);
    add_fault_type(c, event, gpu->origin);
}

/* What the other GPUs did meanwhile, for comparison. */
static void add_others(bl_case *c, bl_event *event, const bl_gpu_verdict *gpus, int n, int number)
{
    char pci[BL_PCI_WORDS];
    for (int i = 0; i < n && i < 4; i++)
        if (i != number) {
            bl_event_fact_of(c->events, event, "other_gpu", -1, "%s", bl_pci_describe(gpus[i].pci, pci));
            bl_event_fact_of(c->events, event, "other_gpu_events", -1, "%lld", (long long)gpus[i].n_incidents);
        }
}

static void judge_suspect(bl_case *c, const bl_gpu_verdict *gpus, int n, int number)
{
    const bl_gpu_verdict *gpu = &gpus[number];
    bl_event *event = derive_at(c, BL_SIGNAL_xid_suspect, gpu->decisive);
    add_incident_facts(c, event, gpu);
    bl_event_fact_of(c->events, event, "events", -1, "%lld", (long long)gpu->n_counted);
    if (gpu->tpc >= 0) {
        bl_event_fact_of(c->events, event, "gpc", -1, "%d", gpu->gpc);
        bl_event_fact_of(c->events, event, "tpc", -1, "%d", gpu->tpc);
    }
    add_others(c, event, gpus, n, number);
}

static void judge_link(bl_case *c, const bl_gpu_verdict *gpu)
{
    char pci[BL_PCI_WORDS];
    bl_event *event = derive_at(c, BL_SIGNAL_xid_link, gpu->decisive);
    add_incident_facts(c, event, gpu);
    if (gpu->origin != NULL && gpu->origin->link >= 0)
        bl_event_fact_of(c->events, event, "nvlink", -1, "%lld", (long long)gpu->origin->link);
    if (gpu->link_partner.is_known) {
        bl_event_fact_of(c->events, event, "sxid", -1, "%lld", (long long)gpu->link_partner.code);
        bl_event_fact_of(c->events, event, "switch", -1, "nvidia-nvswitch%lld", (long long)gpu->link_partner.number);
        bl_event_fact_of(c->events, event, "switch_link", -1, "%lld", (long long)gpu->link_partner.link);
        bl_event_fact_of(c->events, event, "switch_pci", -1, "%s", bl_pci_describe(gpu->link_partner.pci, pci));
    }
    add_lines(c, BL_SIGNAL_xid_link, gpu);
}

static void judge_hardware(bl_case *c, const bl_gpu_verdict *gpu)
{
    char pci[BL_PCI_WORDS];
    bl_event *event =
        derive_at(c, gpu->is_settled ? BL_SIGNAL_xid_hardware : BL_SIGNAL_xid_hardware_likely, gpu->decisive);
    add_incident_facts(c, event, gpu);
    if (gpu->upstream.is_known)
        bl_event_fact_of(c->events, event, "upstream_port", -1, "%s", bl_pci_describe(gpu->upstream, pci));
    add_lines(c, BL_SIGNAL_xid_hardware, gpu);
}

static void judge_gpu(bl_case *c, const bl_gpu_verdict *gpus, int n, int number)
{
    const bl_gpu_verdict *gpu = &gpus[number];
    bl_event *event;
    if (gpu->origin != NULL && gpu->origin->code == 8) { /* a channel that was idle for too long, whoever's fault */
        event = derive_at(c, BL_SIGNAL_xid_watchdog, gpu->decisive);
        add_incident_facts(c, event, gpu);
        return;
    }
    switch (gpu->class) {
    case BL_GPU_CLASS_HARDWARE:
        judge_hardware(c, gpu);
        break;
    case BL_GPU_CLASS_LINK:
        judge_link(c, gpu);
        break;
    case BL_GPU_CLASS_SUSPECT:
        judge_suspect(c, gpus, n, number);
        break;
    case BL_GPU_CLASS_APPLICATION:
        judge_application(c, gpu, number);
        break;
    case BL_GPU_CLASS_DRIVER:
        event = derive_at(c, BL_SIGNAL_xid_driver, gpu->decisive);
        add_incident_facts(c, event, gpu);
        break;
    case BL_GPU_CLASS_NONE:
        if (gpu->is_pending_repair) {
            event = derive_at(c, BL_SIGNAL_xid_repair, gpu->decisive);
            add_incident_facts(c, event, gpu);
        }
        break;
    }
}

/* ---- several processes on one GPU ------------------------------------------------------------------------------------ */

/* Each of several processes says which device it chose, and it is the same one; NULL when not. */
static const bl_event *one_choice(const bl_case *c)
{
    const bl_event *first = bl_events_first(c->events, BL_SIGNAL_deviceof_process);
    int64_t device, process, other, first_process;
    bool is_several = false;
    if (first == NULL || !bl_event_number(first, "process_device", &device) ||
        !bl_event_number(first, "process", &first_process))
        return NULL;
    for (const bl_event *e = first->next; e != NULL; e = e->next) {
        if (!bl_event_number(e, "process_device", &other) || !bl_event_number(e, "process", &process) ||
            other != device)
            return NULL;
        is_several = is_several || process != first_process;
    }
    return is_several ? first : NULL;
}

/* Two processes of one program in the table of one GPU, or two that an allocation's error names. */
static bool is_crowded(const bl_case *c)
{
    const bl_event *first = bl_events_first(c->events, BL_SIGNAL_smiprocess_row);
    for (const bl_event *a = first; a != NULL; a = a->next)
        for (const bl_event *b = a->next; b != NULL; b = b->next)
            if (strcmp(bl_event_get(a, "smi_gpu"), bl_event_get(b, "smi_gpu")) == 0 &&
                strcmp(bl_event_get(a, "smi_pid"), bl_event_get(b, "smi_pid")) != 0 &&
                strcmp(bl_event_get(a, "program"), bl_event_get(b, "program")) == 0)
                return true;
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_error_2); e != NULL; e = e->next) {
        const char *named = strstr(e->text, "Process ");
        if (named != NULL && strstr(named + 1, "Process ") != NULL)
            return true;
    }
    return false;
}

static void judge_crowd(bl_case *c)
{
    const bl_event *choice = one_choice(c);
    bl_event *event =
        choice == NULL || !is_crowded(c) ? NULL : bl_events_derive(c->events, BL_SIGNAL_machine_memory_shared, choice);
    if (event == NULL)
        return;
    event->rank = -1;
    bl_event_fact_of(c->events, event, "device", -1, "cuda:%s", bl_event_get(choice, "process_device"));
}

/* Fatal errors of switches that no GPU's own line explains. */
static void judge_switches(bl_case *c)
{
    char pci[BL_PCI_WORDS];
    const bl_gpu_switch *switches = NULL;
    int n = bl_gpu_switches(c->gpus, &switches);
    for (int i = 0; i < n; i++) {
        if (switches[i].is_joined || switches[i].severity != BL_KERNEL_FATAL)
            continue;
        bl_event *event = derive_at(c, BL_SIGNAL_sxid_fatal, switches[i].place);
        bl_event_fact_of(c->events, event, "sxid", -1, "%lld", (long long)switches[i].code);
        bl_event_fact_of(c->events, event, "switch", -1, "nvidia-nvswitch%lld", (long long)switches[i].number);
        bl_event_fact_of(c->events, event, "switch_link", -1, "%lld", (long long)switches[i].link);
        bl_event_fact_of(c->events, event, "switch_pci", -1, "%s", bl_pci_describe(switches[i].pci, pci));
    }
}

static void judge_kills(bl_case *c)
{
    bl_kills *kills = bl_kills_new(c->events);
    if (kills == NULL)
        bl_events_note_no_memory(c->events);
    for (const bl_event *e = bl_events_first(c->events, BL_SIGNAL_kernlog_line); e != NULL && kills != NULL;
         e = e->next)
        if ((strstr(e->text, "ut of memory: Kill") != NULL || strstr(e->text, "oom-kill:") != NULL) &&
            !bl_kills_is_foreign(kills, e->text))
            (void)bl_events_derive(c->events, BL_SIGNAL_machine_oom_kill, e);
    bl_free(kills);
}

void bl_derive_machine(bl_case *c)
{
    const bl_gpu_verdict *gpus = NULL;
    bl_gpu_options options = {.history = c->history, .host = c->host};
    int n = bl_gpu_judge(c->gpus, &options, &gpus);
    for (int i = 0; i < n; i++)
        judge_gpu(c, gpus, n, i);
    judge_crowd(c);
    judge_switches(c);
    judge_kills(c);
}
