/* SPDX-License-Identifier: Apache-2.0 */
/* belay eval: a run over labelled data; loss, accuracy, a line a class, the confusion matrix. */
#include <belay/train.h>
#include <string.h>

#include "cli/commands.h"

enum { WIDEST_MATRIX = 24, NAME_COLUMNS = 24 };

typedef struct eval_options {
    char *text, *label;
    int64_t batch;
    bl_cli_place place;
} eval_options;

static const bl_setting_row rows[] = {
    {.name = "text",
     .kind = BL_KIND_TEXT,
     .offset = offsetof(eval_options, text),
     .group = BL_GROUP_DATA,
     .text_default = "text",
     .words = "",
     .place = "NAME",
     .unit = "",
     .help = "Name of the column with the texts."},
    {.name = "label",
     .kind = BL_KIND_TEXT,
     .offset = offsetof(eval_options, label),
     .group = BL_GROUP_DATA,
     .text_default = "label",
     .words = "",
     .place = "NAME",
     .unit = "",
     .help = "Name of the column with the labels."},
    {.name = "batch",
     .kind = BL_KIND_INT,
     .offset = offsetof(eval_options, batch),
     .group = BL_GROUP_DATA,
     .int_default = 64,
     .int_low = 1,
     .int_high = 1000000,
     .words = "",
     .place = "N",
     .unit = "samples",
     .help = "Samples of a batch."},
    BL_CLI_ROW_DEVICE(eval_options, place),
    BL_CLI_ROW_THREADS(eval_options, place),
};

/* ---- words ------------------------------------------------------------------------------------------------------- */

static int widest_label(bl_cli *cli, belay_run *run, int64_t n_classes)
{
    int widest = (int)strlen("class");
    for (int64_t c = 0; c < n_classes; c++) {
        int columns = bl_cli_columns(cli, belay_run_label(run, c));
        widest = columns > widest ? columns : widest;
    }
    return widest < NAME_COLUMNS ? widest : NAME_COLUMNS;
}

static void print_classes(bl_cli *cli, belay_run *run, const belay_evaluation *e, int width)
{
    putchar('\n');
    bl_cli_print(cli, "class", width);
    puts("   samples  predicted  precision  recall      f1");
    for (int64_t c = 0; c < e->n_classes; c++) {
        belay_class_figures f = belay_evaluation_class(e, c);
        bl_cli_print(cli, belay_run_label(run, c), width);
        printf("  %8lld  %9lld  ", (long long)f.n_samples, (long long)f.n_predicted);
        bl_cli_print_real(f.precision, 9);
        bl_cli_print_real(f.recall, 8);
        bl_cli_print_real(f.f1, 8);
        putchar('\n');
    }
}

static void print_confusion(bl_cli *cli, belay_run *run, const belay_evaluation *e, int width)
{
    enum { LEAST = 8 };
    if (e->n_classes > WIDEST_MATRIX) {
        printf("\nconfusion matrix: left out, %lld classes are too wide for a page; --json has it\n",
               (long long)e->n_classes);
        return;
    }
    int cell = width > LEAST ? width : LEAST;
    puts("\nconfusion matrix (a row is a label, a column what was predicted)");
    bl_cli_print(cli, "", width);
    for (int64_t c = 0; c < e->n_classes; c++) {
        fputs("  ", stdout);
        bl_cli_print(cli, belay_run_label(run, c), -cell);
    }
    putchar('\n');
    for (int64_t r = 0; r < e->n_classes; r++) {
        bl_cli_print(cli, belay_run_label(run, r), width);
        for (int64_t c = 0; c < e->n_classes; c++)
            printf("  %*lld", cell, (long long)e->confusion[r * e->n_classes + c]);
        putchar('\n');
    }
}

static void print_evaluation(bl_cli *cli, belay_run *run, const belay_evaluation *e)
{
    int width = widest_label(cli, run, e->n_classes);
    fputs("checkpoint  ", stdout);
    bl_cli_print(cli, belay_run_path(run), 0);
    fputs("\ndata        ", stdout);
    bl_cli_print(cli, cli->arguments[1], 0);
    printf("\nsamples     %lld\n", (long long)e->n_samples);
    if (e->n_faulted_batches > 0)
        printf("left out    %lld batches that faulted\n", (long long)e->n_faulted_batches);
    fputs("loss        ", stdout);
    bl_cli_print_real(e->loss, 0);
    fputs("\naccuracy    ", stdout);
    bl_cli_print_real(e->accuracy, 0);
    putchar('\n');
    print_classes(cli, run, e, width);
    print_confusion(cli, run, e, width);
}

