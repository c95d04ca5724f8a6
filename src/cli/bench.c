/* SPDX-License-Identifier: Apache-2.0 */
/* belay bench: the table of docs/performance.md, as ratios within this one run. */
#include <stdio.h>
#include <string.h>

#include "cli/bench_beside.h"
#include "cli/bench_ddp.h"
#include "cli/bench_explain.h"
#include "cli/bench_gpt2.h"
#include "cli/bench_job.h"
#include "cli/bench_loader.h"
#include "cli/bench_rank.h"
#include "cli/commands.h"

typedef struct bench_options {
    bl_cli_place place;
    int64_t windows;
    int64_t pairs;
    const char *peer;
    int64_t steps;
    int64_t log_mib;
    int64_t only;
    const char *rank_of;
} bench_options;

/* Parts of the table, each of which can be run by itself. */
enum { ALL, EXPLAIN, JOB, MODES, CALL, GUARDS, LOADER, RANKS, WIRE, GPT2, PEER, N_PARTS };
static const char *const parts[] = {"all",    "explain", "job",  "modes", "call", "guards",
                                    "loader", "ranks",   "wire", "gpt2",  "peer", NULL};

static const bl_setting_row rows[] = {
    BL_CLI_ROW_DEVICE(bench_options, place),
    BL_CLI_ROW_THREADS(bench_options, place),
    {.name = "windows",
     .kind = BL_KIND_INT,
     .offset = offsetof(bench_options, windows),
     .group = BL_GROUP_RUN,
     .int_default = 15,
     .int_low = 1,
     .int_high = 10000,
     .words = "",
     .place = "N",
     .unit = "windows",
     .help = "Windows of the reference job that are timed, its products, or another mode's, after each."},
    {.name = "pairs",
     .kind = BL_KIND_INT,
     .offset = offsetof(bench_options, pairs),
     .group = BL_GROUP_RUN,
     .int_default = 40,
     .int_low = 1,
     .int_high = 64,
     .words = "",
     .place = "N",
     .unit = "pairs",
     .help = "Pairs with and without index tests."},
    {.name = "gpt2-steps",
     .kind = BL_KIND_INT,
     .offset = offsetof(bench_options, steps),
     .group = BL_GROUP_RUN,
     .int_default = 5,
     .int_low = 0,
     .int_high = 100,
     .words = "",
     .place = "N",
     .unit = "steps",
     .help = "Steps of GPT-2 that are timed; they take 3 GB of memory.  0: none."},
    {.name = "log-mib",
     .kind = BL_KIND_INT,
     .offset = offsetof(bench_options, log_mib),
     .group = BL_GROUP_RUN,
     .int_default = 1024,
     .int_low = 0,
     .int_high = 1 << 20,
     .words = "",
     .place = "N",
     .unit = "MiB",
     .help = "Size of the log that belay explain reads; it lies in TMPDIR for so long.  0: none."},
    {.name = "peer",
     .kind = BL_KIND_TEXT,
     .offset = offsetof(bench_options, peer),
     .group = BL_GROUP_RUN,
     .text_default = "python3",
     .words = "",
     .place = "PYTHON",
     .unit = "",
     .help = "Interpreter whose PyTorch, if it has one, runs the same jobs in turn; none: no peer."},
    {.name = "only",
     .kind = BL_KIND_CHOICE,
     .offset = offsetof(bench_options, only),
     .group = BL_GROUP_RUN,
     .int_default = ALL,
     .int_high = N_PARTS - 1,
     .words = "",
     .place = "",
     .unit = "",
     .choices = parts,
     .help =
         "One part of the table.  ranks: two ranks on this host, by mpirun; wire: two in network namespaces with 500 "
         "Mbit/s between them, for root."},
    {.name = "rank-of",
     .kind = BL_KIND_TEXT,
     .offset = offsetof(bench_options, rank_of),
     .group = BL_GROUP_RUN,
     .words = "",
     .place = "JOB",
     .unit = "",
     .help = "Only be one of the ranks of pair or wire: what the parts ranks and wire give mpirun to start."},
};

/* Model name of the first processor, or "unknown". */
static void read_processor(char *out, size_t size)
{
    snprintf(out, size, "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        snprintf(out, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
        break;
    }
    if (file != NULL)
        fclose(file);
}

