/* SPDX-License-Identifier: Apache-2.0 */
/* Completion for bash: commands, options, the choices of an option, files.  The script stands on bash alone. */
#include "tools/pages/pages.h"

#include <string.h>

static const char *const script_begin =
    "# SPDX-License-Identifier: Apache-2.0\n"
    "# Completion of belay for bash.  Generated from the rows of the commands.\n"
    "\n"
    "_belay_words() {\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$current\")\n"
    "}\n"
    "\n"
    "_belay_paths() {\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    mapfile -t COMPREPLY < <(compgen \"$@\" -f -- \"$current\")\n"
    "}\n"
    "\n"
    "# How many arguments stand before the cursor, and whether options have ended there: `n`, `ended`.\n"
    "_belay_walk() {\n"
    "    local i word\n"
    "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [[ -n $ended || $word != -?* ]]; then\n"
    "            n=$((n + 1))\n"
    "            [[ -z $first ]] || ended=yes\n"
    "        elif [[ $word == -- ]]; then\n"
    "            ended=yes\n"
    "        elif [[ ${COMP_WORDS[i + 1]} == = ]]; then\n"
    "            i=$((i + 2))\n"
    "        elif [[ $valued == *\" $word \"* ]]; then\n"
    "            i=$((i + 1))\n"
    "        fi\n"
    "    done\n"
    "}\n"
    "\n";

static const char *const script_body =
    "_belay() {\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local command=${COMP_WORDS[1]} options='' valued='' first='' n=0 ended=''\n"
    "    COMPREPLY=()\n";

static const char *const script_end = "    *) return ;;\n"
                                      "    esac\n"
                                      "    # bash cuts --option=value into three words.\n"
                                      "    if [[ $current == = ]]; then\n"
                                      "        current=''\n"
                                      "    elif [[ $option == = ]]; then\n"
                                      "        option=${COMP_WORDS[COMP_CWORD - 2]}\n"
                                      "    fi\n"
                                      "    _belay_walk\n"
                                      "    if [[ -z $ended ]]; then\n"
                                      "        \"_belay_value_$command\" && return\n"
                                      "        if [[ $current == -* ]]; then\n"
                                      "            _belay_words \"$options\"\n"
                                      "            return\n"
                                      "        fi\n"
                                      "    fi\n"
                                      "    \"_belay_argument_$command\"\n"
                                      "}\n"
                                      "\n"
                                      "complete -F _belay belay\n";

static void put_name(const bl_setting_row *row, FILE *out)
{
    fprintf(out, "%s%s", row->name[1] == '\0' ? "-" : "--", row->name);
}

/* Names of the commands, each followed by a blank. */
static void put_commands(FILE *out)
{
    for (int i = 0; bl_cli_commands[i] != NULL; i++)
        fprintf(out, "%s ", bl_cli_commands[i]->name);
}

/* Options whose value is a choice offer the choices, files offer files; of others nothing is known. */
static void put_value(const bl_setting_row *row, FILE *out)
{
    if (row->kind == BL_KIND_FLAG)
        return;
    fputs("    ", out);
    put_name(row, out);
    fputs(") ", out);
    if (row->kind == BL_KIND_CHOICE) {
        fputs("_belay_words '", out);
        for (int i = 0; row->choices[i] != NULL; i++)
            fprintf(out, "%s%s", i > 0 ? " " : "", row->choices[i]);
        fputs("' ;;\n", out);
    } else {
        fputs(row->kind == BL_KIND_TEXT && pages_is_path(row->place) ? "_belay_paths ;;\n" : ";;\n", out);
    }
}

static void put_values(const bl_command *command, FILE *out)
{
    fprintf(out, "_belay_value_%s() {\n    case $option in\n", command->name);
    for (int i = 0; i < command->n_rows; i++)
        put_value(&command->rows[i], out);
    fputs("    *) return 1 ;;\n    esac\n}\n\n", out);
}

/* What may stand at a place: files, a program and then what that takes, or nothing that is known. */
static void put_arguments(const bl_command *command, FILE *out)
{
    char place[32], next[32];
    fprintf(out, "_belay_argument_%s() {\n    case $n in\n", command->name);
    for (int n = 0; n < 16 && pages_argument(command, n, place, sizeof place); n++) {
        bool is_last = !pages_argument(command, n + 1, next, sizeof next);
        bool repeats = !is_last && n > 0 && strcmp(place, next) == 0;
        bool is_command = strcmp(place, "CMD") == 0;
        if (is_command || pages_is_path(place))
            fprintf(out, "    %d) _belay_paths%s ;;\n", n, is_command ? " -c" : "");
        if (is_command || repeats) {
            if (is_command || pages_is_path(place))
                fputs("    *) _belay_paths ;;\n", out);
            break;
        }
    }
    fputs("    esac\n}\n\n", out);
}

/* What is to be known of a command before its words are read. */
static void put_case(const bl_command *command, FILE *out)
{
    fprintf(out, "    %s)\n        options='", command->name);
    for (int i = 0; i < command->n_rows; i++) {
        put_name(&command->rows[i], out);
        fputc(' ', out);
    }
    fputs("--json --help'\n        valued=' ", out);
    for (int i = 0; i < command->n_rows; i++)
        if (command->rows[i].kind != BL_KIND_FLAG) {
            put_name(&command->rows[i], out);
            fputc(' ', out);
        }
    fprintf(out, "'\n%s        ;;\n", command->options_first ? "        first=yes\n" : "");
}

void pages_bash(FILE *out)
{
    fputs(script_begin, out);
    for (int i = 0; bl_cli_commands[i] != NULL; i++) {
        put_values(bl_cli_commands[i], out);
        put_arguments(bl_cli_commands[i], out);
    }
    fputs(script_body, out);
    fputs("    if ((COMP_CWORD == 1)); then\n        _belay_words '", out);
    put_commands(out);
    fputs("help --help --version'\n        return\n    fi\n    case $command in\n    help)\n"
          "        ((COMP_CWORD > 2)) || _belay_words '",
          out);
    put_commands(out);
    fputs("'\n        return\n        ;;\n", out);
    for (int i = 0; bl_cli_commands[i] != NULL; i++)
        put_case(bl_cli_commands[i], out);
    fputs(script_end, out);
}