/* ---- JSON --------------------------------------------------------------------------------------------------------- */

static json_t *class_document(bl_cli *cli, belay_run *run, const belay_evaluation *e, int64_t c)
{
    belay_class_figures f = belay_evaluation_class(e, c);
    json_t *entry = json_object();
    bl_cli_put_text(cli, entry, "label", belay_run_label(run, c));
    bl_cli_put_int(cli, entry, "samples", f.n_samples);
    bl_cli_put_int(cli, entry, "predicted", f.n_predicted);
    bl_cli_put_int(cli, entry, "right", f.n_right);
    bl_cli_put_real(cli, entry, "precision", f.precision);
    bl_cli_put_real(cli, entry, "recall", f.recall);
    bl_cli_put_real(cli, entry, "f1", f.f1);
    return entry;
}

static json_t *confusion_row(bl_cli *cli, const belay_evaluation *e, int64_t r)
{
    json_t *row = json_array();
    for (int64_t c = 0; c < e->n_classes; c++)
        if (json_array_append_new(row, json_integer(e->confusion[r * e->n_classes + c])) != 0)
            cli->lacks_memory = true;
    return row;
}

static void document(bl_cli *cli, belay_run *run, const belay_evaluation *e)
{
    json_t *d = cli->document, *classes = json_array(), *confusion = json_array();
    bl_cli_put_text(cli, d, "checkpoint", belay_run_path(run));
    bl_cli_put_text(cli, d, "data", cli->arguments[1]);
    bl_cli_put_int(cli, d, "samples", e->n_samples);
    bl_cli_put_int(cli, d, "faulted_batches", e->n_faulted_batches);
    bl_cli_put_real(cli, d, "loss", e->loss);
    bl_cli_put_real(cli, d, "accuracy", e->accuracy);
    for (int64_t c = 0; c < e->n_classes; c++)
        if (json_array_append_new(classes, class_document(cli, run, e, c)) != 0 ||
            json_array_append_new(confusion, confusion_row(cli, e, c)) != 0)
            cli->lacks_memory = true;
    bl_cli_put(cli, d, "classes", classes);
    bl_cli_put(cli, d, "confusion", confusion);
}

/* ---- the command ---------------------------------------------------------------------------------------------------- */

static void evaluate(bl_cli *cli, belay_run *run, belay_dataset *data, const eval_options *options)
{
    belay_evaluation evaluation = {0};
    if (belay_evaluate(belay_run_model(run), data, options->batch, &evaluation) == BELAY_OK) {
        if (cli->json)
            document(cli, run, &evaluation);
        else
            print_evaluation(cli, run, &evaluation);
    }
    belay_evaluation_fini(&evaluation);
}

static int run_eval(bl_cli *cli)
{
    const eval_options *options = cli->options;
    belay_context *context = bl_cli_open(cli, &options->place);
    if (belay_is_open(context)) {
        belay_text_options text = {.text = options->text, .label = options->label};
        belay_run *run = belay_run_open(context, cli->arguments[0]);
        if (!belay_run_is_nil(run)) {
            belay_run_text_options(run, &text);
            belay_dataset *data = belay_dataset_open(context, cli->arguments[1], &text);
            if (!belay_dataset_is_nil(data))
                evaluate(cli, run, data, options);
        }
    }
    belay_close(context);
    return bl_cli_end(cli, cli->status_of_told);
}

const bl_command bl_cli_eval = {
    .name = "eval",
    .arguments = "RUN DATA",
    .says = "loss, accuracy, a table by class and the confusion matrix of a run",
    .more = "RUN is a run's folder, whose best checkpoint is taken, or a checkpoint.",
    .example = "belay eval run valid.tsv",
    .rows = rows,
    .n_rows = BL_COUNT(rows),
    .options_bytes = sizeof(eval_options),
    .min_arguments = 2,
    .max_arguments = 2,
    .run = run_eval,
};
