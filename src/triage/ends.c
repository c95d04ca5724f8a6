/* SPDX-License-Identifier: Apache-2.0 */
#include "triage/ends.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "file/json.h"

enum { LIMIT = 64 * 1024, WORLD = 4, SECONDARY = 5, BY_SIGNAL = 128 };

/* ---- files --------------------------------------------------------------------------------------------------------------- */

static char *path_of(const char *folder, int rank, const char *ending)
{
    bl_text path = {0};
    bl_text_format(&path, "%s/rank%d.%s", folder, rank, ending);
    char *made = path.failed ? NULL : bl_strdup(bl_text_get(&path));
    bl_text_fini(&path);
    return made;
}

static bool is_there(const char *folder, int rank, const char *ending)
{
    char *path = path_of(folder, rank, ending);
    bool there = path != NULL && access(path, F_OK) == 0;
    bl_free(path);
    return there;
}

/* The object in a file, NULL when there is none that can be read; *written: when it was, in seconds. */
static json_t *read_object(const char *folder, int rank, const char *ending, double *written)
{
    char *path = path_of(folder, rank, ending);
    struct stat status;
    json_t *json = NULL;
    bl_error unused = {0};
    *written = 0;
    if (path != NULL && stat(path, &status) == 0) {
        *written = (double)status.st_mtim.tv_sec + (double)status.st_mtim.tv_nsec / 1e9;
        (void)!bl_json_read(path, LIMIT, &json, &unused);
    }
    bl_free(path);
    if (json != NULL && !json_is_object(json)) {
        json_decref(json);
        json = NULL;
    }
    return json;
}

static int64_t number(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : otherwise;
}

static int small(const json_t *object, const char *key, int otherwise)
{
    int64_t value = number(object, key, otherwise);
    return value < INT32_MIN || value > INT32_MAX ? otherwise : (int)value;
}

static void words(const json_t *object, const char *key, char *out, size_t room)
{
    const char *text = json_string_value(json_object_get(object, key));
    snprintf(out, room, "%s", text != NULL ? text : "");
}

/* A moment with a fraction; one in whole seconds orders nothing, there the file's own moment is taken. */
static double moment(const json_t *object, const char *key, double written)
{
    const json_t *value = json_object_get(object, key);
    return json_is_real(value) ? json_real_value(value) : written;
}

static void read_end(const json_t *json, double written, bl_rank_end *r)
{
    r->has_ended = true;
    r->pid = small(json, "pid", 0);
    r->status = small(json, "status", -1);
    r->signal = small(json, "signal", 0);
    r->asked = small(json, "asked", 0);
    r->held = small(json, "stopped", 0);
    r->wall = moment(json, r->held != 0 ? "wall_stopped" : "wall_end", written);
    words(json, "host", r->host, sizeof r->host);
}

static void read_culprits(const json_t *list, bl_rank_end *r)
{
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n && r->n_culprits < BL_ENDS_CULPRITS; i++) {
        json_int_t rank = json_integer_value(json_array_get(list, i));
        if (json_is_integer(json_array_get(list, i)) && rank >= 0 && rank < INT32_MAX)
            r->culprit[r->n_culprits++] = (int)rank;
    }
}

static void read_status(const json_t *json, double written, bl_rank_end *r)
{
    char state[16];
    words(json, "state", state, sizeof state);
    r->state = strcmp(state, "failed") == 0   ? BL_RANK_FAILED
               : strcmp(state, "closed") == 0 ? BL_RANK_CLOSED
                                              : BL_RANK_RUNNING;
    words(json, "code", r->code, sizeof r->code);
    r->said_status = small(json, "status", 0);
    read_culprits(json_object_get(json, "culprits"), r);
    r->step = number(json, "step", -1);
    words(json, "phase", r->phase, sizeof r->phase);
    words(json, "why", r->why, sizeof r->why);
    words(json, "journal", r->journal, sizeof r->journal);
    if (r->host[0] == '\0')
        words(json, "host", r->host, sizeof r->host);
    if (r->state == BL_RANK_FAILED)
        r->wall_failed = moment(json, "wall", written);
}

