/* SPDX-License-Identifier: Apache-2.0 */
/* Manual pages in man(7) macros. */
#include "tools/pages/pages.h"

#include <ctype.h>
#include <string.h>

/* Text as it is to be read: every character that roff takes for something else is spelled. */
static void put_n(const char *text, size_t n, FILE *out)
{
    for (size_t i = 0; i < n; i++)
        switch (text[i]) {
        case '\\':
            fputs("\\e", out);
            break;
        case '-':
            fputs("\\-", out);
            break;
        case '\'':
            fputs("\\(aq", out);
            break;
        case '`':
            fputs("\\(ga", out);
            break;
        case '^':
            fputs("\\(ha", out);
            break;
        case '~':
            fputs("\\(ti", out);
            break;
        case '"':
            fputs("\\(dq", out);
            break;
        default:
            fputc(text[i], out);
        }
}

static void put(const char *text, FILE *out) { put_n(text, strlen(text), out); }

/* A line of its own: a dot at its begin would be a request. */
static void put_line(const char *text, size_t n, FILE *out)
{
    if (n > 0 && text[0] == '.')
        fputs("\\&", out);
    put_n(text, n, out);
    fputc('\n', out);
}

static void put_lines(const char *text, FILE *out)
{
    for (size_t n; *text != '\0'; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        put_line(text, n, out);
    }
}

/* Prose: a sentence ends where a blank follows its stop, and the next begins a line, as roff wants it. */
static void put_prose(const char *text, FILE *out)
{
    while (*text != '\0') {
        size_t n = strcspn(text, " \n");
        const char *next = text + n + strspn(text + n, " \n");
        if (text[0] == '.')
            fputs("\\&", out);
        put_n(text, n, out);
        bool ends = *next == '\0' || (n > 0 && text[n - 1] == '.' && isupper((unsigned char)*next));
        fputc(ends ? '\n' : ' ', out);
        text = next;
    }
}

/* As in a heading: the first letter large, a full stop behind. */
static void put_sentence(const char *text, FILE *out)
{
    fputc(toupper((unsigned char)text[0]), out);
    put(text + 1, out);
    fputs(".\n", out);
}

static void put_head(const char *name, FILE *out)
{
    fputs(".\\\" SPDX-License-Identifier: Apache-2.0\n.\\\" Generated from the rows of the commands.\n.TH ", out);
    for (const char *letter = name; *letter != '\0'; letter++) {
        char large = (char)toupper((unsigned char)*letter);
        put_n(&large, 1, out);
    }
    fputs(" 1 \"\" \"belay ", out);
    put(BELAY_VERSION, out);
    fputs("\" \"Belay\"\n.SH NAME\n", out);
    put(name, out);
    fputs(" \\- ", out);
}

/* "DATA --out RUN": what stands for something in italics, options in bold. */
static void put_arguments(const char *arguments, FILE *out)
{
    for (const char *at = arguments; *at != '\0';) {
        size_t n_place = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        size_t n_option = *at == '-' ? strspn(at, "-abcdefghijklmnopqrstuvwxyz") : 0;
        size_t n = n_place + n_option > 0 ? n_place + n_option : 1;
        fputs(n_place > 0 ? "\\fI" : n_option > 0 ? "\\fB" : "", out);
        put_n(at, n, out);
        fputs(n_place + n_option > 0 ? "\\fR" : "", out);
        at += n;
    }
}

static void put_synopsis(const bl_command *command, FILE *out)
{
    const char *options = "[\\fIOPTION\\fR...]", *blank = command->arguments[0] != '\0' ? " " : "";
    fprintf(out, ".SH SYNOPSIS\n\\fBbelay %s\\fR ", command->name);
    if (command->options_first)
        fprintf(out, "%s%s", options, blank);
    put_arguments(command->arguments, out);
    if (!command->options_first)
        fprintf(out, "%s%s", blank, options);
    fputc('\n', out);
}

static void put_limits(const bl_setting_row *row, bl_text *words, FILE *out)
{
    if (row->kind != BL_KIND_INT && row->kind != BL_KIND_REAL && row->kind != BL_KIND_PAIRS)
        return;
    bl_setting_limits_describe(row, words);
    const char *text = bl_text_get(words);
    fputc(toupper((unsigned char)text[0]), out);
    put(text + 1, out);
    fputs(".\n", out);
    bl_text_clear(words);
}

