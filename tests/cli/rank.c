/* SPDX-License-Identifier: Apache-2.0 */
/* A program of several ranks for the transcripts: twenty barriers over a group, and one rank that ends in the tenth.
 *
 *   rank HOW WHO     rank WHO does HOW: exit:3, signal:9, stop, loop, abort; "endless": nobody does, and there is no last
 * barrier; without words: all come through.  With JOURNAL in the environment each keeps one of that name and its number. */
#include <belay/belay.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BARRIERS = 20, AT = 10 };

static void end(belay_group *group, const char *how)
{
    const char *colon = strchr(how, ':');
    int number = colon != NULL ? atoi(colon + 1) : 0;
    struct timespec moment = {.tv_nsec = 300000000}; /* the others wait for this one then */
    (void)nanosleep(&moment, NULL);
    if (strncmp(how, "exit", 4) == 0)
        _exit(number);
    if (strncmp(how, "signal", 6) == 0) {
        (void)signal(number, SIG_DFL); /* a sanitizer has its own way with some */
        (void)raise(number);
    }
    if (strcmp(how, "stop") == 0)
        (void)raise(SIGSTOP);
    if (strcmp(how, "abort") == 0)
        belay_group_abort(group, "the disk is full");
    for (; strcmp(how, "loop") == 0;)
        pause();
}

int main(int argc, char **argv)
{
    const char *timeout = getenv("BELAY_TIMEOUT");
    const char *name = getenv("JOURNAL"), *number = getenv("OMPI_COMM_WORLD_RANK");
    char journal[256];
    snprintf(journal, sizeof journal, "%s%s", name != NULL ? name : "", number != NULL ? number : "");
    belay_context *ctx = belay_open(&(belay_options){
        .log = belay_log_stderr, .no_journal = name == NULL, .journal = name != NULL ? journal : NULL});
    belay_group *group = belay_group_open(ctx, &(belay_group_options){.timeout = timeout != NULL ? atof(timeout) : 60});
    belay_code code = belay_group_bind(group, "cpu");
    bool is_endless = argc > 1 && strcmp(argv[1], "endless") == 0;
    for (int i = 0; code == BELAY_OK && (is_endless || i < BARRIERS); i++) {
        if (i == AT && is_endless && belay_group_rank(group) == 0) {
            printf("under way\n");
            fflush(stdout);
        }
        (void)belay_full(ctx, BELAY_F32, belay_shape1(4), i);
        if (i == AT && !is_endless && argc == 3 && belay_group_rank(group) == atoi(argv[2]))
            end(group, argv[1]);
        code = belay_group_barrier(group);
    }
    if (code == BELAY_OK)
        printf("rank %d of %d came through\n", belay_group_rank(group), belay_group_size(group));
    belay_group_close(group);
    int status = belay_close(ctx);
    fflush(stdout);
    _exit(status);
}
