/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/commands.h"

const bl_command *const bl_cli_commands[] = {
    &bl_cli_info, &bl_cli_train, &bl_cli_eval, &bl_cli_predict, &bl_cli_run, &bl_cli_explain, &bl_cli_bench, NULL,
};
