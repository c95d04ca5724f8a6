/* SPDX-License-Identifier: Apache-2.0 */
/* Judging: from the incidents of a GPU to one verdict about it. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "triage/gpu_repeat.h"

#define WINDOW     (30 * BL_DAY)
#define LINK_NEAR  (10 * BL_SECOND)
#define PORT_FIRST (60 * BL_SECOND) /* a port tells of an error this long before its GPU is missed */
#define PORT_AFTER (5 * BL_SECOND)

/* The records of one GPU, and its incidents in order. */
typedef struct group {
    const bl_gpu *records[BL_GPU_MOST];
    int n_records;
    const bl_gpu_incident **incidents;
    int64_t n_incidents;
    int64_t n_all;
    bl_gpu_tally tally; /* of what can repeat, since the last reset */
} group;

typedef struct judging {
    bl_gpu_fold *fold;
    const bl_gpu_options *options;
    group *groups;
    int n_groups;
} judging;

/* ---- groups --------------------------------------------------------------------------------------------------------- */

static bool is_of_group(const group *g, const bl_gpu *gpu)
{
    return gpu->uuid[0] != '\0' && strcmp(g->records[0]->uuid, gpu->uuid) == 0;
}

static void make_groups(judging *j)
{
    for (int i = 0; i < j->fold->n_gpus; i++) {
        const bl_gpu *gpu = &j->fold->gpus[i];
        int at = 0;
        if (gpu->n_incidents == 0 && gpu->action == BL_N_RECOVERIES)
            continue;
        while (at < j->n_groups && !is_of_group(&j->groups[at], gpu))
            at++;
        j->n_groups += at == j->n_groups;
        j->groups[at].records[j->groups[at].n_records++] = gpu;
    }
}

/* The same failure, told by two logs of one machine. */
static bool is_told(const group *g, int64_t n_before, const bl_gpu_incident *incident)
{
    for (int64_t i = 0; i < n_before; i++) {
        const bl_gpu_incident *known = g->incidents[i];
        int64_t between;
        if (known->mark != incident->mark || known->place.file == incident->place.file)
            continue;
        if (!bl_gpu_between(known->place, known->epoch, incident->place, incident->epoch, &between) ||
            (between >= -2 * BL_SECOND && between <= 2 * BL_SECOND))
            return true;
    }
    return false;
}

static int compare(const void *a, const void *b)
{
    return bl_gpu_compare(*(const bl_gpu_incident *const *)a, *(const bl_gpu_incident *const *)b);
}

static void gather(group *g)
{
    for (int i = 0; i < g->n_records; i++) {
        const bl_gpu *gpu = g->records[i];
        int64_t n_before = g->n_incidents;
        g->n_all += gpu->n_incidents;
        for (int64_t k = 0; k < gpu->n_kept; k++) {
            if (is_told(g, n_before, &gpu->incidents[k]))
                g->n_all--;
            else
                g->incidents[g->n_incidents++] = &gpu->incidents[k];
        }
    }
    qsort((void *)g->incidents, (size_t)g->n_incidents, sizeof(const bl_gpu_incident *), compare);
}

static bool gather_all(judging *j)
{
    int64_t n = 0;
    for (int i = 0; i < j->fold->n_gpus; i++)
        n += j->fold->gpus[i].n_kept;
    if (!bl_grow((void *)&j->fold->order, &j->fold->order_capacity, n + 1, sizeof(const bl_gpu_incident *)))
        return false;
    const bl_gpu_incident **next = j->fold->order;
    for (int i = 0; i < j->n_groups; i++) {
        j->groups[i].incidents = next;
        gather(&j->groups[i]);
        next += j->groups[i].n_incidents;
    }
    return true;
}

/* ---- what counts against the hardware --------------------------------------------------------------------------- */

static const char *identity_of(const judging *j, const group *g, char identity[BL_HISTORY_GPU])
{
    char words[BL_PCI_WORDS];
    const bl_gpu *gpu = g->records[0];
    const char *host = gpu->host[0] != '\0' ? gpu->host : j->options->host != NULL ? j->options->host : "";
    bl_history_identity(gpu->uuid, host, bl_pci_describe(gpu->pci, words), identity);
    return identity;
}