/* One figure, on the terminal and in the document; target 0: none. */
static void say(bl_cli *cli, const char *key, const char *words, double value, const char *unit, double target)
{
    if (cli->json) {
        bl_cli_put_real(cli, cli->document, key, value);
        return;
    }
    printf("  %-58s %10.3f %-12s", words, value, unit);
    if (target > 0)
        printf(" target %g", target);
    printf("\n");
}

static void say_reference(bl_cli *cli, const bl_bench_reference *r)
{
    double job_rate = r->flop / r->job_seconds, products_rate = r->flop / r->products_seconds;
    if (!cli->json)
        printf(
            "reference job: Embedding(10000,128), LSTM(128->256, 2 layers), Linear(256,5), batch 64, seq 20, Adam\n");
    say(cli, "job_batches_per_second", "micro-batches", 1 / r->job_seconds, "/s", 0);
    say(cli, "job_gflops", "its products' rate within the job", job_rate * 1e-9, "GFLOP/s", 0);
    say(cli, "products_gflops", "the same products alone, fastest layout", products_rate * 1e-9, "GFLOP/s", 0);
    say(cli, "job_share", "job / products alone", job_rate / products_rate, "", 0.85);
    say(cli, "square_share", "job / SGEMM 2048^3", job_rate / r->square_flops, "", 0);
    say(cli, "memory_share", "memory: peak / least possible", r->memory_peak / r->memory_bound, "", 1.3);
}

static void say_gpt2(bl_cli *cli, const bl_bench_gpt2 *g)
{
    double rate = g->step_flop / g->step_seconds;
    if (!cli->json)
        printf("GPT-2 124M, batch 4 x 64, AdamW, float32\n");
    say(cli, "gpt2_step_seconds", "GPT-2 124M, batch 4 x 64, s a step", g->step_seconds, "s", 0);
    say(cli, "gpt2_tokens_per_second", "tokens", g->tokens_per_second, "/s", 0);
    say(cli, "gpt2_square_share", "6 x parameters x tokens / step, over SGEMM 2048^3", rate / g->square_flops, "",
        0.59);
    say(cli, "gpt2_memory_gb", "memory: peak", g->memory_peak * 1e-9, "GB", 0);
}

static belay_code run_reference(bl_cli *cli, const bench_options *options, int threads, bl_error *error)
{
    bl_bench_reference reference = {0};
    TRY(bl_bench_reference_run(threads, (int)options->windows, &reference, error));
    say_reference(cli, &reference);
    return BELAY_OK;
}

static belay_code run_modes(bl_cli *cli, const bench_options *options, int threads, bl_error *error)
{
    static const char *const keys[BL_BENCH_MODES] = {"mode_redzone", "mode_poison", "mode_exact", "mode_exact_poison",
                                                     "mode_sim"};
    bl_bench_mode modes[BL_BENCH_MODES];
    TRY(bl_bench_modes_run(threads, (int)options->windows, modes, error));
    if (!cli->json)
        printf("reference job in another mode / on the cpu with pooled memory\n");
    for (int i = 0; i < BL_BENCH_MODES; i++)
        say(cli, keys[i], modes[i].name, modes[i].quotient, "", i == 0 ? 1.1 : 0);
    return BELAY_OK;
}

static belay_code run_call(bl_cli *cli, bl_error *error)
{
    bl_bench_call call = {0};
    TRY(bl_bench_call_run(&call, error));
    if (!cli->json)
        printf("one call of add on one element\n");
    say(cli, "call_recorded_us", "recorded", call.recorded_seconds * 1e6, "us", 1);
    say(cli, "call_plain_us", "not recorded", call.plain_seconds * 1e6, "us", 1);
    return BELAY_OK;
}

static belay_code run_guards(bl_cli *cli, const bench_options *options, int threads, bl_error *error)
{
    static const char *const keys[BL_BENCH_GUARDS] = {"guard_embedding", "guard_gather", "guard_cross_entropy"};
    bl_bench_guard guards[BL_BENCH_GUARDS];
    TRY(bl_bench_guards_run(threads, (int)options->pairs, guards, error));
    if (!cli->json)
        printf("with index tests / without\n");
    for (int i = 0; i < BL_BENCH_GUARDS; i++)
        say(cli, keys[i], guards[i].name, guards[i].quotient, "", 1.02);
    return BELAY_OK;
}

