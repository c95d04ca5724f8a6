/* SPDX-License-Identifier: Apache-2.0 */
/* run.json: all that is known of a run and its attempts, replaced atomically before the first and after each. */
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/run.h"
#include "proc/child.h"

/* "2026-04-08T10:15:20Z". */
static void put_moment(bl_run *run, json_t *object, const char *key, int64_t wall)
{
    char words[32];
    struct tm parts;
    time_t moment = (time_t)wall;
    bool known = gmtime_r(&moment, &parts) != NULL && strftime(words, sizeof words, "%Y-%m-%dT%H:%M:%SZ", &parts) > 0;
    bl_cli_put_text(run->cli, object, key, known ? words : NULL);
}

static void append(bl_run *run, json_t *list, json_t *value)
{
    if (json_array_append_new(list, value) != 0)
        run->cli->lacks_memory = true;
}

static json_t *texts(bl_run *run, const char *const *words, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        append(run, list, bl_json_text(words[i]));
    return list;
}

/* On one line, as explain reads it. */
static void put_command_line(bl_run *run)
{
    bl_text line = {0};
    for (int i = 0; i < run->n_words; i++)
        bl_text_format(&line, "%s%s", i > 0 ? " " : "", run->words[i]);
    for (int64_t i = 0; i < line.n_bytes; i++)
        line.bytes[i] = (char)(line.bytes[i] == '\n' || line.bytes[i] == '\t' ? ' ' : line.bytes[i]);
    bl_cli_put(run->cli, run->record, "command_line", bl_json_text(bl_text_get(&line)));
    bl_text_fini(&line);
}

