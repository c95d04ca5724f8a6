/* SPDX-License-Identifier: Apache-2.0 */
/* belay predict: label and probability of texts, from the command line or one a line from standard input.  A text that
 * cannot be read is told, printed as "-", and does not end the others. */
#include <belay/train.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/commands.h"

enum { MOST_TEXTS = 1024, READ_BYTES = 65536 };
#define LONGEST_LINE INT64_C(16777216)

typedef struct predict_options {
    bl_cli_place place;
} predict_options;

static const bl_setting_row rows[] = {
    BL_CLI_ROW_DEVICE(predict_options, place),
    BL_CLI_ROW_THREADS(predict_options, place),
};

/* ---- one group of texts -------------------------------------------------------------------------------------------- */

static void document(bl_cli *cli, json_t *list, const char *text, const char *label, const belay_prediction *p)
{
    json_t *entry = json_object();
    bl_text shown = {0};
    bl_text_add_escaped(&shown, text, (int64_t)strlen(text), INT64_MAX); /* JSON is UTF-8, a text may be anything */
    bl_cli_put_text(cli, entry, "text", p->code == BELAY_OK ? text : bl_text_get(&shown));
    bl_cli_put_text(cli, entry, "label", label);
    bl_cli_put_real(cli, entry, "probability", p->code == BELAY_OK ? p->probability : (double)NAN);
    if (json_array_append_new(list, entry) != 0 || shown.failed)
        cli->lacks_memory = true;
    bl_text_fini(&shown);
}

static void print_one(bl_cli *cli, const char *text, const char *label, const belay_prediction *p)
{
    bl_cli_print(cli, label != NULL ? label : "-", 0);
    if (label != NULL)
        printf("\t%.4f\t", bl_text_real(p->probability));
    else
        fputs("\t-\t", stdout);
    bl_cli_print(cli, text, 0);
    putchar('\n');
}

static void show(bl_cli *cli, const char *text, const char *label, const belay_prediction *p)
{
    if (cli->json)
        document(cli, json_object_get(cli->document, "predictions"), text, label, p);
    else
        print_one(cli, text, label, p);
}

static belay_code predict(bl_cli *cli, belay_run *run, const char *const *texts, int64_t n)
{
    belay_prediction predictions[MOST_TEXTS];
    if (n == 0)
        return BELAY_OK;
    TRY(belay_run_predict(run, texts, n, predictions));
    for (int64_t i = 0; i < n; i++) {
        const belay_prediction *p = &predictions[i];
        const char *label = p->code == BELAY_OK ? belay_run_label(run, p->class_id) : NULL;
        show(cli, texts[i], label, p);
    }
    /* An output that takes nothing more ends the predictions; the command's end says so. */
    return bl_cli_flush(cli) ? BELAY_OK : BELAY_FILE_WRITE;
}

/* ---- lines ---------------------------------------------------------------------------------------------------------- */

typedef struct lines {
    bl_text bytes; /* read and not yet predicted */
    int64_t n_lines;
    bool ended;
} lines;

static belay_code read_more(lines *in, bl_error *error)
{
    char buffer[READ_BYTES], reason[128];
    ssize_t n;
    do
        n = read(STDIN_FILENO, buffer, sizeof buffer);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return bl_error_set(error, BELAY_FILE_READ, "cannot read standard input: %s", bl_error_errno(errno, reason));
    in->ended = n == 0;
    if (in->bytes.n_bytes + n > LONGEST_LINE) {
        bl_error_set(error, BELAY_FILE_LIMIT, "<stdin>:%lld: a line is longer than %lld bytes",
                     (long long)in->n_lines + 1, (long long)LONGEST_LINE);
        return BELAY_FILE_LIMIT;
    }
    bl_text_add_bytes(&in->bytes, buffer, n);
    return in->bytes.failed ? bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for a line of standard input")
                            : BELAY_OK;
}

/* Where the line stops being text: its length when it is one. */
static size_t first_bad(const char *line, size_t length)
{
    size_t at = 0;
    for (int step; at < length && line[at] != '\0'; at += (size_t)step)
        if ((step = bl_utf8_length(line + at, (int64_t)(length - at))) == 0)
            break;
    return at;
}

/* Tells a line that is no text, with its number, and prints it without a label. */
static void refuse_line(bl_cli *cli, const lines *in, const char *line, size_t bad)
{
    bl_error error = {0};
    bl_error_set(&error, BELAY_DATA_TEXT, "<stdin>:%lld: byte %zu of the line is 0x%02X, %s", (long long)in->n_lines,
                 bad + 1, (unsigned char)line[bad], line[bad] == '\0' ? "a NUL" : "which is not UTF-8");
    bl_cli_tell(cli, &error);
    show(cli, line, NULL, &(belay_prediction){.class_id = -1, .code = BELAY_DATA_TEXT});
}