static void read_rank(const char *folder, int rank, bl_rank_end *r)
{
    double written;
    *r = (bl_rank_end){.status = -1, .step = -1};
    r->is_up = is_there(folder, rank, "stdout.log");
    json_t *json = read_object(folder, rank, "end", &written);
    if (json != NULL)
        read_end(json, written, r);
    json_decref(json);
    json = read_object(folder, rank, "status", &written);
    if (json != NULL)
        read_status(json, written, r);
    json_decref(json);
}

/* ---- the verdict ------------------------------------------------------------------------------------------------------------- */

/* It waited for others; one that these name, too, when its library has heard so, did not. */
static bool only_felt(const bl_rank_end *r, int rank)
{
    bool felt = strcmp(r->code, "comm.deadline") == 0 || strcmp(r->code, "comm.peer") == 0;
    for (int i = 0; i < r->n_culprits; i++)
        felt = felt && r->culprit[i] != rank;
    return felt;
}

/* It told the others that it gives up. */
static bool gave_up(const bl_rank_end *r, int rank)
{
    return r->state == BL_RANK_FAILED && strcmp(r->code, "comm.peer") == 0 && !only_felt(r, rank);
}

/* It ended of itself, well, and left its group behind. */
static bool left_its_group(const bl_rank_end *r)
{
    return r->has_ended && r->asked == 0 && r->signal == 0 && r->status == 0 && r->state == BL_RANK_RUNNING;
}

static bl_rank_part part_of(const bl_rank_end *r, int rank)
{
    if (r->held != 0 || (r->has_ended && r->asked == 0 && gave_up(r, rank)))
        return BL_PART_PRIMARY;
    if (!r->is_up || !r->has_ended || (r->asked != 0 && r->n_blamed > 0 && !only_felt(r, rank)))
        return BL_PART_SUSPECT;
    if (r->signal == 0 && r->status == 0)
        return left_its_group(r) ? BL_PART_PRIMARY : r->state == BL_RANK_FAILED ? BL_PART_SECONDARY : BL_PART_FINE;
    if (r->asked != 0 || only_felt(r, rank) || (r->signal == 0 && r->status == SECONDARY))
        return BL_PART_SECONDARY;
    return BL_PART_PRIMARY;
}

/* When it failed: the library told the moment, or the process ended. */
static double moment_of(const bl_rank_end *r)
{
    return r->held == 0 && r->wall_failed > 0 && r->wall_failed < r->wall ? r->wall_failed : r->wall;
}

static void count_blame(bl_ends *ends)
{
    for (int i = 0; i < ends->n; i++)
        ends->rank[i].n_blamed = 0;
    for (int i = 0; i < ends->n; i++) {
        const bl_rank_end *r = &ends->rank[i];
        for (int k = 0; k < r->n_culprits; k++)
            if (r->culprit[k] < ends->n && r->culprit[k] != i)
                ends->rank[r->culprit[k]].n_blamed++;
    }
}

/* Whether a explains b rather than the other way round. */
static bool is_earlier(const bl_rank_end *a, const bl_rank_end *b)
{
    if (a->part != b->part)
        return a->part < b->part;
    if (a->part != BL_PART_PRIMARY && a->n_blamed != b->n_blamed)
        return a->n_blamed > b->n_blamed;
    if (a->part == BL_PART_SUSPECT && a->is_up != b->is_up)
        return !a->is_up;
    double when_a = moment_of(a), when_b = moment_of(b);
    return when_a > 0 && (when_b <= 0 || when_a < when_b);
}

static int status_of(const bl_rank_end *r)
{
    if (r->held != 0)
        return BY_SIGNAL + r->held;
    if (!r->is_up)
        return WORLD;
    if (r->signal != 0)
        return BY_SIGNAL + r->signal;
    return r->has_ended && r->status > 0 ? r->status : SECONDARY;
}

