/* SPDX-License-Identifier: Apache-2.0 */
/* Joining: which incident of a GPU belongs to an error that an application printed. */
#include "triage/gpu_parts.h"

#define SAME_PID_NEAR (60 * BL_SECOND) /* dmesg -T drifts */
#define NEAR          (5 * BL_SECOND)
#define FOREIGN_NEAR  (2 * BL_SECOND) /* of another pid, which may be the same process seen from a container */
#define ZONE_STEP     (900 * BL_SECOND)
#define ZONE_MOST     (14 * 3600 * BL_SECOND)

/* ---- kinds ---------------------------------------------------------------------------------------------------------- */

static bool sm_fits(bl_sm_reason reason, int64_t cuda_code)
{
    switch (reason) {
    case BL_SM_OUT_OF_RANGE:
        return cuda_code == 700 || cuda_code == 719;
    case BL_SM_NONE:
    case BL_SM_MULTIPLE:
    case BL_SM_OTHER:
        return cuda_code == 700 || (cuda_code >= 714 && cuda_code <= 719);
    default:
        return cuda_code == bl_sm_reason_cuda(reason) || cuda_code == 719;
    }
}

static bool application_fits(const bl_gpu_incident *incident, int64_t cuda_code)
{
    switch (incident->code) {
    case 13:
        return sm_fits(incident->sm_reason, cuda_code);
    case 31:
        return cuda_code == 700 || cuda_code == 719 || cuda_code == 226;
    case 8:
    case 109:
        return cuda_code == 702 || cuda_code == 719;
    case 108:
    case 137:
        return cuda_code == 226 || cuda_code == 700 || cuda_code == 719;
    default: /* a channel was lost, and with it the context */
        return cuda_code == 700 || cuda_code == 702 || cuda_code == 710 || cuda_code >= 714;
    }
}

bool bl_gpu_incident_fits(const bl_gpu_incident *incident, int64_t cuda_code)
{
    if (cuda_code == 0 || incident->class == BL_GPU_CLASS_HARDWARE || incident->class == BL_GPU_CLASS_DRIVER)
        return cuda_code != 710 || incident->class == BL_GPU_CLASS_APPLICATION;
    if (incident->class == BL_GPU_CLASS_LINK)
        return cuda_code == 220 || cuda_code == 226 || cuda_code == 999 || cuda_code == 719;
    return application_fits(incident, cuda_code);
}

/* ---- moments -------------------------------------------------------------------------------------------------------- */

typedef struct moment {
    bool is_known;
    int64_t distance; /* microseconds */
    bool has_zone;    /* with whole quarters of an hour between the clocks */
    int64_t zone_distance;
} moment;

static int64_t distance_of(int64_t difference) { return difference < 0 ? -difference : difference; }

/* Two clocks of which one or both tell no day. */
static moment of_day(int64_t a, int64_t b)
{
    int64_t apart = distance_of(a % BL_DAY - b % BL_DAY);
    return (moment){.is_known = true, .distance = apart > BL_DAY / 2 ? BL_DAY - apart : apart};
}

static moment moment_of(const bl_gpu_error *error, bl_gpu_place place)
{
    bool a_has_day = error->time_kind == BL_TIME_WALL, b_has_day = place.time_kind == BL_TIME_WALL;
    bool a_is_clock = a_has_day || error->time_kind == BL_TIME_OF_DAY;
    bool b_is_clock = b_has_day || place.time_kind == BL_TIME_OF_DAY;
    int64_t difference;
    if (a_is_clock && b_is_clock && !(a_has_day && b_has_day))
        return of_day(error->time, place.time);
    if (error->time_kind != place.time_kind || error->time_kind == BL_TIME_NONE ||
        __builtin_sub_overflow(error->time, place.time, &difference) || difference == INT64_MIN)
        return (moment){0};
    moment m = {.is_known = true, .distance = distance_of(difference)};
    int64_t rest = m.distance % ZONE_STEP;
    m.has_zone = a_has_day && m.distance <= ZONE_MOST + NEAR && m.distance > ZONE_STEP / 2;
    m.zone_distance = rest > ZONE_STEP / 2 ? ZONE_STEP - rest : rest;
    return m;
}

/* ---- the join ------------------------------------------------------------------------------------------------------- */

static bl_gpu_join join_same_pid(moment m)
{
    if (!m.is_known)
        return BL_GPU_JOIN_PID;
    if (m.distance <= SAME_PID_NEAR)
        return BL_GPU_JOIN_PID_AND_TIME;
    return m.has_zone && m.zone_distance <= SAME_PID_NEAR ? BL_GPU_JOIN_PID_AND_ZONE : BL_GPU_JOIN_NONE;
}

static bl_gpu_join join_of(const bl_gpu_error *error, const bl_gpu_incident *incident, bool fits)
{
    moment m = moment_of(error, incident->place);
    if (error->pid >= 0 && error->pid == incident->pid)
        return join_same_pid(m);
    bool differ = error->pid >= 0 && incident->pid >= 0;
    if (!fits)
        return BL_GPU_JOIN_NONE;
    if (!m.is_known)
        return differ ? BL_GPU_JOIN_NONE : BL_GPU_JOIN_ALONE;
    return m.distance <= (differ ? FOREIGN_NEAR : NEAR) ? BL_GPU_JOIN_TIME : BL_GPU_JOIN_NONE;
}

static bool is_better(const bl_gpu_match *best, bl_gpu_join join, bool fits, const bl_gpu_incident *incident)
{
    if (best->incident == NULL || join != best->join)
        return join > best->join;
    if (fits != best->kind_fits)
        return fits;
    return bl_gpu_compare(incident, best->incident) < 0;
}

/* How many incidents the best join holds for, and whether of more than one GPU. */
static void count_rivals(const bl_gpu_fold *fold, const bl_gpu_error *error, bl_gpu_match *best)
{
    int64_t n = 0;
    for (int v = 0; v < fold->n_verdicts; v++)
        for (int64_t i = 0; i < fold->verdicts[v].n_kept; i++) {
            const bl_gpu_incident *incident = fold->verdicts[v].incidents[i];
            bool fits = bl_gpu_incident_fits(incident, error->cuda_code);
            if (fits != best->kind_fits || join_of(error, incident, fits) != best->join)
                continue;
            n++;
            best->is_ambiguous = best->is_ambiguous || v != best->verdict;
        }
    if (best->join == BL_GPU_JOIN_ALONE && n > 1)
        *best = (bl_gpu_match){.verdict = -1};
}

bl_gpu_match bl_gpu_find(const bl_gpu_fold *fold, const bl_gpu_error *error)
{
    bl_gpu_match best = {.verdict = -1};
    for (int v = 0; v < fold->n_verdicts; v++)
        for (int64_t i = 0; i < fold->verdicts[v].n_kept; i++) {
            const bl_gpu_incident *incident = fold->verdicts[v].incidents[i];
            bool fits = bl_gpu_incident_fits(incident, error->cuda_code);
            bl_gpu_join join = join_of(error, incident, fits);
            if (join == BL_GPU_JOIN_NONE || !is_better(&best, join, fits, incident))
                continue;
            best = (bl_gpu_match){.join = join, .verdict = v, .incident = incident, .kind_fits = fits};
            best.pids_differ = error->pid >= 0 && incident->pid >= 0 && error->pid != incident->pid;
        }
    if (best.incident != NULL)
        count_rivals(fold, error, &best);
    return best;
}
