/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `belay train` share: train.c (one process), train_ranks.c (starts several of them). */
#ifndef BL_CLI_TRAIN_H
#define BL_CLI_TRAIN_H

#include "cli/cli.h"

/* Starts the command again in each rank; the exit status. */
int bl_cli_train_ranks(bl_cli *cli, const bl_settings *settings);

#endif
