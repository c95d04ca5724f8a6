/* SPDX-License-Identifier: Apache-2.0 */
/* `belay_pages FOLDER` writes FOLDER/man1/belay.1, a page a command beside it, and FOLDER/completions/belay. */
#include "tools/pages/pages.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static FILE *open_page(const char *folder, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", folder, name);
    return fopen(path, "w");
}

static int close_page(FILE *out, const char *path)
{
    int failed = out == NULL || ferror(out) != 0;
    if (out != NULL && fclose(out) != 0)
        failed = 1;
    if (failed)
        fprintf(stderr, "belay_pages: cannot write %s: %s\n", path, strerror(errno));
    return failed;
}

static int write_command(const char *folder, const bl_command *command)
{
    char name[64], path[4096];
    snprintf(name, sizeof name, "man1/belay-%s.1", command->name);
    FILE *out = open_page(folder, name, path, sizeof path);
    if (out != NULL)
        pages_man_command(command, out);
    return close_page(out, path);
}

static int write_page(const char *folder, const char *name, void (*write)(FILE *out))
{
    char path[4096];
    FILE *out = open_page(folder, name, path, sizeof path);
    if (out != NULL)
        write(out);
    return close_page(out, path);
}

static void make_folder(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    mkdir(path, 0777); /* there already: fine; not possible: the page says so */
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fputs("usage: belay_pages FOLDER\n", stderr);
        return 2;
    }
    make_folder(argv[1], "");
    make_folder(argv[1], "man1");
    make_folder(argv[1], "completions");
    int failed = write_page(argv[1], "man1/belay.1", pages_man) | write_page(argv[1], "completions/belay", pages_bash);
    for (int i = 0; bl_cli_commands[i] != NULL; i++)
        failed |= write_command(argv[1], bl_cli_commands[i]);
    return failed;
}
