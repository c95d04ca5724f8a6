/* SPDX-License-Identifier: Apache-2.0 */
/* The whole program with its n-th allocation failing, for n = 0, 1, 2, ... until one call gets by.  Each time it prints
 * what it prints undisturbed; or it names mem.exhausted on stderr and ends in another status than 0; or it was about to
 * fail anyway, and the status and the first line of its error are the same.  It never crashes or leaks.  usage: sweep [EVERY]: look at each EVERY-th n only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "cli/cli.h"

typedef struct call {
    int n;
    char *words[12];
} call;

static const call calls[] = {
    {5, {"belay", "predict", "run", "abba", "cd"}},
    {6, {"belay", "predict", "run", "abba", "c\377d", "--json"}},
    {4, {"belay", "eval", "run", "words.tsv"}},
    {5, {"belay", "eval", "run", "words.tsv", "--json"}},
    {6, {"belay", "train", "words.tsv", "--lr", "-1", "--json"}},
    {6, {"belay", "train", "absent.tsv", "--out", "never", "--json"}},
};

/* Both streams into files while the program runs. */
static int run(const call *c, const char *out, const char *err)
{
    int keep_out = dup(STDOUT_FILENO), keep_err = dup(STDERR_FILENO);
    char *words[12];
    memcpy(words, c->words, sizeof words);
    fflush(NULL);
    if (freopen(out, "w", stdout) == NULL || freopen(err, "w", stderr) == NULL)
        abort();
    int status = bl_cli_main(c->n, words);
    fflush(NULL);
    dup2(keep_out, STDOUT_FILENO);
    dup2(keep_err, STDERR_FILENO);
    close(keep_out);
    close(keep_err);
    return status;
}

static void read_all(const char *path, bl_text *text)
{
    char buffer[4096];
    FILE *file = fopen(path, "r");
    bl_text_clear(text);
    for (size_t n; file != NULL && (n = fread(buffer, 1, sizeof buffer, file)) > 0;)
        bl_text_add_bytes(text, buffer, (int64_t)n);
    if (file != NULL)
        fclose(file);
}

typedef struct usual {
    int status;
    bl_text out, err;
} usual;

static bool same_first_line(const char *a, const char *b)
{
    size_t length = strcspn(a, "\n");
    return length > 0 && strncmp(a, b, length + 1) == 0;
}

static int judge(const call *c, int64_t n, int status, const usual *undisturbed)
{
    bl_text out = {0}, err = {0};
    read_all("out", &out);
    read_all("err", &err);
    bool as_usual =
        status == undisturbed->status && (strcmp(bl_text_get(&out), bl_text_get(&undisturbed->out)) == 0 ||
                                          same_first_line(bl_text_get(&err), bl_text_get(&undisturbed->err)));
    bool named = status != 0 && strstr(bl_text_get(&err), "(mem.exhausted)\n") != NULL;
    if (!as_usual && !named)
        printf("belay %s %s, allocation %lld failing: status %d\nstdout:\n%sstderr:\n%s", c->words[1], c->words[2],
               (long long)n, status, bl_text_get(&out), bl_text_get(&err));
    bl_text_fini(&out);
    bl_text_fini(&err);
    return !as_usual && !named;
}

static int sweep(const call *c, int64_t every)
{
    usual undisturbed = {.status = run(c, "out", "err")};
    int failures = 0;
    int64_t n = 0;
    read_all("out", &undisturbed.out);
    read_all("err", &undisturbed.err);
    for (bool reached = true; reached && failures < 5; n += every) {
        bl_memory_fail_at(n);
        int status = run(c, "out", "err");
        reached = bl_memory_failed();
        bl_memory_fail_at(-1);
        failures += judge(c, n, status, &undisturbed);
    }
    printf("belay %s %s: %lld calls, status %d undisturbed, %d failures\n", c->words[1], c->words[2],
           (long long)(n / every), undisturbed.status, failures);
    bl_text_fini(&undisturbed.out);
    bl_text_fini(&undisturbed.err);
    return failures;
}

int main(int argc, char **argv)
{
    static const call train = {12,
                               {"belay", "train", "words.tsv", "--out", "run", "--embed", "4", "--hidden", "4",
                                "--epochs", "1", "--overwrite"}};
    char folder[] = "/tmp/belay-sweep-XXXXXX", command[64];
    int64_t every = argc > 1 ? atoll(argv[1]) : 1;
    int failures = 0;
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return 1;
    FILE *words = fopen("words.tsv", "w");
    for (int i = -1; words != NULL && i < 40; i++)
        fputs(i < 0 ? "text\tlabel\n" : i % 2 ? "abba\tx\n" : "cddc\ty\n", words);
    if (words == NULL || fclose(words) != 0 || run(&train, "out", "err") != 0)
        return 1;
    for (int i = 0; i < BL_COUNT(calls); i++)
        failures += sweep(&calls[i], every);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || failures > 0;
}
