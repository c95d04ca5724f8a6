/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT, SIGTERM, a terminal that closes and an output that nobody reads any more ask a run to stop; a second SIGINT or
 * SIGTERM ends the process as if nobody had asked.  A terminal or an output that is ignored, as after nohup, stays so.  A
 * file that may grow no further (ulimit -f) is the error of its write. */
#include <signal.h>
#include <string.h>

#include "train/job.h"

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ};
static struct sigaction before[BL_COUNT(signals)];
static volatile sig_atomic_t stop;

static void note(int number) { stop = number; }

const volatile sig_atomic_t *bl_train_stop_catch(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    stop = 0;
    for (int i = 0; i < BL_COUNT(signals); i++) {
        action.sa_handler = signals[i] == SIGXFSZ ? SIG_IGN : note;
        bool may_repeat = signals[i] == SIGPIPE; /* the last words have no reader either */
        action.sa_flags = may_repeat ? SA_RESTART : SA_RESTART | (int)SA_RESETHAND;
        sigaction(signals[i], NULL, &before[i]);
        bool asks = signals[i] == SIGINT || signals[i] == SIGTERM; /* whoever sends it, to a job of a script too */
        if (asks || before[i].sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
    return &stop;
}

void bl_train_stop_restore(void)
{
    for (int i = 0; i < BL_COUNT(signals); i++)
        sigaction(signals[i], &before[i], NULL);
}
