/* SPDX-License-Identifier: Apache-2.0 */
/* Folding: each line of a kernel log goes to its GPU, and there into the failure that it tells of. */
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "triage/gpu_parts.h"

#define BURST       BL_SECOND        /* lines about one failure follow each other within this */
#define ECHO        (2 * BL_SECOND)  /* an echo without a pid follows its cause within this */
#define SAME_PID    (60 * BL_SECOND) /* a process whose context is lost prints no second cause */
#define NAMED_CAUSE (600 * BL_SECOND)

bl_gpu_fold *bl_gpu_fold_new(void) { return bl_alloc(1, sizeof(bl_gpu_fold)); }

void bl_gpu_fold_free(bl_gpu_fold *fold)
{
    if (fold == NULL)
        return;
    for (int i = 0; i < fold->n_gpus; i++)
        bl_free(fold->gpus[i].incidents);
    bl_free(fold->files);
    bl_free((void *)fold->order);
    bl_free(fold);
}

int64_t bl_gpu_n_lost(const bl_gpu_fold *fold) { return fold->n_lost; }
bool bl_gpu_lacks_memory(const bl_gpu_fold *fold) { return fold->lacks_memory; }

int bl_gpu_switches(const bl_gpu_fold *fold, const bl_gpu_switch **out)
{
    *out = fold->switches;
    return fold->n_switches;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, int64_t n_bytes)
{
    const unsigned char *at = bytes;
    for (int64_t i = 0; i < n_bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Copies a text that is cut when there is no room. */
static void copy_text(char *to, int64_t room, bl_kernel_text from)
{
    int64_t n = bl_min_i64(from.n_bytes, room - 1);
    if (n > 0)
        memcpy(to, from.bytes, (size_t)n);
    to[n > 0 ? n : 0] = '\0';
}

/* ---- files and clocks --------------------------------------------------------------------------------------------- */

/* NULL: no memory, or a number that no run has. */
static bl_gpu_file *file_at(bl_gpu_fold *fold, int file)
{
    if (file < 0 || file >= BL_GPU_FILES)
        return NULL;
    if (!bl_grow(&fold->files, &fold->files_capacity, (int64_t)file + 1, sizeof *fold->files)) {
        fold->lacks_memory = true;
        return NULL;
    }
    for (; fold->n_files <= file; fold->n_files++)
        fold->files[fold->n_files] = (bl_gpu_file){.boot_time = -1};
    return &fold->files[file];
}

/* A boot clock that goes back is one that began anew. */
static void follow_clock(bl_gpu_file *file, bl_kernel_kind kind, bl_gpu_place place)
{
    bool is_boot_clock = place.time_kind == BL_TIME_BOOT;
    if (kind == BL_KERNEL_BOOT || (is_boot_clock && place.time < file->boot_time - BL_SECOND)) {
        file->epoch++;
        file->boot_time = -1;
    }
    if (is_boot_clock && place.time > file->boot_time)
        file->boot_time = place.time;
}

/* A line without a stamp goes on with what the one before it said, and was written with it. */
static void inherit_time(bl_gpu_file *file, bl_gpu_place *place)
{
    if (place->time_kind == BL_TIME_NONE) {
        place->time = file->time;
        place->time_kind = file->time_kind;
    } else {
        file->time = place->time;
        file->time_kind = place->time_kind;
    }
}

bool bl_gpu_between(bl_gpu_place a, int epoch_a, bl_gpu_place b, int epoch_b, int64_t *out)
{
    if (a.time_kind != b.time_kind || a.time_kind == BL_TIME_NONE)
        return false;
    if (a.time_kind != BL_TIME_WALL && (a.file != b.file || epoch_a != epoch_b))
        return false;
    return !__builtin_sub_overflow(b.time, a.time, out);
}

static int compare_i64(int64_t a, int64_t b) { return (a > b) - (a < b); }

int bl_gpu_compare(const bl_gpu_incident *a, const bl_gpu_incident *b)
{
    bool a_is_wall = a->place.time_kind == BL_TIME_WALL, b_is_wall = b->place.time_kind == BL_TIME_WALL;
    int order = (int)b_is_wall - (int)a_is_wall;
    if (order == 0 && a_is_wall)
        order = compare_i64(a->place.time, b->place.time);
    if (order == 0)
        order = compare_i64(a->place.file, b->place.file);
    return order != 0 ? order : compare_i64(a->place.line, b->place.line);
}

/* ---- GPUs ---------------------------------------------------------------------------------------------------------- */

static uint64_t machine_of(const bl_kernel_event *event, bl_gpu_place place)
{
    uint64_t start = UINT64_C(0xcbf29ce484222325);
    if (event->host.n_bytes > 0)
        return hash_bytes(start, event->host.bytes, event->host.n_bytes);
    return hash_bytes(start ^ 1, &place.file, sizeof place.file);
}

static bool is_same_slot(bl_pci a, bl_pci b) { return (!a.is_known && !b.is_known) || bl_pci_is_same(a, b); }

/* The newest of that slot: a board that was exchanged has a record of its own. */
static bl_gpu *find_gpu(bl_gpu_fold *fold, uint64_t machine, bl_pci pci)
{
    for (int i = fold->n_gpus - 1; i >= 0; i--)
        if (fold->gpus[i].machine == machine && is_same_slot(fold->gpus[i].pci, pci))
            return &fold->gpus[i];
    return NULL;
}

static bl_gpu *add_gpu(bl_gpu_fold *fold, uint64_t machine, const bl_kernel_event *event)
{
    if (fold->n_gpus == BL_GPU_MOST)
        return NULL;
    bl_gpu *gpu = &fold->gpus[fold->n_gpus++];
    *gpu = (bl_gpu){.machine = machine, .pci = event->pci, .latest = -1, .action = BL_N_RECOVERIES};
    gpu->pci.function = -1;
    copy_text(gpu->host, sizeof gpu->host, event->host);
    return gpu;
}

static bl_gpu *get_gpu(bl_gpu_fold *fold, uint64_t machine, const bl_kernel_event *event)
{
    bl_gpu *gpu = find_gpu(fold, machine, event->pci);
    return gpu != NULL ? gpu : add_gpu(fold, machine, event);
}

/* What stood before a reset does not count against the GPU any more. */
static void note_reset(bl_gpu *gpu)
{
    for (int64_t i = 0; i < gpu->n_kept; i++)
        gpu->incidents[i].is_before_reset = true;
    gpu->is_pending_repair = false;
    gpu->latest = -1;
}

static void note_restart(bl_gpu_fold *fold, uint64_t machine)
{
    for (int i = 0; i < fold->n_gpus; i++)
        if (fold->gpus[i].machine == machine) {
            note_reset(&fold->gpus[i]);
            fold->gpus[i].action = BL_N_RECOVERIES;
            fold->gpus[i].action_is_withdrawn = false;
        }
}

static bool note_identity(bl_gpu_fold *fold, uint64_t machine, const bl_kernel_event *event)
{
    bl_gpu *gpu = get_gpu(fold, machine, event);
    if (gpu != NULL && gpu->uuid[0] != '\0' && strcmp(gpu->uuid, event->uuid) != 0)
        gpu = add_gpu(fold, machine, event);
    if (gpu == NULL)
        return false;
    memcpy(gpu->uuid, event->uuid, sizeof gpu->uuid);
    return true;
}

/* ---- incidents ----------------------------------------------------------------------------------------------------- */

static bl_gpu_incident *latest(bl_gpu *gpu) { return gpu->latest < 0 ? NULL : &gpu->incidents[gpu->latest]; }

/* Room for one more: behind the others, or in the place of the oldest of the last ones. */
static bl_gpu_incident *make_room(bl_gpu *gpu)
{
    const int64_t most = BL_GPU_KEPT_FIRST + BL_GPU_KEPT_LAST;
    int64_t at = gpu->n_incidents < most
                     ? gpu->n_incidents
                     : BL_GPU_KEPT_FIRST + (gpu->n_incidents - BL_GPU_KEPT_FIRST) % BL_GPU_KEPT_LAST;
    if (!bl_grow(&gpu->incidents, &gpu->capacity, at + 1, sizeof *gpu->incidents))
        return NULL;
    gpu->n_incidents++;
    gpu->n_kept = bl_max_i64(gpu->n_kept, at + 1);
    gpu->latest = at;
    return &gpu->incidents[at];
}

static void note_code(bl_gpu_incident *incident, int64_t code)
{
    if (code <= 0)
        return;
    for (int i = 0; i < incident->n_codes; i++)
        if (incident->codes[i] == code)
            return;
    if (incident->n_codes < BL_GPU_CODES)
        incident->codes[incident->n_codes++] = code;
}

static bool has_code(const bl_gpu_incident *incident, int64_t code)
{
    for (int i = 0; i < incident->n_codes; i++)
        if (incident->codes[i] == code)
            return true;
    return false;
}

/* Numbers that an earlier line has told stay. */
static void take_number(int *to, int from)
{
    if (*to < 0)
        *to = from;
}

static void take_process(bl_gpu_incident *incident, const bl_kernel_event *event)
{
    if (incident->pid < 0)
        incident->pid = event->pid;
    if (incident->name[0] == '\0' && event->name.n_bytes > 0) {
        copy_text(incident->name, sizeof incident->name, event->name);
        incident->name_is_uncertain = event->name_is_uncertain;
    }
}

static void take_address(bl_gpu_incident *incident, const bl_kernel_event *event)
{
    if (incident->has_address || !event->has_address)
        return;
    incident->has_address = true;
    incident->is_physical = event->is_physical;
    incident->address = event->address;
}

static void take_fields(bl_gpu_incident *incident, const bl_kernel_event *event)
{
    take_process(incident, event);
    take_address(incident, event);
    take_number(&incident->gi, event->gi);
    take_number(&incident->ci, event->ci);
    take_number(&incident->gpc, event->gpc);
    take_number(&incident->tpc, event->tpc);
    take_number(&incident->sm, event->sm);
    take_number(&incident->needs_reset, event->needs_reset);
    take_number(&incident->sub_code, event->sub_code);
    if (incident->link < 0)
        incident->link = event->link;
    if (incident->severity < event->severity)
        incident->severity = event->severity;
    if (incident->fault_type == BL_MMU_NONE) {
        incident->fault_type = event->fault_type;
        copy_text(incident->fault_text, sizeof incident->fault_text, event->fault_text);
        incident->client = event->client_kind;
        incident->access = event->access;
    }
    if (incident->sm_reason == BL_SM_NONE || incident->sm_reason == BL_SM_MULTIPLE)
        incident->sm_reason = event->sm_reason != BL_SM_NONE ? event->sm_reason : incident->sm_reason;
    if (incident->look == BL_XID_LOOK_UNKNOWN && event->sub_code >= 0)
        incident->look = bl_xid_nvlink_look((int)event->code, event->unit.bytes, event->unit.n_bytes, event->sub_code);
}

/* What weighs most decides what the whole is. */
static void take_weight(bl_gpu_incident *incident, const bl_kernel_event *event, bl_gpu_place place)
{
    bl_gpu_class class = bl_gpu_class_of(event->kind, event->code, event->fault_type);
    if (bl_gpu_weight(class, event->code) <= bl_gpu_weight(incident->class, incident->heaviest))
        return;
    incident->class = class;
    incident->heaviest = event->code;
    incident->heaviest_place = place;
}

static uint64_t mark_of(const bl_kernel_event *event)
{
    bl_kernel_text said = event->message.n_bytes > 0 ? event->message : event->reason;
    uint64_t hash = hash_bytes(UINT64_C(0xcbf29ce484222325), &event->code, sizeof event->code);
    return hash_bytes(hash_bytes(hash, &event->pid, sizeof event->pid), said.bytes, said.n_bytes);
}

/* Makes the line the event of the incident. */
static void set_origin(bl_gpu_incident *incident, const bl_kernel_event *event, bl_gpu_place place)
{
    incident->place = place;
    incident->kind = event->kind;
    incident->code = event->code < 0 ? 0 : event->code;
    incident->row = bl_xid_find(incident->code);
    incident->cause = bl_gpu_code_is_echo(event->code) ? event->cause : -1;
    incident->mark = mark_of(event);
    copy_text(incident->text, sizeof incident->text, event->message.n_bytes > 0 ? event->message : event->reason);
    incident->class = bl_gpu_class_of(event->kind, incident->code, event->fault_type);
    incident->heaviest = incident->code;
    incident->heaviest_place = place;
}

static bool add_incident(bl_gpu *gpu, const bl_kernel_event *event, bl_gpu_place place, int epoch)
{
    bl_gpu_incident *incident = make_room(gpu);
    if (incident == NULL)
        return false;
    *incident = (bl_gpu_incident){.pci = gpu->pci,
                                  .pid = -1,
                                  .gi = -1,
                                  .ci = -1,
                                  .gpc = -1,
                                  .tpc = -1,
                                  .sm = -1,
                                  .link = -1,
                                  .sub_code = -1,
                                  .needs_reset = -1,
                                  .action = BL_N_RECOVERIES,
                                  .epoch = epoch,
                                  .n_lines = 1,
                                  .last = place};
    set_origin(incident, event, place);
    note_code(incident, incident->code);
    take_fields(incident, event);
    return true;
}

static void add_beside(bl_gpu_incident *incident, bl_gpu_role role, int64_t code, bl_gpu_place place)
{
    bl_gpu_line line = {role, code < 0 ? 0 : code, place};
    if (incident->n_beside < BL_GPU_BESIDE)
        incident->beside[incident->n_beside++] = line;
    else if (role == BL_GPU_ROLE_ACTION)
        incident->beside[BL_GPU_BESIDE - 1] = line;
}

static void add_companion(bl_gpu_incident *incident, const bl_kernel_event *event, bl_gpu_place place)
{
    incident->n_lines++;
    incident->last = place;
    note_code(incident, event->code);
    take_weight(incident, event, place);
    take_fields(incident, event);
    add_beside(incident, BL_GPU_ROLE_COMPANION, event->code, place);
}

static void add_echo(bl_gpu_incident *incident, const bl_kernel_event *event, bl_gpu_place place)
{
    incident->n_lines++;
    note_code(incident, event->code);
    take_process(incident, event);
    incident->n_echoes_all++;
    if (incident->n_echoes < BL_GPU_BESIDE)
        incident->echoes[incident->n_echoes++] = (bl_gpu_line){BL_GPU_ROLE_ECHO, event->code, place};
}

/* An echo that came before its cause steps back. */
static void promote(bl_gpu_incident *incident, const bl_kernel_event *event, bl_gpu_place place)
{
    bl_gpu_line echo = {BL_GPU_ROLE_ECHO, incident->code, incident->place};
    incident->n_echoes_all++;
    if (incident->n_echoes < BL_GPU_BESIDE)
        incident->echoes[incident->n_echoes++] = echo;
    set_origin(incident, event, place);
    note_code(incident, event->code);
    for (int i = incident->n_codes - 1; i > 0 && incident->codes[i] == event->code; i--) {
        incident->codes[i] = incident->codes[i - 1];
        incident->codes[i - 1] = event->code;
    }
    incident->n_lines++;
    incident->last = place;
    take_fields(incident, event);
}

/* ---- which failure does a line tell of? ------------------------------------------------------------------------- */

/* Within `limit` behind the incident's last line; without clocks to compare: in the same file. */
static bool is_near(const bl_gpu_incident *incident, bl_gpu_place place, int epoch, int64_t limit)
{
    int64_t between;
    if (bl_gpu_between(incident->last, incident->epoch, place, epoch, &between))
        return between >= -limit && between <= limit;
    bool lacks_time = incident->last.time_kind == BL_TIME_NONE || place.time_kind == BL_TIME_NONE;
    return lacks_time && incident->last.file == place.file && incident->epoch == epoch;
}

static bool is_same_pid(const bl_gpu_incident *incident, const bl_kernel_event *event)
{
    return incident->pid >= 0 && incident->pid == event->pid;
}

static bool pids_differ(const bl_gpu_incident *incident, const bl_kernel_event *event)
{
    return incident->pid >= 0 && event->pid >= 0 && incident->pid != event->pid;
}

static bool instances_differ(const bl_gpu_incident *incident, const bl_kernel_event *event)
{
    return incident->gi >= 0 && event->gi >= 0 && (incident->gi != event->gi || incident->ci != event->ci);
}

static bool is_of_gpu(bl_gpu_class class)
{
    return class == BL_GPU_CLASS_HARDWARE || class == BL_GPU_CLASS_LINK || class == BL_GPU_CLASS_DRIVER;
}

/* Of one process all faults that follow are one; what the whole GPU suffers is one within a burst. */
static bool is_companion(const bl_gpu_incident *incident, const bl_kernel_event *event, bl_gpu_place place, int epoch)
{
    if (event->kind == BL_KERNEL_XID && event->is_detail && incident->code == event->code &&
        !pids_differ(incident, event) && is_near(incident, place, epoch, SAME_PID))
        return true;
    if ((event->code == 171 || event->code == 172) && has_code(incident, 48))
        return is_near(incident, place, epoch, SAME_PID);
    bl_gpu_class class = bl_gpu_class_of(event->kind, event->code, event->fault_type);
    if (is_of_gpu(class) || is_of_gpu(incident->class))
        return is_near(incident, place, epoch, BURST);
    if (instances_differ(incident, event))
        return false;
    if (is_same_pid(incident, event))
        return is_near(incident, place, epoch, SAME_PID);
    return !pids_differ(incident, event) && place.time_kind != BL_TIME_NONE && is_near(incident, place, epoch, BURST);
}

static bl_gpu_incident *cause_by_code(bl_gpu *gpu, int64_t cause, bl_gpu_place place, int epoch)
{
    for (int64_t i = gpu->n_kept - 1; i >= 0; i--)
        if (has_code(&gpu->incidents[i], cause) && !gpu->incidents[i].is_before_reset &&
            is_near(&gpu->incidents[i], place, epoch, NAMED_CAUSE))
            return &gpu->incidents[i];
    return NULL;
}

/* The incident that an echo belongs to: of the cause that it names, of its process, of its second. */
static bl_gpu_incident *cause_of(bl_gpu *gpu, const bl_kernel_event *event, bl_gpu_place place, int epoch)
{
    if (event->cause > 0) {
        bl_gpu_incident *named = cause_by_code(gpu, event->cause, place, epoch);
        if (named != NULL)
            return named;
    }
    for (int64_t i = gpu->n_kept - 1; i >= 0 && i >= gpu->n_kept - 16; i--)
        if (is_same_pid(&gpu->incidents[i], event) && is_near(&gpu->incidents[i], place, epoch, SAME_PID))
            return &gpu->incidents[i];
    bl_gpu_incident *last = latest(gpu);
    bool is_of_another =
        last != NULL && !is_of_gpu(last->class) &&
        (instances_differ(last, event) || (place.time_kind == BL_TIME_NONE && pids_differ(last, event)));
    return last != NULL && !is_of_another && is_near(last, place, epoch, ECHO) ? last : NULL;
}

static bool fold_echo(bl_gpu *gpu, const bl_kernel_event *event, bl_gpu_place place, int epoch)
{
    bl_gpu_incident *cause = cause_of(gpu, event, place, epoch);
    if (cause == NULL)
        return add_incident(gpu, event, place, epoch);
    add_echo(cause, event, place);
    return true;
}

/* ---- Xid 154 -------------------------------------------------------------------------------------------------------- */

static bool fold_action(bl_gpu *gpu, const bl_kernel_event *event, bl_gpu_place place, int epoch)
{
    bl_gpu_incident *incident = latest(gpu);
    bool is_withdrawn = event->to == BL_RECOVERY_NONE;
    gpu->action = event->to;
    gpu->action_place = place;
    gpu->action_is_withdrawn = is_withdrawn;
    if (is_withdrawn) {
        if (event->from != BL_RECOVERY_NONE)
            note_reset(gpu);
        return true;
    }
    if (incident == NULL || !is_near(incident, place, epoch, NAMED_CAUSE)) {
        if (!add_incident(gpu, event, place, epoch))
            return false;
        latest(gpu)->action = event->to;
        return true;
    }
    incident->n_lines++;
    incident->action = event->to;
    note_code(incident, event->code);
    add_beside(incident, BL_GPU_ROLE_ACTION, event->code, place);
    return true;
}

/* ---- events of a GPU ------------------------------------------------------------------------------------------------ */

/* The same line in another file of the same machine (dmesg, journal). */
static bool is_told_already(const bl_gpu *gpu, const bl_kernel_event *event, bl_gpu_place place, int epoch)
{
    uint64_t mark = mark_of(event);
    for (int64_t i = 0; i < gpu->n_kept; i++) {
        const bl_gpu_incident *known = &gpu->incidents[i];
        int64_t between;
        if (known->mark != mark || known->place.file == place.file)
            continue;
        if (!bl_gpu_between(known->place, known->epoch, place, epoch, &between) ||
            (between >= -ECHO && between <= ECHO))
            return true;
    }
    return false;
}

static bool fold_event(bl_gpu *gpu, const bl_kernel_event *event, bl_gpu_place place, int epoch)
{
    if (event->kind == BL_KERNEL_XID && event->code == 154 && event->to_name.n_bytes > 0)
        return fold_action(gpu, event, place, epoch);
    if (event->code == 63)
        gpu->is_pending_repair = true;
    if (event->kind == BL_KERNEL_XID && bl_gpu_code_is_echo(event->code))
        return fold_echo(gpu, event, place, epoch);
    if (is_told_already(gpu, event, place, epoch))
        return true;
    bl_gpu_incident *incident = latest(gpu);
    if (incident != NULL && event->is_continuation) {
        take_fields(incident, event);
        add_beside(incident, BL_GPU_ROLE_COMPANION, event->code, place);
        return true;
    }
    if (incident != NULL && bl_gpu_code_is_echo(incident->code) && !pids_differ(incident, event) &&
        is_near(incident, place, epoch, BURST)) {
        promote(incident, event, place);
        return true;
    }
    if (incident != NULL && is_companion(incident, event, place, epoch)) {
        add_companion(incident, event, place);
        return true;
    }
    return add_incident(gpu, event, place, epoch);
}

/* ---- switches and ports -------------------------------------------------------------------------------------------- */

/* Fatal ones are kept when there is no room for all. */
static void note_switch(bl_gpu_fold *fold, uint64_t machine, const bl_kernel_event *event, bl_gpu_place place,
                        int epoch)
{
    int at = fold->n_switches;
    if (event->is_continuation)
        return;
    if (at == BL_GPU_SWITCHES) {
        while (at > 0 && fold->switches[at - 1].severity == BL_KERNEL_FATAL)
            at--;
        fold->n_lost++;
        if (at-- == 0 || event->severity != BL_KERNEL_FATAL)
            return;
    } else {
        fold->n_switches++;
    }
    fold->switches[at] = (bl_gpu_switch){.is_known = true,
                                         .number = event->switch_number,
                                         .code = event->code,
                                         .link = event->link,
                                         .pci = event->pci,
                                         .severity = event->severity,
                                         .row = bl_xid_find_switch(event->code),
                                         .place = place,
                                         .machine = machine};
    fold->switch_epochs[at] = epoch;
}

static void note_port(bl_gpu_fold *fold, uint64_t machine, const bl_kernel_event *event, bl_gpu_place place, int epoch)
{
    fold->ports[fold->n_ports++ % BL_GPU_PORTS] = (bl_gpu_port){machine, event->pci, event->severity, place, epoch};
}

/* ---- events --------------------------------------------------------------------------------------------------------- */

static bool add_event(bl_gpu_fold *fold, const bl_kernel_event *event, bl_gpu_place place, int epoch)
{
    uint64_t machine = machine_of(event, place);
    bl_gpu *gpu;
    switch (event->kind) {
    case BL_KERNEL_IDENTITY:
        return note_identity(fold, machine, event);
    case BL_KERNEL_SERIAL:
        gpu = find_gpu(fold, machine, event->pci);
        if (gpu != NULL && event->pci.is_known)
            copy_text(gpu->serial, sizeof gpu->serial, event->serial);
        return true;
    case BL_KERNEL_BOOT:
    case BL_KERNEL_LOAD:
        note_restart(fold, machine);
        return true;
    case BL_KERNEL_SXID:
        note_switch(fold, machine, event, place, epoch);
        return true;
    case BL_KERNEL_AER:
        note_port(fold, machine, event, place, epoch);
        return true;
    case BL_KERNEL_XID:
    case BL_KERNEL_OFF_BUS:
    case BL_KERNEL_RM_INIT:
    case BL_KERNEL_AMD_FAULT:
        gpu = get_gpu(fold, machine, event);
        if (gpu == NULL || fold_event(gpu, event, place, epoch))
            return gpu != NULL;
        fold->lacks_memory = true;
        return false;
    default:
        return true;
    }
}

bool bl_gpu_fold_add(bl_gpu_fold *fold, const bl_kernel_event *event, bl_gpu_place place)
{
    bl_gpu_file *file = file_at(fold, place.file);
    fold->n_verdicts = 0;
    if (file == NULL) {
        fold->n_lost++;
        return false;
    }
    int before = file->epoch;
    inherit_time(file, &place);
    follow_clock(file, event->kind, place);
    if (file->epoch != before && event->kind != BL_KERNEL_BOOT)
        note_restart(fold, machine_of(event, place));
    bool is_kept = add_event(fold, event, place, file->epoch);
    fold->n_lost += !is_kept;
    return is_kept;
}
