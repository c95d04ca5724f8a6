/* SPDX-License-Identifier: Apache-2.0 */
/* Options by rows.  `--name value` and `--name=value`, `-n value` where the name is one letter; a flag alone, or
 * `--flag=on`; `--` ends the options. */
#include <string.h>

#include "base/memory.h"
#include "base/nearest.h"
#include "cli/cli.h"

static const bl_setting_row *find(const bl_command *command, const char *name, size_t length)
{
    for (int i = 0; i < command->n_rows; i++) {
        const char *known = command->rows[i].name;
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return &command->rows[i];
    }
    return NULL;
}

static belay_code unknown(const bl_command *command, const char *word, size_t length, bl_error *error)
{
    char quoted[BL_FILE_QUOTE], typed[64];
    bl_nearest best = {0};
    snprintf(typed, sizeof typed, "%.*s", (int)(length < sizeof typed ? length : sizeof typed - 1), word);
    char *name = typed + strspn(typed, "-");
    for (int i = 0; i < command->n_rows; i++)
        bl_nearest_offer(&best, name, command->rows[i].name);
    bl_nearest_offer(&best, name, "json");
    bl_nearest_offer(&best, name, "help");
    bl_error_set(error, BELAY_CONF_UNKNOWN, "belay %s has no option %s", command->name,
                 bl_file_quote(word, (int64_t)length, quoted));
    if (best.name != NULL)
        bl_error_advise(error, "Did you mean --%s?", best.name);
    else
        bl_error_advise(error, "`belay %s --help` lists the options; what is none comes after --%s%s.", command->name,
                        word[1] != '-' ? ", a file also as ./" : "", word[1] != '-' ? quoted : "");
    return BELAY_CONF_UNKNOWN;
}

static belay_code store(bl_cli *cli, const bl_setting_row *row, const char *value, bl_error *error)
{
    char option[64];
    snprintf(option, sizeof option, "%s%s", row->name[1] == '\0' ? "-" : "--", row->name);
    if (cli->command->store != NULL)
        return cli->command->store(cli->options, row, value, option, error);
    return bl_setting_store(cli->options, row, value, option, error);
}

static belay_code no_value(const bl_cli *cli, const bl_setting_row *row, const char *next, bl_error *error)
{
    bl_error_set(error, BELAY_CONF_MISSING, "%s%s was given no value", row->name[1] == '\0' ? "-" : "--", row->name);
    if (next == NULL)
        bl_error_advise(error, "`belay %s --help` shows what it takes.", cli->command->name);
    else
        bl_error_advise(error, "Put it before %s, or write --%s=%s if that is the value.", next, row->name, next);
    return BELAY_CONF_MISSING;
}

/* Whether the word is an option of the command, so that it is hardly the value of the one before. */
static bool is_option(const bl_cli *cli, const char *word)
{
    bool is_common = strcmp(word, "--json") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "--") == 0;
    return is_common || (strncmp(word, "--", 2) == 0 && find(cli->command, word + 2, strcspn(word + 2, "=")) != NULL);
}

/* Takes the option at words[*at], and the word after it where that is its value. */
static belay_code take_option(bl_cli *cli, int n, char **words, int *at, bl_error *error)
{
    const char *word = words[*at];
    size_t length = strcspn(word, "=");
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        cli->help = true;
        return BELAY_OK;
    }
    if (strcmp(word, "--json") == 0) {
        cli->json_given = true;
        return BELAY_OK;
    }
    const char *name = word + (length == 2 ? 1 : 2);
    const bl_setting_row *row =
        length == 2 || strncmp(word, "--", 2) == 0 ? find(cli->command, name, (size_t)(word + length - name)) : NULL;
    if (row == NULL)
        return unknown(cli->command, word, length, error);
    if (value == NULL && row->kind == BL_KIND_FLAG)
        value = "on";
    if (value == NULL && *at + 1 == n)
        return no_value(cli, row, NULL, error);
    if (value == NULL && is_option(cli, words[*at + 1]))
        return no_value(cli, row, words[*at + 1], error);
    return store(cli, row, value != NULL ? value : words[++*at], error);
}

static belay_code init_options(bl_cli *cli, int n_words, bl_error *error)
{
    cli->options = bl_alloc(1, cli->command->options_bytes);
    cli->arguments = bl_alloc(n_words + 1, sizeof *cli->arguments);
    if (cli->options == NULL || cli->arguments == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory for the options");
    for (int i = 0; i < cli->command->n_rows; i++)
        TRY(bl_setting_init(cli->options, &cli->command->rows[i], error));
    return BELAY_OK;
}

belay_code bl_cli_parse(bl_cli *cli, int n, char **words, bl_error *error)
{
    bool options_ended = false;
    TRY(init_options(cli, n, error));
    for (int i = 0; i < n && !cli->help; i++) {
        const char *word = words[i];
        if (!options_ended && strcmp(word, "--") == 0)
            options_ended = true;
        else if (!options_ended && word[0] == '-' && word[1] != '\0')
            TRY(take_option(cli, n, words, &i, error));
        else {
            cli->arguments[cli->n_arguments++] = words[i];
            options_ended = options_ended || cli->command->options_first;
        }
    }
    return BELAY_OK;
}

void bl_cli_options_fini(bl_cli *cli)
{
    if (cli->options != NULL)
        for (int i = 0; i < cli->command->n_rows; i++)
            bl_setting_fini(cli->options, &cli->command->rows[i]);
    bl_free(cli->options);
    bl_free(cli->arguments);
    cli->options = NULL;
    cli->arguments = NULL;
}
