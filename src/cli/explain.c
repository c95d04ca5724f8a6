/* SPDX-License-Identifier: Apache-2.0 */
/* belay explain: crash logs in, verdicts out. */
#include "cli/commands.h"
#include "file/atomic.h"
#include "triage/tell.h"

typedef struct explain_options {
    char *html, *history;
} explain_options;

static const bl_setting_row rows[] = {
    {.name = "html",
     .kind = BL_KIND_TEXT,
     .offset = offsetof(explain_options, html),
     .group = BL_GROUP_RUN,
     .words = "none",
     .place = "FILE",
     .unit = "",
     .help = "Write the findings as a page, too."},
    {.name = "history",
     .kind = BL_KIND_TEXT,
     .offset = offsetof(explain_options, history),
     .group = BL_GROUP_RUN,
     .words = "none",
     .place = "FOLDER",
     .unit = "",
     .help = "The kernel logs are of this machine: read and keep what its GPUs have done before in this folder."},
};

static belay_code print_findings(bl_cli *cli, const bl_explain *explain, bl_error *error)
{
    bl_text words = {0};
    if (cli->json) {
        if (!bl_tell_json(explain, cli->document))
            return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the JSON document");
        return BELAY_OK;
    }
    bl_tell_text(explain, &words);
    bool failed = words.failed;
    fputs(bl_text_get(&words), stdout);
    bl_text_fini(&words);
    return failed ? bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the report") : BELAY_OK;
}

static belay_code write_page(const char *path, const bl_explain *explain, bl_error *error)
{
    bl_text page = {0};
    if (path == NULL)
        return BELAY_OK;
    bl_tell_html(explain, &page);
    belay_code code = page.failed ? bl_file_no_memory(error, "make the page", path)
                                  : bl_file_replace(path, bl_text_get(&page), page.n_bytes, error);
    bl_text_fini(&page);
    return code;
}

static belay_code run_all(bl_cli *cli, int *status, bl_error *error)
{
    bl_explain *explain = NULL;
    const explain_options *given = cli->options;
    bl_explain_options options = {.paths = (const char *const *)cli->arguments,
                                  .n_paths = cli->n_arguments,
                                  .keeps_history = given->history != NULL,
                                  .history = given->history};
    TRY(bl_explain_run(&options, &explain, error));
    belay_code code = print_findings(cli, explain, error);
    if (code == BELAY_OK)
        code = write_page(given->html, explain, error);
    *status = bl_explain_findings(explain)->n_verdicts > 0 ? 1 : 0;
    bl_explain_free(explain);
    return code;
}

static int run(bl_cli *cli)
{
    bl_error error = {0};
    int status = 0;
    if (run_all(cli, &status, &error) != BELAY_OK)
        return bl_cli_fail(cli, &error);
    return bl_cli_end(cli, status);
}

const bl_command bl_cli_explain = {
    .name = "explain",
    .arguments = "FILE...",
    .says = "find in crash logs what happened first, and what only follows",
    .more = "Give all files that belong together: the logs of all ranks and the kernel log. Folders are searched, "
            "\"-\" is\n"
            "standard input, .gz and .zst are unpacked. Status 1 when a fault was found, 0 when not.",
    .example = "belay explain rank*.log dmesg.txt\nbelay explain --json slurm-4711.out | jq '.verdicts[0].class'",
    .rows = rows,
    .n_rows = sizeof rows / sizeof rows[0],
    .options_bytes = sizeof(explain_options),
    .min_arguments = 1,
    .max_arguments = 4096,
    .run = run,
};
