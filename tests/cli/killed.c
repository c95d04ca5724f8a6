/* SPDX-License-Identifier: Apache-2.0 */
/* The program itself, in which one rank comes to a bad end at a moment that is asked for:
 *
 *   BELAY_KILL=RANK:PHASE:TIME:DELAY:HOW
 *
 * when rank RANK goes over to phase PHASE (a bl_phase) for the TIME-th time (from 0) and DELAY microseconds have passed:
 * HOW is a signal, or 0 for _exit(9).  Linked with --wrap=bl_group_phase, so that the library has no such door. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "cli/run.h"
#include "dist/group.h"

bl_phase __real_bl_group_phase(belay_group *group, bl_phase phase);
bl_phase __wrap_bl_group_phase(belay_group *group, bl_phase phase);

static struct {
    int rank, phase, time, delay, how;
} asked = {.rank = -1};
static int n_before;

static void end(void)
{
    struct timespec moment = {.tv_nsec = asked.delay * 1000L};
    (void)nanosleep(&moment, NULL);
    dprintf(STDERR_FILENO, "comes to its end in phase: %s\n", bl_phase_names[asked.phase]);
    if (asked.how == 0)
        _exit(9);
    if (asked.how == SIGSEGV)
        (void)signal(SIGSEGV, SIG_DFL);
    (void)kill(getpid(), asked.how);
}

bl_phase __wrap_bl_group_phase(belay_group *group, bl_phase phase)
{
    bl_phase was = __real_bl_group_phase(group, phase);
    if ((int)phase == asked.phase && belay_group_rank(group) == asked.rank && was != phase && n_before++ == asked.time)
        end();
    return was;
}

int main(int argc, char **argv)
{
    const char *words = getenv("BELAY_KILL");
    if (words != NULL &&
        (sscanf(words, "%d:%d:%d:%d:%d", &asked.rank, &asked.phase, &asked.time, &asked.delay, &asked.how) != 5 ||
         asked.phase < 0 || asked.phase >= BL_N_PHASES || asked.delay < 0 || asked.delay > 900000))
        return 2;
    int status = bl_cli_main(argc, argv);
    fflush(NULL);
    _exit(status);
}
