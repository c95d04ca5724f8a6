/* SPDX-License-Identifier: Apache-2.0 */
/* The commands, one file each; src/cli/commands.c lists them. */
#ifndef BL_CLI_COMMANDS_H
#define BL_CLI_COMMANDS_H

#include "cli/cli.h"

extern const bl_command bl_cli_info, bl_cli_train, bl_cli_eval, bl_cli_predict, bl_cli_run, bl_cli_explain,
    bl_cli_bench;

#endif