static void pick_first(bl_ends *ends)
{
    ends->first = -1;
    for (int i = 0; i < ends->n; i++) {
        const bl_rank_end *r = &ends->rank[i];
        if (r->part != BL_PART_FINE && (ends->first < 0 || is_earlier(r, &ends->rank[ends->first])))
            ends->first = i;
    }
}

/* Where all only felt something, and some gave up: those that were still there, and had to be ended, are what these waited
 * for, though no group was ever open that could have named them. */
static void suspect_the_rest(bl_ends *ends)
{
    bool gave_up = false;
    for (int i = 0; i < ends->n; i++)
        gave_up = gave_up || (ends->rank[i].asked == 0 && ends->rank[i].status == SECONDARY);
    for (int i = 0; i < ends->n && gave_up; i++)
        if (ends->rank[i].part == BL_PART_SECONDARY && ends->rank[i].asked != 0 && !only_felt(&ends->rank[i], i))
            ends->rank[i].part = BL_PART_SUSPECT;
}

void bl_ends_judge(bl_ends *ends)
{
    count_blame(ends);
    for (int i = 0; i < ends->n; i++)
        ends->rank[i].part = part_of(&ends->rank[i], i);
    pick_first(ends);
    if (ends->first >= 0 && ends->rank[ends->first].part == BL_PART_SECONDARY) {
        suspect_the_rest(ends);
        pick_first(ends);
    }
    ends->status = ends->first < 0 ? 0 : status_of(&ends->rank[ends->first]);
}

belay_code bl_ends_read(const char *folder, int n, bl_ends *out, bl_error *error)
{
    *out = (bl_ends){.n = n, .first = -1, .rank = bl_alloc(n, sizeof *out->rank)};
    if (out->rank == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to read how %d ranks ended", n);
    for (int i = 0; i < n; i++) {
        read_rank(folder, i, &out->rank[i]);
        out->n_up += out->rank[i].is_up;
        out->n_ended += out->rank[i].has_ended;
    }
    bl_ends_judge(out);
    return BELAY_OK;
}

void bl_ends_fini(bl_ends *ends)
{
    bl_free(ends->rank);
    *ends = (bl_ends){0};
}

/* ---- while they run ------------------------------------------------------------------------------------------------------------ */

bool bl_ends_has_failed(const char *folder, int rank)
{
    double written;
    char state[16] = "";
    json_t *json = read_object(folder, rank, "status", &written);
    if (json != NULL)
        words(json, "state", state, sizeof state);
    json_decref(json);
    return strcmp(state, "failed") == 0;
}

void bl_ends_count(const char *folder, int n, int *n_up, int *n_ended)
{
    *n_up = *n_ended = 0;
    for (int i = 0; i < n; i++) {
        *n_up += is_there(folder, i, "stdout.log");
        *n_ended += is_there(folder, i, "end");
    }
}

belay_code bl_ends_write(const char *folder, int rank, const bl_rank_end *end, double wall_start, bl_error *error)
{
    char *path = path_of(folder, rank, "end");
    json_t *json =
        json_pack("{s:i, s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:f}", "rank", rank, "host", end->host, "pid", end->pid,
                  "status", end->status, "signal", end->signal, "asked", end->asked, "stopped", end->held, "wall_start",
                  wall_start, end->held != 0 ? "wall_stopped" : "wall_end", end->wall);
    belay_code code = path != NULL && json != NULL
                          ? bl_json_write(path, json, error)
                          : bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to tell how rank %d ended", rank);
    json_decref(json);
    bl_free(path);
    return code;
}

void bl_ends_mark(const char *folder, const char *mark)
{
    bl_text path = {0};
    bl_text_format(&path, "%s/%s", folder, mark);
    int fd = path.failed ? -1 : open(bl_text_get(&path), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0)
        close(fd);
    bl_text_fini(&path);
}

bool bl_ends_is_marked(const char *folder, const char *mark)
{
    bl_text path = {0};
    bl_text_format(&path, "%s/%s", folder, mark);
    bool marked = !path.failed && access(bl_text_get(&path), F_OK) == 0;
    bl_text_fini(&path);
    return marked;
}