/* Inside the window that ends with the last incident; times that cannot be compared are inside. */
static bool is_recent(const judging *j, const group *g, const bl_gpu_incident *incident)
{
    const bl_gpu_incident *last = g->incidents[g->n_incidents - 1];
    int64_t window = j->options->window > 0 ? j->options->window : WINDOW;
    int64_t between;
    return !bl_gpu_between(incident->place, incident->epoch, last->place, last->epoch, &between) || between <= window;
}

static bool can_count(const judging *j, const group *g, const bl_gpu_incident *incident)
{
    return incident != NULL && incident->class == BL_GPU_CLASS_APPLICATION && !incident->is_before_reset &&
           bl_gpu_code_can_repeat(incident->code) && is_recent(j, g, incident);
}

/* A program that fails as often elsewhere brings its fault along. */
static bool fails_elsewhere(const judging *j, const group *g, const char *name)
{
    int64_t here = bl_gpu_tally_program(&g->tally, name);
    for (int i = 0; here > 0 && i < j->n_groups; i++)
        if (&j->groups[i] != g && 2 * bl_gpu_tally_program(&j->groups[i].tally, name) >= here)
            return true;
    return false;
}

static bool is_in_log(const group *g, uint64_t mark)
{
    for (int64_t i = 0; i < g->n_incidents; i++) {
        const bl_gpu_incident *incident = g->incidents[i];
        if (bl_history_mark(incident->text, (int64_t)strlen(incident->text), incident->place.time) == mark)
            return true;
    }
    return false;
}

static void add_past(const judging *j, const group *g, bl_gpu_tally *tally)
{
    char identity[BL_HISTORY_GPU];
    int n = 0;
    int64_t window = (j->options->window > 0 ? j->options->window : WINDOW) / BL_SECOND;
    if (j->options->history == NULL)
        return;
    const bl_history_event *events = bl_history_get(j->options->history, identity_of(j, g, identity), &n);
    int first = 0;
    for (int i = 0; i < n; i++)
        if (events[i].code == 0)
            first = i + 1;
    for (int i = first; i < n; i++)
        if (events[i].time >= events[n - 1].time - window && bl_gpu_code_can_repeat(events[i].code) &&
            !is_in_log(g, events[i].mark) && !fails_elsewhere(j, g, events[i].program))
            bl_gpu_tally_add_past(tally, &events[i]);
}

/* The incidents that may speak against the hardware. */
static void tally_repeats(const judging *j, const group *g, bl_gpu_tally *tally)
{
    *tally = (bl_gpu_tally){0};
    for (int64_t i = 0; i < g->n_incidents; i++)
        if (can_count(j, g, g->incidents[i]) && !fails_elsewhere(j, g, g->incidents[i]->name))
            bl_gpu_tally_add(tally, g->incidents[i]);
    add_past(j, g, tally);
}

/* The tally of those alone that name this part. */
static void tally_part(const judging *j, const group *g, bl_gpu_part part, bl_gpu_tally *tally)
{
    *tally = (bl_gpu_tally){0};
    for (int64_t i = 0; i < g->n_incidents; i++) {
        const bl_gpu_incident *incident = g->incidents[i];
        if (incident->gpc == part.gpc && incident->tpc == part.tpc && can_count(j, g, incident) &&
            !fails_elsewhere(j, g, incident->name))
            bl_gpu_tally_add(tally, incident);
    }
}

/* Whether the other GPUs fail far less often. */
static bool is_singular(const judging *j, const group *g, const bl_gpu_tally *tally)
{
    for (int i = 0; i < j->n_groups; i++)
        if (&j->groups[i] != g && 2 * j->groups[i].tally.n >= tally->n)
            return false;
    return true;
}

/* Many programs on one GPU, while the others are clean. */
static bool is_repeated(const judging *j, const group *g, const bl_gpu_tally *tally)
{
    bool has_many = (tally->n_programs >= 3 && tally->n_pids >= 3) || (tally->n_programs >= 2 && tally->n_pids >= 4);
    return has_many && is_singular(j, g, tally);
}

/* Several programs on one TPC; a single one would need many runs over days, since the first block of a small kernel
 * always lands on the same TPC. */
static bool is_on_one_part(const judging *j, const group *g, const bl_gpu_tally *tally)
{
    bl_gpu_part part = bl_gpu_tally_part(tally);
    if (part.n < 2 || 4 * part.n < 3 * tally->n_with_tpc)
        return false;
    bl_gpu_tally on_part;
    tally_part(j, g, part, &on_part);
    bool is_within_a_day = !on_part.has_span || on_part.span <= BL_DAY;
    if (on_part.n_programs >= 2 && on_part.n_pids >= 2)
        return on_part.n > 2 || is_within_a_day;
    return on_part.n_pids >= 4 && on_part.has_span && on_part.span >= BL_DAY;
}

