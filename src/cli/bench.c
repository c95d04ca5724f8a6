/* SPDX-License-Identifier: Apache-2.0 */
/* belay bench: the table of docs/performance.md, as ratios within this one run. */
#include <stdio.h>
#include <string.h>

#include "cli/bench_gpt2.h"
#include "cli/bench_job.h"
#include "cli/commands.h"

typedef struct bench_options {
    bl_cli_place place;
    int64_t windows;
    int64_t pairs;
    int64_t steps;
} bench_options;

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

static int run_bench(bl_cli *cli)
{
    const bench_options *options = cli->options;
    bl_error error = {0};
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

    bl_bench_reference reference = {0};
    if (bl_bench_reference_run(threads, (int)options->windows, &reference, &error) != BELAY_OK)
        return bl_cli_fail(cli, &error);
    say_reference(cli, &reference);

    bl_bench_mode modes[BL_BENCH_MODES];
    if (bl_bench_modes_run(threads, (int)options->windows, modes, &error) != BELAY_OK)
        return bl_cli_fail(cli, &error);
    if (!cli->json)
        printf("reference job in another mode / on the cpu with pooled memory\n");
    static const char *const mode_keys[BL_BENCH_MODES] = {"mode_redzone", "mode_poison", "mode_exact",
                                                          "mode_exact_poison", "mode_sim"};
    for (int i = 0; i < BL_BENCH_MODES; i++)
        say(cli, mode_keys[i], modes[i].name, modes[i].quotient, "", i == 0 ? 1.1 : 0);

    bl_bench_call call = {0};
    if (bl_bench_call_run(&call, &error) != BELAY_OK)
        return bl_cli_fail(cli, &error);
    if (!cli->json)
        printf("one call of add on one element\n");
    say(cli, "call_recorded_us", "recorded", call.recorded_seconds * 1e6, "us", 1);
    say(cli, "call_plain_us", "not recorded", call.plain_seconds * 1e6, "us", 1);

    bl_bench_guard guards[BL_BENCH_GUARDS];
    if (bl_bench_guards_run(threads, (int)options->pairs, guards, &error) != BELAY_OK)
        return bl_cli_fail(cli, &error);
    if (!cli->json)
        printf("with index tests / without\n");
    static const char *const keys[BL_BENCH_GUARDS] = {"guard_embedding", "guard_gather", "guard_cross_entropy"};
    for (int i = 0; i < BL_BENCH_GUARDS; i++)
        say(cli, keys[i], guards[i].name, guards[i].quotient, "", 1.02);

    bl_bench_gpt2 gpt2 = {0};
    if (options->steps == 0)
        return bl_cli_end(cli, 0);
    if (bl_bench_gpt2_run(threads, (int)options->steps, &gpt2, &error) != BELAY_OK)
        return bl_cli_fail(cli, &error);
    say_gpt2(cli, &gpt2);
    return bl_cli_end(cli, 0);
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
