/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT and SIGTERM ask a run to stop; a second one ends the process as if nobody had asked. */
#include <signal.h>
#include <string.h>

#include "train/job.h"

static const int signals[] = {SIGINT, SIGTERM};
static struct sigaction before[BL_COUNT(signals)];
static volatile sig_atomic_t stop;

static void note(int number) { stop = number; }

const volatile sig_atomic_t *bl_train_stop_catch(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = note;
    action.sa_flags = SA_RESTART | (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    stop = 0;
    for (int i = 0; i < BL_COUNT(signals); i++)
        sigaction(signals[i], &action, &before[i]);
    return &stop;
}

void bl_train_stop_restore(void)
{
    for (int i = 0; i < BL_COUNT(signals); i++)
        sigaction(signals[i], &before[i], NULL);
}