static bool is_suspect(const judging *j, const group *g, const bl_gpu_tally *tally)
{
    return is_repeated(j, g, tally) || is_on_one_part(j, g, tally);
}

/* ---- the origin ------------------------------------------------------------------------------------------------------ */

static int weight_of(const bl_gpu_incident *incident)
{
    bool settles = bl_gpu_code_settles(incident->heaviest) || incident->fault_type == BL_MMU_POISONED;
    return 2 * bl_gpu_weight(incident->class, 0) + (settles ? 1 : 0);
}

/* The first of the worst; one that a reset has not cured comes before one that it has. */
static const bl_gpu_incident *find_origin(const group *g)
{
    const bl_gpu_incident *origin = NULL;
    for (int64_t i = 0; i < g->n_incidents; i++) {
        const bl_gpu_incident *incident = g->incidents[i];
        int more = origin == NULL ? 1 : weight_of(incident) - weight_of(origin);
        if (more > 0 || (more == 0 && origin->is_before_reset && !incident->is_before_reset))
            origin = incident;
    }
    return origin;
}

static bool has_fatal_link(const bl_gpu_verdict *v)
{
    const bl_gpu_incident *origin = v->origin;
    return origin->severity == BL_KERNEL_FATAL ||
           (v->link_partner.is_known && v->link_partner.severity == BL_KERNEL_FATAL) ||
           bl_recovery_severity(v->action) >= BL_XID_SEVERITY_GPU;
}

static bool is_settled(const bl_gpu_verdict *v)
{
    if (v->class == BL_GPU_CLASS_LINK)
        return has_fatal_link(v);
    return v->class == BL_GPU_CLASS_HARDWARE &&
           (bl_gpu_code_settles(v->origin->heaviest) || v->origin->fault_type == BL_MMU_POISONED);
}

static bl_xid_severity severity_of_incident(const bl_gpu_incident *incident)
{
    const bl_xid_row *row = bl_xid_find(incident->heaviest);
    bool needs_reset =
        incident->needs_reset == 1 || incident->fault_type == BL_MMU_POISONED || incident->kind == BL_KERNEL_RM_INIT;
    bl_xid_severity severity = row == NULL ? BL_XID_SEVERITY_UNKNOWN : row->severity;
    return needs_reset && severity < BL_XID_SEVERITY_GPU ? BL_XID_SEVERITY_GPU : severity;
}

/* An action that the driver prints comes before any table of ours. */
static bl_xid_severity severity_of(const group *g, const bl_gpu_verdict *v)
{
    bl_xid_severity most = v->origin == NULL ? BL_XID_SEVERITY_UNKNOWN : severity_of_incident(v->origin);
    if (v->action != BL_N_RECOVERIES && !v->action_is_withdrawn)
        return bl_recovery_severity(v->action);
    if (v->class == BL_GPU_CLASS_SUSPECT)
        return BL_XID_SEVERITY_NODE;
    for (int64_t i = 0; i < g->n_incidents; i++)
        if (g->incidents[i]->class == v->class && !g->incidents[i]->is_before_reset &&
            severity_of_incident(g->incidents[i]) > most)
            most = severity_of_incident(g->incidents[i]);
    return most;
}

/* ---- what stands beside ---------------------------------------------------------------------------------------------- */

/* How far two lines are apart, when they can belong together: by their clocks, else in one file. */
static bool is_beside(bl_gpu_place a, int epoch_a, bl_gpu_place b, int epoch_b, int64_t before, int64_t after,
                      int64_t *distance)
{
    int64_t between;
    if (bl_gpu_between(a, epoch_a, b, epoch_b, &between)) {
        *distance = between < 0 ? -between : between;
        return between >= -before && between <= after;
    }
    *distance = a.line < b.line ? b.line - a.line : a.line - b.line;
    return a.file == b.file && epoch_a == epoch_b && (a.time_kind == BL_TIME_NONE || b.time_kind == BL_TIME_NONE);
}