static void put_default(const bl_setting_row *row, bl_text *words, FILE *out)
{
    bl_setting_default_describe(row, words);
    if (words->n_bytes > 0 && row->kind != BL_KIND_FLAG && row->kind != BL_KIND_PAIRS) {
        fputs("Default: ", out);
        put(bl_text_get(words), out);
        if (row->unit[0] != '\0' && row->words[0] == '\0') {
            fputc(' ', out);
            put(row->unit, out);
        }
        fputs(".\n", out);
    }
    bl_text_clear(words);
}

static void put_option(const bl_setting_row *row, FILE *out)
{
    bl_text words = {0};
    fputs(".TP\n\\fB", out);
    put(row->name[1] == '\0' ? "-" : "--", out);
    put(row->name, out);
    fputs("\\fR", out);
    if (row->kind != BL_KIND_FLAG) {
        bl_setting_place_describe(row, &words);
        fputs(row->kind == BL_KIND_CHOICE ? " \\fB" : " \\fI", out);
        put(bl_text_get(&words), out);
        fputs("\\fR", out);
        bl_text_clear(&words);
    }
    fputc('\n', out);
    put_prose(row->help, out);
    put_limits(row, &words, out);
    put_default(row, &words, out);
    bl_text_fini(&words);
}

static void put_group(const bl_command *command, bl_setting_group group, FILE *out)
{
    bool is_headed = false;
    for (int i = 0; i < command->n_rows; i++) {
        const bl_setting_row *row = &command->rows[i];
        if (row->group != group)
            continue;
        if (!is_headed)
            fprintf(out, ".SS %s\n", bl_setting_group_name(group));
        is_headed = true;
        put_option(row, out);
    }
}

static void put_exits(FILE *out)
{
    fputs(".SH EXIT STATUS\n", out);
    for (const bl_exit *e = bl_cli_exits; e->status != NULL; e++) {
        fputs(".TP\n\\fB", out);
        put(e->status, out);
        fputs("\\fR\n", out);
        put_sentence(e->says, out);
    }
}

void pages_man_command(const bl_command *command, FILE *out)
{
    char name[64];
    snprintf(name, sizeof name, "belay-%s", command->name);
    put_head(name, out);
    put(command->says, out);
    fputc('\n', out);
    put_synopsis(command, out);
    fputs(".SH DESCRIPTION\n", out);
    put_sentence(command->says, out);
    if (command->more[0] != '\0') {
        fputs(".PP\n", out);
        put_prose(command->more, out);
    }
    fputs(".SH OPTIONS\n", out);
    for (int group = 0; group < BL_N_GROUPS; group++)
        put_group(command, (bl_setting_group)group, out);
    fputs(".SS output\n.TP\n\\fB\\-\\-json\\fR\nPrint one JSON document on stdout and nothing else there.\n"
          ".TP\n\\fB\\-\\-help\\fR\nPrint the options and an example.\n",
          out);
    put_exits(out);
    fputs(".SH EXAMPLES\n.EX\n", out);
    put_lines(command->example, out);
    fputs(".EE\n.SH SEE ALSO\n\\fBbelay\\fR(1)\n", out);
}

void pages_man(FILE *out)
{
    put_head("belay", out);
    put("train models; an illegal memory access is an ordinary, named event", out);
    fputs("\n.SH SYNOPSIS\n\\fBbelay\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.br\n"
          "\\fBbelay help\\fR [\\fICOMMAND\\fR]\n.br\n\\fBbelay \\-\\-version\\fR\n.SH DESCRIPTION\n"
          "Each command has a page of its own and \\fB\\-\\-help\\fR.\n.SH COMMANDS\n",
          out);
    for (int i = 0; bl_cli_commands[i] != NULL; i++) {
        const bl_command *command = bl_cli_commands[i];
        fprintf(out, ".TP\n\\fBbelay %s\\fR%s", command->name, command->arguments[0] != '\0' ? " " : "");
        put_arguments(command->arguments, out);
        fputc('\n', out);
        put_sentence(command->says, out);
    }
    put_exits(out);
    fputs(".SH SEE ALSO\n", out);
    for (int i = 0; bl_cli_commands[i] != NULL; i++)
        fprintf(out, "\\fBbelay\\-%s\\fR(1)%s\n", bl_cli_commands[i]->name, bl_cli_commands[i + 1] != NULL ? "," : "");
}
