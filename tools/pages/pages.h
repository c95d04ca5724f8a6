/* SPDX-License-Identifier: Apache-2.0 */
/* What is installed beside the binary and comes from the rows of its commands: manual pages and completions. */
#ifndef TOOLS_PAGES_PAGES_H
#define TOOLS_PAGES_PAGES_H

#include "cli/cli.h"

/* belay(1); and the page of a command, "belay-train(1)". */
void pages_man(FILE *out);
void pages_man_command(const bl_command *command, FILE *out);

/* Completion for bash. */
void pages_bash(FILE *out);

/* The n-th word (from 0) of a command's arguments as one types them, "RUN" of "DATA [RUN...] --out RUN" for n = 1: without
 * options and their values.  The last one stands for all behind it where it ends with dots.  False: there is none. */
bool pages_argument(const bl_command *command, int n, char *out, size_t size);

/* Whether what is written in capitals stands for a file or folder. */
bool pages_is_path(const char *place);

#endif
