/* SPDX-License-Identifier: Apache-2.0 */
/* belay train: settings from the command line and a config, the job, its result in words. */
#include <math.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/run.h"
#include "cli/train.h"
#include "train/job.h"
#include "train/resume.h"

_Static_assert(BL_SETTING_data == 0, "DATA is an argument: the options are the rows behind it");

static belay_code store(void *options, const bl_setting_row *row, const char *value, const char *option,
                        bl_error *error)
{
    return bl_settings_set(options, row, value, BL_SET_BY_CALLER, option, error);
}

static belay_code read_config(bl_settings *settings, bl_error *error)
{
    json_t *json = NULL;
    if (settings->config == NULL)
        return BELAY_OK;
    TRY(bl_json_read(settings->config, 0, &json, error));
    belay_code code = bl_settings_from_json(settings, json, BL_SET_BY_CONFIG, settings->config, error);
    json_decref(json);
    return code;
}

static belay_code collect(bl_cli *cli, bl_settings *settings, bl_error *error)
{
    if (cli->n_arguments > 0)
        TRY(store(settings, &bl_setting_rows[BL_SETTING_data], cli->arguments[0], "DATA", error));
    return read_config(settings, error);
}

static void document(bl_cli *cli, const bl_settings *settings, const belay_train_result *r)
{
    json_t *d = cli->document;
    if (d == NULL)
        return;
    if (settings->out != NULL)
        bl_cli_put_text(cli, d, "run", settings->out);
    if (r->code != BELAY_OK && r->n_epochs == 0 && r->n_steps == 0 && r->n_faults == 0)
        return; /* it ended before it began: there are no figures */
    bl_cli_put_int(cli, d, "epochs", r->n_epochs);
    bl_cli_put_int(cli, d, "steps", r->n_steps);
    bl_cli_put_int(cli, d, "faulted_batches", r->n_faults);
    bl_cli_put_int(cli, d, "skipped_batches", r->n_skipped);
    bl_cli_put_int(cli, d, "transient_faults", r->n_transient);
    bl_cli_put_int(cli, d, "overflowed_steps", r->n_overflowed);
    bl_cli_put_int(cli, d, "corrected_indices", r->n_corrected);
    bl_cli_put(cli, d, "ended_early", json_boolean(r->ended_early));
    bl_cli_put_int(cli, d, "stopped_by_signal", r->stopped_by);
    bl_cli_put_int(cli, d, "best_epoch", r->best_epoch);
    bl_cli_put_real(cli, d, "best_accuracy", r->best_accuracy);
    bl_cli_put_real(cli, d, "best_loss", r->best_loss);
    bl_cli_put_real(cli, d, "last_accuracy", r->last_accuracy);
    bl_cli_put_real(cli, d, "last_loss", r->last_loss);
    bl_cli_put_real(cli, d, "train_accuracy", r->train_accuracy);
    bl_cli_put_real(cli, d, "train_loss", r->train_loss);
    bl_cli_put_real(cli, d, "samples_per_second", r->samples_per_second);
    bl_cli_put_real(cli, d, "seconds", r->seconds);
}

static void print_result(bl_cli *cli, const bl_settings *settings, const belay_train_result *r)
{
    if (r->stopped_by != 0)
        printf("stopped by signal %d after a save; `belay train ... --resume` goes on\n", r->stopped_by);
    else if (r->ended_early)
        printf("ended early: no better epoch in %lld\n", (long long)settings->patience);
    if (r->n_faults > 0)
        printf("faults: %lld batches, %lld of them left out, %lld transient; faults.jsonl lists them\n",
               (long long)r->n_faults, (long long)r->n_skipped, (long long)r->n_transient);
    if (r->best_epoch >= 0 && !isnan(r->best_accuracy))
        printf("best: epoch %lld, counted from 0, accuracy %.4f, loss %.4f\n", (long long)r->best_epoch,
               r->best_accuracy, bl_text_real(r->best_loss));
    fputs("run: ", stdout);
    bl_cli_print(cli, settings->out, 0);
    fputs(", report: ", stdout);
    bl_cli_print(cli, settings->out, 0);
    fputs("/report.html\n", stdout);
}

/* In a rank other than 0 faults are told, and nothing else. */
static void run_here(bl_cli *cli, bl_settings *settings, belay_train_result *result, bl_error *error)
{
    bool is_quiet = bl_run_rank_number() > 0;
    cli->resumed = settings->resume;
    bl_train_job_options options = {.log = bl_cli_log,
                                    .log_state = cli,
                                    .progress = is_quiet ? NULL : bl_cli_progress,
                                    .progress_state = cli,
                                    .stop = bl_train_stop_catch()};
    belay_code code = bl_train_job(settings, &options, result, error);
    bl_train_stop_restore();
    document(cli, settings, result);
    bl_cli_bar_clear(cli);
    if (is_quiet) {
        json_decref(cli->document);
        cli->document = NULL;
        cli->json = false;
    } else if (code == BELAY_OK && !cli->json) {
        print_result(cli, settings, result);
    }
}

/* Whether this process only starts the ranks: as many as were asked for, else as the run has that goes on. */
static bool starts_ranks(bl_settings *settings)
{
    bool is_given = settings->set_by[BL_SETTING_n] >= BL_SET_BY_CONFIG;
    if (settings->out == NULL || bl_run_rank_number() >= 0)
        return false;
    if (settings->resume && !settings->overwrite && !is_given)
        settings->n = bl_train_resume_ranks(settings->out);
    return settings->n > 1;
}

static int run_train(bl_cli *cli)
{
    bl_settings *settings = cli->options;
    bl_error error = {0};
    belay_train_result result = {0};
    int status;
    if (collect(cli, settings, &error) == BELAY_OK && starts_ranks(settings)) {
        status = bl_cli_train_ranks(cli, settings);
    } else {
        if (error.code == BELAY_OK)
            run_here(cli, settings, &result, &error);
        status = error.code != BELAY_OK ? bl_cli_fail(cli, &error) : bl_cli_end(cli, result.status);
    }
    bl_setting_fini(settings, &bl_setting_rows[BL_SETTING_data]);
    return status;
}

const bl_command bl_cli_train = {
    .name = "train",
    .arguments = "DATA --out RUN",
    .says = "train a text classifier on a .tsv, .csv or .jsonl file",
    .more =
        "A batch that faults never reaches the weights: it is left out, named in RUN/faults.jsonl, and the run goes\n"
        "on.  RUN then holds best.safetensors, last.safetensors, run.json, metrics.csv, faults.jsonl and report.html.\n"
        "With -n the command runs once a rank; what the ranks say, and how they ended, is in RUN/ranks/start_0,\n"
        "start_1, ...",
    .example = "belay train words.tsv --valid valid.tsv --out run --tokens char --embed 32 --hidden 64\n"
               "belay train words.tsv --out run -n 4",
    .rows = bl_setting_rows + 1,
    .n_rows = BL_N_SETTINGS - 1,
    .options_bytes = sizeof(bl_settings),
    .min_arguments = 0, /* DATA may stand in the config, or in the run that goes on */
    .max_arguments = 1,
    .store = store,
    .run = run_train,
};
