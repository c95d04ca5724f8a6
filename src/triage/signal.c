/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "triage/signal.h"

const bl_signal_row bl_signals[BL_N_SIGNALS] = {
#define SIGNAL(name, role, anchors, pattern, example) {#name, BL_ROLE_##role, anchors, pattern, __FILE__, example},
#include "triage/signals.def"
#undef SIGNAL
};

int bl_signal_find(const char *name, long n_bytes)
{
    for (int i = 0; i < BL_N_SIGNALS; i++)
        if (strncmp(bl_signals[i].name, name, (size_t)n_bytes) == 0 && bl_signals[i].name[n_bytes] == '\0')
            return i;
    return -1;
}