/* The switch that tells of the same link: fatal before others, then the nearest. */
static void join_switch(judging *j, const group *g, bl_gpu_verdict *v)
{
    bl_gpu_fold *fold = j->fold;
    int best = -1;
    int64_t best_distance = 0, distance;
    for (int i = 0; i < fold->n_switches; i++) {
        const bl_gpu_switch *s = &fold->switches[i];
        if (s->machine != g->records[0]->machine || !is_beside(v->origin->place, v->origin->epoch, s->place,
                                                               fold->switch_epochs[i], LINK_NEAR, LINK_NEAR, &distance))
            continue;
        bool is_better = best < 0 || s->severity > fold->switches[best].severity ||
                         (s->severity == fold->switches[best].severity && distance < best_distance);
        if (is_better) {
            best = i;
            best_distance = distance;
        }
    }
    if (best < 0)
        return;
    fold->switches[best].is_joined = true;
    v->link_partner = fold->switches[best];
}

static const bl_gpu_port *find_port(const judging *j, const group *g, const bl_gpu_incident *origin)
{
    const bl_gpu_port *best = NULL;
    int64_t best_distance = 0, distance;
    int64_t n = bl_min_i64(j->fold->n_ports, BL_GPU_PORTS);
    for (int64_t i = 0; i < n; i++) {
        const bl_gpu_port *port = &j->fold->ports[i];
        if (port->machine != g->records[0]->machine ||
            !is_beside(origin->place, origin->epoch, port->place, port->epoch, PORT_FIRST, PORT_AFTER, &distance))
            continue;
        bool is_better =
            best == NULL || port->severity > best->severity ||
            (port->severity == best->severity &&
             (distance < best_distance || (distance == best_distance && port->place.line < best->place.line)));
        if (is_better) {
            best = port;
            best_distance = distance;
        }
    }
    return best;
}

static bool can_be_pcie(const bl_gpu_incident *origin)
{
    return origin->heaviest == 79 || origin->heaviest == 46 || origin->heaviest == 143 || origin->heaviest == 167 ||
           origin->kind == BL_KERNEL_RM_INIT;
}

/* ---- lines ------------------------------------------------------------------------------------------------------------ */

static bool has_line(const bl_gpu_line *lines, int n, bl_gpu_place place)
{
    for (int i = 0; i < n; i++)
        if (lines[i].place.file == place.file && lines[i].place.line == place.line)
            return true;
    return false;
}

static void add_line(bl_gpu_verdict *v, bl_gpu_role role, int64_t code, bl_gpu_place place)
{
    if (v->n_lines < BL_GPU_EVIDENCE && !has_line(v->lines, v->n_lines, place))
        v->lines[v->n_lines++] = (bl_gpu_line){role, code, place};
}

static void add_echoes(bl_gpu_verdict *v, const bl_gpu_incident *incident)
{
    v->n_echoes_all += incident->n_echoes_all;
    for (int i = 0; i < incident->n_echoes; i++)
        if (v->n_echoes < BL_GPU_EVIDENCE && !has_line(v->echoes, v->n_echoes, incident->echoes[i].place))
            v->echoes[v->n_echoes++] = incident->echoes[i];
}

static bool is_counted(const judging *j, const group *g, const bl_gpu_verdict *v, const bl_gpu_incident *incident)
{
    if (incident == NULL) /* never: the list was gathered whole */
        return false;
    if (v->class == BL_GPU_CLASS_SUSPECT)
        return can_count(j, g, incident) && !fails_elsewhere(j, g, incident->name);
    return incident->class == v->class;
}

static void add_lines(const judging *j, const group *g, bl_gpu_verdict *v)
{
    const bl_gpu_incident *origin = v->origin;
    bool is_one = v->decisive.file == origin->place.file && v->decisive.line == origin->place.line;
    add_line(v, is_one ? BL_GPU_ROLE_ORIGIN : BL_GPU_ROLE_COMPANION, v->decisive_code, v->decisive);
    add_line(v, BL_GPU_ROLE_ORIGIN, origin->code, origin->place);
    if (v->action != BL_N_RECOVERIES && !v->action_is_withdrawn)
        add_line(v, BL_GPU_ROLE_ACTION, 154, v->action_place);
    if (v->link_partner.is_known)
        add_line(v, BL_GPU_ROLE_SWITCH, v->link_partner.code, v->link_partner.place);
    for (int i = 0; i < origin->n_beside; i++)
        add_line(v, origin->beside[i].role, origin->beside[i].code, origin->beside[i].place);
    for (int64_t i = 0; i < g->n_incidents; i++)
        if (is_counted(j, g, v, g->incidents[i]))
            add_line(v, BL_GPU_ROLE_REPEAT, g->incidents[i]->code, g->incidents[i]->place);
    add_echoes(v, origin);
    for (int64_t i = 0; i < g->n_incidents; i++)
        if (g->incidents[i] != origin)
            add_echoes(v, g->incidents[i]);
}

