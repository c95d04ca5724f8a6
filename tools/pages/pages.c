/* SPDX-License-Identifier: Apache-2.0 */
/* `belay_pages FOLDER` writes FOLDER/man1/belay.1, a page a command beside it, and FOLDER/completions/belay. */
#include "tools/pages/pages.h"

#include "tools/page.h"

static const char tool[] = "belay_pages";

static int write_command(const char *folder, const bl_command *command)
{
    page p;
    char name[64];
    snprintf(name, sizeof name, "man1/belay-%s.1", command->name);
    page_open(&p, tool, folder, name);
    if (p.out != NULL)
        pages_man_command(command, p.out);
    return page_close(&p);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: belay_pages FOLDER\n", stderr);
        return 2;
    }
    page_folder(argv[1], "");
    page_folder(argv[1], "man1");
    page_folder(argv[1], "completions");
    int failed = page_write(tool, argv[1], "man1/belay.1", pages_man) |
                 page_write(tool, argv[1], "completions/belay", pages_bash);
    for (int i = 0; bl_cli_commands[i] != NULL; i++)
        failed |= write_command(argv[1], bl_cli_commands[i]);
    return failed;
}
