/* SPDX-License-Identifier: Apache-2.0 */
/* What --resume finds: a run that can be gone on with, and with which settings it was trained.
 *
 *   the folder is not there, or holds no run    refused: a mistyped --out must not begin a new run
 *   run.json alone                              no checkpoint was written yet: the run starts over
 *   last.safetensors                            the run goes on from it
 *   best.safetensors without it                 refused: no kill leaves that, so somebody took `last` away
 *
 * Nothing here changes a file. */
#ifndef BL_TRAIN_RESUME_H
#define BL_TRAIN_RESUME_H

#include "tensor/context.h"
#include "train/settings.h"

typedef struct bl_train_resume {
    bool has_before;    /* `before` is known; else the run starts over, or was not made from settings */
    bl_settings before; /* those that last.safetensors was written with */
} bl_train_resume;

/* Settings that the caller did not give come from the run (set by "run").  Refuses what is no run, and values that
 * contradict those that the weights were trained with: file.open, file.mismatch, conf.value.  `resume` is zeroed before
 * and freed by bl_train_resume_fini after, also after a failure. */
BL_MUST_USE belay_code bl_train_resume_read(bl_train_resume *resume, bl_settings *settings, bl_error *error);
void bl_train_resume_fini(bl_train_resume *resume);

/* How many ranks the run in that folder had; 1 where it does not say. */
int64_t bl_train_resume_ranks(const char *run);

/* Warns (run.changed) of each value that may differ, and does. */
void bl_train_resume_tell(const bl_train_resume *resume, const bl_settings *settings, belay_context *context);

#endif