/* ---- a verdict -------------------------------------------------------------------------------------------------------- */

static void note_codes(const group *g, bl_gpu_verdict *v)
{
    for (int64_t i = 0; i < g->n_incidents; i++)
        for (int k = 0; k < g->incidents[i]->n_codes; k++) {
            int at = 0;
            while (at < v->n_codes && v->codes[at] != g->incidents[i]->codes[k])
                at++;
            if (at == v->n_codes && at < BL_GPU_CODES)
                v->codes[v->n_codes++] = g->incidents[i]->codes[k];
        }
}

static void note_records(const group *g, bl_gpu_verdict *v)
{
    v->action = BL_N_RECOVERIES;
    for (int i = 0; i < g->n_records; i++) {
        const bl_gpu *gpu = g->records[i];
        v->is_pending_repair = v->is_pending_repair || gpu->is_pending_repair;
        if (gpu->action != BL_N_RECOVERIES) {
            v->action = gpu->action;
            v->action_place = gpu->action_place;
            v->action_is_withdrawn = gpu->action_is_withdrawn;
        }
        if (v->serial[0] == '\0')
            memcpy(v->serial, gpu->serial, sizeof v->serial);
        if (v->host[0] == '\0')
            memcpy(v->host, gpu->host, sizeof v->host);
    }
    v->pci = g->records[g->n_records - 1]->pci;
    memcpy(v->uuid, g->records[0]->uuid, sizeof v->uuid);
}

static void note_tally(bl_gpu_verdict *v, const bl_gpu_tally *tally)
{
    bl_gpu_part part = bl_gpu_tally_part(tally);
    v->n_counted = tally->n;
    v->n_from_history = tally->n_from_history;
    v->n_pids = tally->n_pids;
    v->n_programs = tally->n_programs;
    v->gpc = part.gpc;
    v->tpc = part.tpc;
    v->n_on_tpc = part.n;
    v->n_with_tpc = tally->n_with_tpc;
    v->has_span = tally->has_span && tally->first != NULL;
    if (v->has_span) {
        v->first_time = tally->first->place.time;
        v->last_time = tally->last->place.time;
    }
}

static void tally_class(const judging *j, const group *g, const bl_gpu_verdict *v, bl_gpu_tally *tally)
{
    *tally = (bl_gpu_tally){0};
    for (int64_t i = 0; i < g->n_incidents; i++)
        if (is_counted(j, g, v, g->incidents[i]))
            bl_gpu_tally_add(tally, g->incidents[i]);
}

/* The first that counts against the hardware. */
static const bl_gpu_incident *first_counted(const judging *j, const group *g, const bl_gpu_verdict *v)
{
    for (int64_t i = 0; i < g->n_incidents; i++)
        if (is_counted(j, g, v, g->incidents[i]))
            return g->incidents[i];
    return v->origin;
}

static void judge_origin(judging *j, const group *g, bl_gpu_verdict *v)
{
    v->decisive = v->origin->heaviest_place;
    v->decisive_code = v->origin->heaviest;
    if (v->class == BL_GPU_CLASS_LINK)
        join_switch(j, g, v);
    const bl_gpu_port *port = can_be_pcie(v->origin) ? find_port(j, g, v->origin) : NULL;
    v->is_settled = is_settled(v);
    add_lines(j, g, v);
    if (port == NULL)
        return;
    v->upstream = port->pci;
    v->upstream_severity = port->severity;
    add_line(v, BL_GPU_ROLE_CONTEXT, 0, port->place);
}

static void judge(judging *j, const group *g, bl_gpu_verdict *v)
{
    bl_gpu_tally tally;
    *v = (bl_gpu_verdict){.n_incidents = g->n_all, .incidents = g->incidents, .n_kept = g->n_incidents};
    v->n_only_counted = g->n_all - g->n_incidents;
    note_records(g, v);
    note_codes(g, v);
    v->origin = find_origin(g);
    v->class = v->origin == NULL ? BL_GPU_CLASS_NONE : v->origin->class;
    tally_repeats(j, g, &tally);
    if (bl_gpu_weight(v->class, 0) < bl_gpu_weight(BL_GPU_CLASS_SUSPECT, 0) && is_suspect(j, g, &tally)) {
        v->class = BL_GPU_CLASS_SUSPECT;
        v->origin = first_counted(j, g, v);
    } else {
        tally_class(j, g, v, &tally);
    }
    note_tally(v, &tally);
    if (v->origin != NULL)
        judge_origin(j, g, v);
    v->severity = severity_of(g, v);
}