/* Cuts the next whole line off at `at`, NUL-ended in place; false when there is none.  At the end of the input what is
 * left is a line too: the byte behind it is the text's own NUL. */
static bool next_line(lines *in, char **at, char **line, size_t *length)
{
    if (in->bytes.bytes == NULL)
        return false;
    char *end = in->bytes.bytes + in->bytes.n_bytes;
    char *newline = memchr(*at, '\n', (size_t)(end - *at));
    if (newline == NULL && (!in->ended || *at == end))
        return false;
    char *stop = newline != NULL ? newline : end;
    *line = *at;
    *at = newline != NULL ? newline + 1 : end;
    if (stop > *line && stop[-1] == '\r')
        stop--;
    *stop = '\0';
    *length = (size_t)(stop - *line);
    in->n_lines++;
    return true;
}

/* Drops the bytes before `at`. */
static void keep_rest(lines *in, const char *at)
{
    if (in->bytes.bytes == NULL)
        return;
    int64_t rest = in->bytes.bytes + in->bytes.n_bytes - at;
    memmove(in->bytes.bytes, at, (size_t)rest);
    in->bytes.n_bytes = rest;
}

/* Predicts every whole line that is there, in order, and keeps the rest. */
static belay_code predict_lines(bl_cli *cli, belay_run *run, lines *in)
{
    const char *texts[MOST_TEXTS];
    char *at = in->bytes.bytes, *line;
    int64_t n = 0;
    size_t length;
    while (next_line(in, &at, &line, &length)) {
        size_t bad = first_bad(line, length);
        if (n == MOST_TEXTS || bad < length) {
            TRY(predict(cli, run, texts, n));
            n = 0;
        }
        if (bad < length)
            refuse_line(cli, in, line, bad);
        else
            texts[n++] = line;
    }
    TRY(predict(cli, run, texts, n));
    keep_rest(in, at);
    return BELAY_OK;
}

static belay_code predict_input(bl_cli *cli, belay_run *run, bl_error *error)
{
    lines in = {0};
    belay_code code = BELAY_OK;
    while (code == BELAY_OK && !in.ended) {
        code = read_more(&in, error);
        if (code == BELAY_OK)
            code = predict_lines(cli, run, &in);
    }
    bl_text_fini(&in.bytes);
    return code;
}

/* ---- the command ----------------------------------------------------------------------------------------------------- */

static void predict_arguments(bl_cli *cli, belay_run *run)
{
    const char *const *texts = (const char *const *)cli->arguments + 1;
    int64_t n = cli->n_arguments - 1;
    for (int64_t i = 0; i < n; i += MOST_TEXTS)
        if (predict(cli, run, texts + i, n - i < MOST_TEXTS ? n - i : MOST_TEXTS) != BELAY_OK)
            return;
}

static int run_predict(bl_cli *cli)
{
    const predict_options *options = cli->options;
    bl_error error = {0};
    if (cli->json)
        bl_cli_put(cli, cli->document, "predictions", json_array());
    belay_context *context = bl_cli_open(cli, &options->place);
    belay_run *run = belay_is_open(context) ? belay_run_open(context, cli->arguments[0]) : NULL;
    if (run != NULL && !belay_run_is_nil(run)) {
        if (cli->n_arguments > 1)
            predict_arguments(cli, run);
        else
            (void)predict_input(cli, run, &error);
    }
    belay_close(context);
    return error.code != BELAY_OK ? bl_cli_fail(cli, &error) : bl_cli_end(cli, cli->status_of_told);
}

const bl_command bl_cli_predict = {
    .name = "predict",
    .arguments = "RUN [TEXT...]",
    .says = "label and probability of texts, or of one text a line on stdin",
    .more = "Prints label, probability and text, separated by tabs.  RUN is a run's folder, whose best checkpoint is\n"
            "taken, or a checkpoint.  A text that cannot be read gets the label \"-\" and a word on stderr.",
    .example = "belay predict run bonjour welcome\nbelay predict run < texts.txt",
    .rows = rows,
    .n_rows = BL_COUNT(rows),
    .options_bytes = sizeof(predict_options),
    .min_arguments = 1,
    .max_arguments = -1,
    .run = run_predict,
};