static belay_code run_loader(bl_cli *cli, bl_error *error)
{
    bl_bench_loader loader = {0};
    TRY(bl_bench_loader_run(&loader, error));
    if (!cli->json)
        printf("the loader alone: words by characters, seq 20, batch 64, two workers\n");
    say(cli, "loader_samples_per_second", "samples", loader.samples_per_second, "/s", 100000);
    return BELAY_OK;
}

static belay_code run_explain(bl_cli *cli, const bench_options *options, bl_error *error)
{
    bl_bench_explain e = {0};
    TRY(bl_bench_explain_run(options->log_mib, &e, error));
    if (!cli->json)
        printf("belay explain, a log of %lld MiB with a fault on each thousandth line\n", (long long)options->log_mib);
    say(cli, "explain_gb_per_second", "read and explained", e.bytes_per_second * 1e-9, "GB/s", 1);
    say(cli, "explain_share", "reading it and nothing else / explain", e.share, "", 0);
    say(cli, "explain_memory_mb", "memory: peak", e.memory * 1e-6, "MB", 64);
    say(cli, "explain_faults_gb_per_second", "a log of fault lines alone", e.faults_per_second * 1e-9, "GB/s", 0);
    say(cli, "explain_small_seconds", "a log of 1,000 lines", e.small_seconds, "s", 0.1);
    return BELAY_OK;
}

static bool is_skipped(const bl_cli *cli, const char *what, const char *why)
{
    if (why[0] != '\0' && !cli->json)
        printf("%s: skipped, %s\n", what, why);
    return why[0] != '\0';
}

static belay_code run_ranks(bl_cli *cli, const bench_options *options, bl_error *error)
{
    bl_bench_pair p;
    TRY(bl_bench_pair_run((int)options->windows, &p, error));
    if (is_skipped(cli, "two ranks on this host", p.skipped))
        return BELAY_OK;
    if (!cli->json)
        printf("two ranks of one thread each, reference job, accumulate 1\n");
    say(cli, "ranks_step_ms", "a step of two ranks", p.seconds * 1e3, "ms", 0);
    say(cli, "ranks_alone_share", "two copies that know nothing of each other / two ranks", p.alone_seconds / p.seconds,
        "", 0);
    say(cli, "ranks_agreement_us", "a step's agreement, gate and a bucket of nothing", p.agreement_seconds * 1e6, "us",
        0);
    say(cli, "ranks_agreement_percent", "the same / a step", p.agreement_seconds / p.seconds * 100, "%", 1);
    return BELAY_OK;
}

static belay_code run_wire(bl_cli *cli, const bench_options *options, bl_error *error)
{
    bl_bench_wire w;
    TRY(bl_bench_wire_run((int)options->windows, &w, error));
    if (is_skipped(cli, "two ranks over 500 Mbit/s", w.skipped))
        return BELAY_OK;
    if (!cli->json)
        printf("two ranks over 500 Mbit/s: MLP of twelve 1024 x 1024 layers, buckets of 4 MiB, batch %.0f\n", w.batch);
    say(cli, "wire_reduction_ms", "its gradients' reduction", w.reduction_seconds * 1e3, "ms", 0);
    say(cli, "wire_backward_ms", "its backward", w.backward_seconds * 1e3, "ms", 0);
    say(cli, "wire_overlap", "a step with reduction beside backward / after it",
        w.wide_seconds / w.wide_blocking_seconds, "", 0.75);
    say(cli, "wire_reference_overlap", "the same of the reference job",
        w.reference_seconds / w.reference_blocking_seconds, "", 0);
    return BELAY_OK;
}

static belay_code run_gpt2(bl_cli *cli, const bench_options *options, int threads, bl_error *error)
{
    bl_bench_gpt2 gpt2 = {0};
    TRY(bl_bench_gpt2_run(threads, (int)options->steps, &gpt2, error));
    say_gpt2(cli, &gpt2);
    return BELAY_OK;
}