/* Worst first; of two alike the one that began first. */
static int compare_verdicts(const void *left, const void *right)
{
    const bl_gpu_verdict *a = left, *b = right;
    int order = bl_gpu_weight(b->class, b->decisive_code) - bl_gpu_weight(a->class, a->decisive_code);
    if (order == 0 && a->origin != NULL && b->origin != NULL)
        order = bl_gpu_compare(a->origin, b->origin);
    return order;
}

static int judge_groups(judging *j)
{
    bl_gpu_fold *fold = j->fold;
    make_groups(j);
    if (!gather_all(j))
        return -1;
    for (int i = 0; i < j->n_groups; i++) {
        group *g = &j->groups[i];
        for (int64_t k = 0; k < g->n_incidents; k++)
            if (can_count(j, g, g->incidents[k]))
                bl_gpu_tally_add(&g->tally, g->incidents[k]);
    }
    for (int i = 0; i < fold->n_switches; i++)
        fold->switches[i].is_joined = false;
    for (int i = 0; i < j->n_groups; i++)
        judge(j, &j->groups[i], &fold->verdicts[i]);
    fold->n_verdicts = j->n_groups;
    qsort(fold->verdicts, (size_t)fold->n_verdicts, sizeof *fold->verdicts, compare_verdicts);
    return fold->n_verdicts;
}

int bl_gpu_judge(bl_gpu_fold *fold, const bl_gpu_options *options, const bl_gpu_verdict **out)
{
    static const bl_gpu_options defaults = {0};
    judging j = {.fold = fold, .options = options != NULL ? options : &defaults};
    *out = fold->verdicts;
    fold->n_verdicts = 0;
    j.groups = bl_alloc(BL_GPU_MOST, sizeof *j.groups);
    int n = j.groups == NULL ? -1 : judge_groups(&j);
    bl_free(j.groups);
    return n;
}

/* ---- remembering ------------------------------------------------------------------------------------------------------ */

static int64_t seconds_of(const bl_gpu_incident *incident, int64_t boot, int64_t now)
{
    int64_t time;
    if (incident->place.time_kind == BL_TIME_WALL)
        return incident->place.time / BL_SECOND;
    if (incident->place.time_kind == BL_TIME_BOOT && boot > 0 && bl_checked_add(boot, incident->place.time, &time))
        return time / BL_SECOND;
    return now;
}

static bl_history_event past_of(const bl_gpu_incident *incident, int64_t time)
{
    bl_history_event event = {.time = time,
                              .code = incident->code,
                              .pid = incident->pid,
                              .gpc = incident->sm_reason != BL_SM_NONE ? incident->gpc : -1,
                              .tpc = incident->sm_reason != BL_SM_NONE ? incident->tpc : -1};
    event.mark = bl_history_mark(incident->text, (int64_t)strlen(incident->text), incident->place.time);
    _Static_assert(sizeof event.program == sizeof incident->name, "a program's name fits");
    memcpy(event.program, incident->name, sizeof event.program);
    return event;
}

belay_code bl_gpu_remember(const bl_gpu_fold *fold, bl_history *history, const char *host, int64_t boot, int64_t now,
                           bl_error *error)
{
    for (int i = 0; i < fold->n_gpus; i++) {
        const bl_gpu *gpu = &fold->gpus[i];
        char identity[BL_HISTORY_GPU], words[BL_PCI_WORDS];
        const char *name = gpu->host[0] != '\0' ? gpu->host : host != NULL ? host : "";
        bl_history_identity(gpu->uuid, name, bl_pci_describe(gpu->pci, words), identity);
        for (int64_t k = 0; k < gpu->n_kept; k++) {
            const bl_gpu_incident *incident = &gpu->incidents[k];
            if (incident->code <= 0 || bl_gpu_code_is_echo(incident->code) || incident->code == 154)
                continue;
            bl_history_event event = past_of(incident, seconds_of(incident, boot, now));
            TRY(bl_history_add(history, identity, &event, error));
        }
    }
    return BELAY_OK;
}
