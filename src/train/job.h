/* SPDX-License-Identifier: Apache-2.0 */
/* A whole training job from settings: folder, context, data, model, optimizer, loop.  What `belay train` calls. */
#ifndef BL_TRAIN_JOB_H
#define BL_TRAIN_JOB_H

#include <belay/train.h>

#include "train/settings.h"

typedef struct bl_train_job_options {
    belay_log_function log;
    void *log_state;
    belay_progress_function progress;
    void *progress_state;
    const volatile sig_atomic_t *stop; /* NULL, or as in belay_train_options */
} bl_train_job_options;

/* With --resume, what the caller's settings do not say comes from the run's run.json (set by "run").  What fails before
 * there is a context is told by `error` alone (its code is BELAY_OK otherwise); all else was told by `log`.  Returns
 * the result's code.  result->status is the exit status. */
belay_code bl_train_job(bl_settings *settings, const bl_train_job_options *options, belay_train_result *result,
                        bl_error *error);

/* SIGINT, SIGTERM, and SIGHUP and SIGPIPE unless they are ignored, set a flag from now on; returns it.  SIGXFSZ is ignored.
 * bl_train_stop_restore gives the old handlers back. */
const volatile sig_atomic_t *bl_train_stop_catch(void);
void bl_train_stop_restore(void);

#endif