/* One job beside the peer: times as fast, and on the terminal both times. */
static void say_beside(bl_cli *cli, const bl_bench_beside *row)
{
    char words[160];
    if (row->quotient == 0 && !cli->json)
        printf("  %-58s no answer\n", row->name);
    if (row->quotient == 0)
        return;
    snprintf(words, sizeof words, "%s: %.1f against %.1f ms", row->name, row->seconds * 1e3, row->peer_seconds * 1e3);
    say(cli, row->key, words, row->quotient, "times", row->target);
    if (!cli->json)
        printf("    PyTorch: %s\n", row->setting);
}

static belay_code run_beside(bl_cli *cli, const bench_options *options, int threads, bl_error *error)
{
    bl_bench_beside rows_beside[BL_BENCH_BESIDE];
    bl_peer *peer = bl_peer_open(options->peer, 0);
    const char *version = bl_peer_version(peer);
    belay_code code = BELAY_OK;
    if (version == NULL) {
        if (!cli->json)
            printf("PyTorch beside it: none (%s)\n", bl_peer_why(peer));
        bl_peer_close(peer);
        return BELAY_OK;
    }
    if (cli->json)
        bl_cli_put_text(cli, cli->document, "peer", version);
    else
        printf("times as fast as PyTorch %s, in turn, its best over 1 and 2 threads of its own and of its BLAS\n",
               version);
    int n = options->steps > 0 ? BL_BENCH_BESIDE : BL_BENCH_BESIDE - 1;
    code = bl_bench_beside_run(peer, threads, (int)options->windows, n, rows_beside, error);
    for (int i = 0; i < n && code == BELAY_OK; i++)
        say_beside(cli, &rows_beside[i]);
    if (bl_peer_why(peer)[0] != '\0' && !cli->json)
        printf("    %s\n", bl_peer_why(peer));
    bl_peer_close(peer);
    return code;
}

static bool wants(const bench_options *options, int part) { return options->only == ALL || options->only == part; }

static belay_code run_parts(bl_cli *cli, const bench_options *o, int threads, bl_error *error)
{
    /* first: what this process holds counts as the most that its children ever had */
    if (wants(o, EXPLAIN) && o->log_mib > 0)
        TRY(run_explain(cli, o, error));
    if (wants(o, JOB))
        TRY(run_reference(cli, o, threads, error));
    if (wants(o, MODES))
        TRY(run_modes(cli, o, threads, error));
    if (wants(o, CALL))
        TRY(run_call(cli, error));
    if (wants(o, GUARDS))
        TRY(run_guards(cli, o, threads, error));
    if (wants(o, LOADER))
        TRY(run_loader(cli, error));
    if (wants(o, RANKS))
        TRY(run_ranks(cli, o, error));
    if (wants(o, WIRE))
        TRY(run_wire(cli, o, error));
    if (wants(o, GPT2) && o->steps > 0)
        TRY(run_gpt2(cli, o, threads, error));
    if (wants(o, PEER) && strcmp(o->peer, "none") != 0)
        TRY(run_beside(cli, o, threads, error));
    return BELAY_OK;
}

static int run_bench(bl_cli *cli)
{
    const bench_options *options = cli->options;
    bl_error error = {0};
    if (options->rank_of != NULL)
        return bl_bench_rank_run(options->rank_of, (int)options->windows, &error) == BELAY_OK
                   ? bl_cli_end(cli, 0)
                   : bl_cli_fail(cli, &error);
    belay_context *context = bl_cli_open(cli, &options->place);
    if (!belay_is_open(context))
        return bl_cli_end(cli, belay_close(context));
    int threads = belay_threads_get(context);
    belay_close(context);

    char processor[128];
    read_processor(processor, sizeof processor);
    if (cli->json) {
        bl_cli_put_text(cli, cli->document, "processor", processor);
        bl_cli_put_int(cli, cli->document, "threads", threads);
    } else
        printf("machine: %s, %d threads\n", processor, threads);

    belay_code code = run_parts(cli, options, threads, &error);
    return code == BELAY_OK ? bl_cli_end(cli, 0) : bl_cli_fail(cli, &error);
}

const bl_command bl_cli_bench = {
    .name = "bench",
    .arguments = "",
    .says = "measure the runtime: ratios in one run",
    .more = "",
    .example = "belay bench --threads 2\n",
    .rows = rows,
    .n_rows = BL_COUNT(rows),
    .options_bytes = sizeof(bench_options),
    .min_arguments = 0,
    .max_arguments = 0,
    .run = run_bench,
};
