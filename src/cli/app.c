/* SPDX-License-Identifier: Apache-2.0 */
/* From the words of a call to a command that runs. */
#include <string.h>

#include "base/memory.h"
#include "base/nearest.h"
#include "cli/cli.h"

const bl_command *bl_cli_command(const char *name)
{
    for (int i = 0; bl_cli_commands[i] != NULL; i++)
        if (strcmp(bl_cli_commands[i]->name, name) == 0)
            return bl_cli_commands[i];
    return NULL;
}

static belay_code unknown_command(const char *word, bl_error *error)
{
    char quoted[BL_FILE_QUOTE];
    bl_nearest best = {0};
    for (int i = 0; bl_cli_commands[i] != NULL; i++)
        bl_nearest_offer(&best, word, bl_cli_commands[i]->name);
    bl_error_set(error, BELAY_CONF_UNKNOWN, "'%s' is not a command",
                 bl_file_quote(word, (int64_t)strlen(word), quoted));
    if (best.name != NULL)
        bl_error_advise(error, "Did you mean `belay %s`?", best.name);
    else
        bl_error_advise(error, "`belay --help` lists the commands.");
    return BELAY_CONF_UNKNOWN;
}

/* `belay help`, `belay help COMMAND`. */
static int run_help(bl_cli *cli, int n, char **words)
{
    bl_error error = {0};
    if (n == 0) {
        bl_cli_help(stdout);
        return bl_cli_end(cli, 0);
    }
    const bl_command *command = bl_cli_command(words[0]);
    if (command == NULL) {
        (void)unknown_command(words[0], &error);
        return bl_cli_fail(cli, &error);
    }
    bl_cli_help_command(command, stdout);
    return bl_cli_end(cli, 0);
}

static belay_code check_arguments(const bl_cli *cli, bl_error *error)
{
    const bl_command *command = cli->command;
    char quoted[BL_FILE_QUOTE];
    belay_code code = BELAY_OK;
    if (cli->n_arguments < command->min_arguments)
        code = bl_error_set(error, BELAY_CONF_MISSING, "belay %s needs %s", command->name, command->arguments);
    else if (command->max_arguments >= 0 && cli->n_arguments > command->max_arguments) {
        const char *word = cli->arguments[command->max_arguments];
        code = bl_error_set(error, BELAY_CONF_UNKNOWN, "belay %s has no use for '%s'", command->name,
                            bl_file_quote(word, (int64_t)strlen(word), quoted));
    }
    if (code != BELAY_OK)
        bl_error_advise(error, "`belay %s --help` shows how it is called.", command->name);
    return code;
}

static int run_command(bl_cli *cli, int n, char **words)
{
    bl_error error = {0};
    cli->words = words;
    cli->n_words = n;
    if (bl_cli_parse(cli, n, words, &error) != BELAY_OK)
        return bl_cli_fail(cli, &error);
    if (cli->command->options_first && !cli->json_given) { /* the --json seen was the other program's */
        json_decref(cli->document);
        cli->document = NULL;
        cli->json = false;
    }
    if (cli->help) {
        bl_cli_help_command(cli->command, stdout);
        return bl_cli_end(cli, 0);
    }
    if (check_arguments(cli, &error) != BELAY_OK)
        return bl_cli_fail(cli, &error);
    return cli->command->run(cli);
}

/* With --json there is a document from the start, so that errors of the parser stand in it too. */
static belay_code open_document(bl_cli *cli, int argc, char **argv, bl_error *error)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        cli->json = cli->json || strcmp(argv[i], "--json") == 0;
    bl_json_init();
    if (cli->json && (cli->document = json_object()) == NULL)
        return bl_error_set(error, BELAY_MEM_EXHAUSTED, "no memory to start");
    return BELAY_OK;
}

static int dispatch(bl_cli *cli, int argc, char **argv)
{
    bl_error error = {0};
    if (open_document(cli, argc, argv, &error) != BELAY_OK)
        return bl_cli_fail(cli, &error);
    if (argc < 2) {
        bl_cli_help(stderr);
        return belay_code_status(BELAY_CONF_MISSING);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return run_help(cli, 0, NULL);
    if (strcmp(argv[1], "help") == 0)
        return run_help(cli, argc - 2, argv + 2);
    if (strcmp(argv[1], "--version") == 0) {
        bl_cli_help_version(stdout);
        return bl_cli_end(cli, 0);
    }
    cli->command = bl_cli_command(argv[1]);
    if (cli->command == NULL) {
        (void)unknown_command(argv[1], &error);
        return bl_cli_fail(cli, &error);
    }
    return run_command(cli, argc - 2, argv + 2);
}

int bl_cli_main(int argc, char **argv)
{
    bl_cli cli = {0};
    int status = dispatch(&cli, argc, argv);
    bl_cli_options_fini(&cli);
    json_decref(cli.document);
    return status;
}
