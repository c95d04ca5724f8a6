/* SPDX-License-Identifier: Apache-2.0 */
/* belay train -n N outside of a rank: starts itself N times as `belay run --mpi` does, with the same words.  What the
 * ranks say and how they ended is kept in RUN/ranks/start_0, of each further start of the run in start_1, ... */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/run.h"
#include "cli/train.h"

enum { MOST_STARTS = 10000 };

static char *name_folder(const char *run)
{
    for (int i = 0; i < MOST_STARTS; i++) {
        bl_text path = {0};
        bl_text_format(&path, "%s/ranks/start_%d", run, i);
        bool is_free = bl_file_kind_get(bl_text_get(&path)) == BL_FILE_ABSENT;
        char *made = is_free && !path.failed ? bl_strdup(bl_text_get(&path)) : NULL;
        bl_text_fini(&path);
        if (is_free)
            return made;
    }
    return NULL;
}

/* This program, "train" and the words that it was given. */
static char **words_of(const bl_cli *cli, char *self, char *command)
{
    char **words = bl_alloc((int64_t)cli->n_words + 3, sizeof *words);
    if (words == NULL)
        return NULL;
    words[0] = self;
    words[1] = command;
    memcpy(words + 2, cli->words, (size_t)cli->n_words * sizeof *words);
    return words;
}

/* On this host, what every rank would stumble over; ranks on other hosts have paths of their own. */
static belay_code check_files(const bl_settings *settings, bl_error *error)
{
    const char *const paths[] = {settings->data, settings->valid};
    for (int i = 0; i < BL_COUNT(paths) && settings->hostfile == NULL; i++)
        if (paths[i] != NULL && access(paths[i], R_OK) != 0)
            return bl_error_set(error, BELAY_FILE_OPEN, "cannot open '%.300s': %s", paths[i], strerror(errno));
    return BELAY_OK;
}

int bl_cli_train_ranks(bl_cli *cli, const bl_settings *settings)
{
    char self[PATH_MAX], command[] = "train";
    bl_error error = {0};
    if (check_files(settings, &error) != BELAY_OK)
        return bl_cli_fail(cli, &error);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    bl_run_options options = {.n = settings->n,
                              .mpi = true,
                              .plain = true,
                              .hostfile = settings->hostfile,
                              .timeout = settings->timeout,
                              .grace = settings->timeout < 10 ? settings->timeout : 10,
                              .log_limit = 256,
                              .out = name_folder(settings->out)};
    char **words = words_of(cli, self, command);
    if (options.out == NULL || words == NULL || n <= 0) {
        bl_free(options.out);
        bl_free(words);
        bl_error_set(&error, BELAY_MEM_EXHAUSTED, "no memory to start %lld ranks", (long long)settings->n);
        return bl_cli_fail(cli, &error);
    }
    json_decref(cli->document); /* the document is rank 0's */
    cli->document = NULL;
    cli->json = false;
    int status = bl_run_program(cli, &options, words, cli->n_words + 2);
    bl_free(options.out);
    bl_free(words);
    return status;
}
