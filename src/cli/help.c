/* SPDX-License-Identifier: Apache-2.0 */
/* Help, all of it from the table of commands and their rows. */
#include <string.h>

#include "cli/cli.h"

enum { OPTION_COLUMNS = 34, LINE_COLUMNS = 100 };

const bl_exit bl_cli_exits[] = {
    {"0", "fine"},
    {"1", "a check failed"},
    {"2", "usage"},
    {"3", "the run ended on a fault"},
    {"4", "the world (file, memory, absent device)"},
    {"70", "a bug of Belay's"},
    {"128 + signal", "after a stop that was asked for"},
    {NULL, NULL},
};

void bl_cli_help_version(FILE *out) { fprintf(out, "belay %s\n", BELAY_VERSION); }

/* Words from a column to LINE_COLUMNS; the cursor stands at the first. */
static void print_wrapped(int begin, const char *words, FILE *out)
{
    int column = begin;
    for (size_t length; *words != '\0'; words += length + strspn(words + length, " ")) {
        length = strcspn(words, " ");
        if (column > begin && column + 1 + (int)length > LINE_COLUMNS)
            column = fprintf(out, "\n%*s", begin, "") - 1;
        column += fprintf(out, "%s%.*s", column > begin ? " " : "", (int)length, words);
    }
    fputc('\n', out);
}

static void print_exits(FILE *out)
{
    char words[512] = "Exit status:";
    for (const bl_exit *e = bl_cli_exits; e->status != NULL; e++) {
        size_t length = strlen(words);
        snprintf(words + length, sizeof words - length, " %s %s%s", e->status, e->says,
                 e[1].status != NULL ? "," : ".");
    }
    print_wrapped(0, words, out);
}

void bl_cli_help(FILE *out)
{
    fputs(
        "usage: belay COMMAND [OPTION...]\n\nTrains models; an illegal memory access is an ordinary, named event.\n\n",
        out);
    for (int i = 0; bl_cli_commands[i] != NULL; i++) {
        const bl_command *c = bl_cli_commands[i];
        int width = fprintf(out, "  belay %s%s%s", c->name, c->arguments[0] != '\0' ? " " : "", c->arguments);
        fprintf(out, "%*s%s\n", width < OPTION_COLUMNS ? OPTION_COLUMNS - width : 2, "", c->says);
    }
    fputs("\n`belay COMMAND --help` lists its options.  `belay --version` prints the version.\n", out);
    print_exits(out);
}

/* "  --lr X" and, from a fixed column on, the help with the default. */
static void print_option(const bl_setting_row *row, FILE *out)
{
    bl_text left = {0}, right = {0};
    bl_text_format(&left, "  %s%s%s", row->name[1] == '\0' ? "-" : "--", row->name,
                   row->kind == BL_KIND_FLAG ? "" : " ");
    bl_setting_place_describe(row, &left);
    bl_text_format(&right, "%s [", row->help);
    int64_t n_help = right.n_bytes;
    bl_setting_default_describe(row, &right);
    bl_text_add(&right, "]");
    bool has_default = right.n_bytes > n_help + 1 && row->kind != BL_KIND_FLAG && row->kind != BL_KIND_PAIRS;
    if (left.n_bytes < OPTION_COLUMNS - 1)
        fprintf(out, "%-*s", OPTION_COLUMNS, bl_text_get(&left));
    else
        fprintf(out, "%s\n%*s", bl_text_get(&left), OPTION_COLUMNS, "");
    print_wrapped(OPTION_COLUMNS, has_default ? bl_text_get(&right) : row->help, out);
    bl_text_fini(&left);
    bl_text_fini(&right);
}

void bl_cli_help_command(const bl_command *command, FILE *out)
{
    const char *blank = command->arguments[0] != '\0' ? " " : "";
    if (command->options_first)
        fprintf(out, "usage: belay %s [OPTION...]%s%s\n\n%s\n", command->name, blank, command->arguments,
                command->says);
    else
        fprintf(out, "usage: belay %s%s%s [OPTION...]\n\n%s\n", command->name, blank, command->arguments,
                command->says);
    if (command->more[0] != '\0')
        fprintf(out, "\n%s\n", command->more);
    for (int group = 0; group < BL_N_GROUPS; group++) {
        bool headed = false;
        for (int i = 0; i < command->n_rows; i++) {
            const bl_setting_row *row = &command->rows[i];
            if ((int)row->group != group)
                continue;
            if (!headed)
                fprintf(out, "\n%s\n", bl_setting_group_name(row->group));
            headed = true;
            print_option(row, out);
        }
    }
    fprintf(out, "\noutput\n%-*sPrint one JSON document on stdout and nothing else there.\n", OPTION_COLUMNS,
            "  --json");
    fprintf(out, "%-*sPrint this.\n\nexample\n", OPTION_COLUMNS, "  --help");
    for (const char *line = command->example; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "  %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
}