belay_code bl_run_record_begin(bl_run *run, bl_error *error)
{
    bl_cli *cli = run->cli;
    char buffer[4096];
    run->record = json_object();
    if (run->record == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the record of the run");
    bl_cli_put_text(cli, run->record, "kind", "belay run");
    bl_cli_put_text(cli, run->record, "version", BELAY_VERSION);
    bl_cli_put(cli, run->record, "command", texts(run, (const char *const *)run->words, run->n_words));
    put_command_line(run);
    bl_cli_put_text(cli, run->record, "folder", getcwd(buffer, sizeof buffer));
    buffer[0] = '\0';
    (void)gethostname(buffer, 256);
    buffer[255] = '\0';
    bl_cli_put_text(cli, run->record, "host", buffer);
    put_moment(run, run->record, "started", bl_clock_wall());
    bl_cli_put(cli, run->record, "ended", json_null());
    bl_cli_put_int(cli, run->record, "n_ranks", run->options->n > 0 ? run->options->n : 1);
    bl_cli_put(cli, run->record, "attempts", json_array());
    return BELAY_OK;
}

static json_t *describe_stream(bl_run *run, const bl_supervise_options *o, int rank, int stream,
                               const bl_capture_facts *facts)
{
    json_t *object = json_object();
    bl_text stem = {0};
    char reason[128];
    bl_rank_stem(o, rank, stream, &stem);
    bl_text_add(&stem, ".log");
    bl_cli_put_text(run->cli, object, "file", bl_text_get(&stem) + strlen(run->folder) + 1);
    bl_cli_put_int(run->cli, object, "n_bytes", facts->n_bytes);
    bl_cli_put_int(run->cli, object, "n_dropped", facts->n_dropped);
    bl_cli_put_int(run->cli, object, "n_parts", facts->n_parts + 1);
    bl_cli_put_text(run->cli, object, "failure", facts->failure != 0 ? bl_error_errno(facts->failure, reason) : NULL);
    bl_text_fini(&stem);
    return object;
}

static void put_end(bl_run *run, json_t *object, const bl_rank_facts *r, int64_t since)
{
    bl_cli *cli = run->cli;
    char name[24];
    bl_core core = {0};
    bl_cli_put_real(cli, object, "seconds", r->ended != 0 ? (double)(r->ended - r->started) / 1e9 : -1);
    bl_cli_put(cli, object, "exit_status", r->ended != 0 && r->signal == 0 ? json_integer(r->status) : json_null());
    bl_cli_put_text(cli, object, "signal", r->signal != 0 ? bl_signal_name(r->signal, name) : NULL);
    bl_cli_put_text(cli, object, "signal_sent_before", r->asked != 0 ? bl_signal_name(r->asked, name) : NULL);
    bl_cli_put(cli, object, "core_dumped", json_boolean(r->core_dumped));
    if (r->core_dumped)
        bl_core_find(r->pid, run->argv[0], since, &core);
    bl_cli_put_text(cli, object, "core_file", core.where[0] != '\0' ? core.where : NULL);
    bl_cli_put(cli, object, "killed_for_memory", json_boolean(r->out_of_memory));
    bl_cli_put_int(cli, object, "n_stops", r->n_stops);
    bl_cli_put_real(cli, object, "cpu_user_seconds", (double)r->cpu_user / 1e6);
    bl_cli_put_real(cli, object, "cpu_system_seconds", (double)r->cpu_system / 1e6);
    bl_cli_put_int(cli, object, "memory_peak_bytes", r->memory);
}

static json_t *describe_rank(bl_run *run, const bl_supervise_options *o, const bl_supervise *s, int rank)
{
    const bl_rank_facts *r = bl_supervise_rank(s, rank);
    json_t *object = json_object();
    bl_cli_put_int(run->cli, object, "rank", rank);
    bl_cli_put_int(run->cli, object, "pid", r->pid);
    put_end(run, object, r, bl_supervise_facts_get(s)->started_wall);
    bl_cli_put(run->cli, object, "stdout", describe_stream(run, o, rank, 0, &r->stream[0]));
    bl_cli_put(run->cli, object, "stderr", describe_stream(run, o, rank, 1, &r->stream[1]));
    return object;
}

static json_t *describe_kernel_log(bl_run *run, const bl_kernel_log *log)
{
    json_t *object = json_object();
    bool is_kept = log->why[0] == '\0';
    bl_text file = {0};
    bl_text_format(&file, "attempt_%d/kernel.log", run->attempt);
    bl_cli_put_text(run->cli, object, "file", is_kept ? bl_text_get(&file) : NULL);
    bl_cli_put_text(run->cli, object, "why_not", is_kept ? NULL : log->why);
    bl_cli_put_int(run->cli, object, "n_lines", log->n_lines);
    bl_cli_put(run->cli, object, "records_were_lost", json_boolean(log->lost));
    bl_cli_put_int(run->cli, object, "since_boot_microseconds", log->since);
    bl_text_fini(&file);
    return object;
}

static void put_count(bl_run *run, json_t *object, const char *key, int64_t n)
{
    bl_cli_put(run->cli, object, key, n < 0 ? json_null() : json_integer(n));
}

/* Processes of the run that the kernel's log names as killed. */
static json_t *describe_kills(bl_run *run, const bl_kernel_log *log)
{
    json_t *list = json_array();
    for (int i = 0; i < log->n_killed; i++) {
        if (!log->is_ours[i])
            continue;
        json_t *object = json_object();
        bl_cli_put_int(run->cli, object, "killed_pid", log->killed[i]);
        append(run, list, object);
    }
    return list;
}

static void put_machine(bl_run *run, json_t *object, const bl_supervise_facts *f)
{
    bl_core core;
    bl_core_find(0, "", 0, &core);
    put_count(run, object, "memory_kills_in_group", f->kills.in_group);
    put_count(run, object, "memory_kills_in_machine", f->kills.in_machine);
    bl_cli_put(run->cli, object, "memory_kills", describe_kills(run, f->kernel_log));
    bl_cli_put(run->cli, object, "own_process_numbers", json_boolean(bl_machine_counts_otherwise()));
    bl_cli_put_text(run->cli, object, "core_pattern", core.pattern);
    bl_cli_put(run->cli, object, "kernel_log", describe_kernel_log(run, f->kernel_log));
}

void bl_run_record_attempt(bl_run *run, const bl_supervise_options *o, const bl_supervise *s)
{
    const bl_supervise_facts *f = bl_supervise_facts_get(s);
    bl_cli *cli = run->cli;
    json_t *object = json_object(), *ranks = json_array(), *left = json_array();
    char name[24];
    bl_cli_put_int(cli, object, "attempt", run->attempt);
    bl_cli_put(cli, object, "locates", json_boolean(run->locating));
    bl_cli_put(cli, object, "environment", texts(run, run->set, run->n_set));
    bl_cli_put(cli, object, "master_port", o->ranked ? json_integer(o->port) : json_null());
    put_moment(run, object, "started", f->started_wall);
    bl_cli_put_real(cli, object, "seconds", (double)(f->ended - f->started) / 1e9);
    int status = run->mpi != NULL ? run->ends.status : bl_supervise_status(s);
    int first = run->mpi != NULL ? run->ends.first : f->first_failed;
    bl_cli_put_int(cli, object, "status", status);
    bl_cli_put(cli, object, "first_failed", first < 0 ? json_null() : json_integer(first));
    bl_cli_put_text(cli, object, "stopped_by", f->stop_signal != 0 ? bl_signal_name(f->stop_signal, name) : NULL);
    bl_cli_put_int(cli, object, "n_silences", f->n_silences);
    bl_cli_put_int(cli, object, "n_outlived", f->n_left);
    for (int64_t i = 0; i < f->n_left && i < BL_SUPERVISE_LEFT; i++)
        append(run, left, bl_json_text(f->left[i]));
    bl_cli_put(cli, object, "outlived", left);
    put_machine(run, object, f);
    if (run->mpi != NULL)
        bl_run_mpi_describe(run, s, object, ranks);
    for (int i = 0; run->mpi == NULL && i < bl_supervise_n_ranks(s); i++)
        append(run, ranks, describe_rank(run, o, s, i));
    bl_cli_put(cli, object, "ranks", ranks);
    append(run, json_object_get(run->record, "attempts"), object);
}

belay_code bl_run_record_write(bl_run *run, bool is_over, bl_error *error)
{
    if (is_over) {
        put_moment(run, run->record, "ended", bl_clock_wall());
        bl_cli_put_int(run->cli, run->record, "status", run->status);
    }
    char *path = bl_file_join(run->folder, "run.json");
    belay_code code = path != NULL ? bl_json_write(path, run->record, error)
                                   : bl_file_no_memory(error, "write the record into", run->folder);
    bl_free(path);
    return code;
}
