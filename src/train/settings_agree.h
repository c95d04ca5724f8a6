/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one run have the same settings. */
#ifndef BL_TRAIN_SETTINGS_AGREE_H
#define BL_TRAIN_SETTINGS_AGREE_H

#include "dist/group.h"
#include "train/settings.h"

/* comm.mismatch on all ranks where a setting differs that all must share, with both its values; it was told. */
BL_MUST_USE belay_code bl_settings_agree(const bl_settings *settings, belay_group *group);

#endif
