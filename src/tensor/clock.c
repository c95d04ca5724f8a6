/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/clock.h"

#include <stddef.h>
#include <string.h>

int bl_uses_conflict(const bl_uses *uses, const bl_clock *clock, bool writes, const bl_use **use)
{
    *use = NULL;
    if (uses->write.number != 0 && !bl_clock_is_behind(clock, uses->writer, uses->write.number)) {
        *use = &uses->write;
        return uses->writer;
    }
    for (int s = 0; s < BL_MAX_STREAMS && writes; s++)
        if (!bl_clock_is_behind(clock, s, uses->read[s].number)) {
            *use = &uses->read[s];
            return s;
        }
    return BL_STREAM_NONE;
}

bool bl_uses_are_behind(const bl_uses *uses, const bl_clock *clock)
{
    const bl_use *use;
    return bl_uses_conflict(uses, clock, true, &use) == BL_STREAM_NONE;
}

/* A write is ordered behind every use before it, so those need not be remembered. */
void bl_uses_note(bl_uses *uses, int stream, bool writes, const bl_use *use)
{
    if (!writes) {
        uses->read[stream] = *use;
        return;
    }
    memset(uses->read, 0, sizeof uses->read);
    uses->are_inherited = false;
    uses->writer = stream;
    uses->write = *use;
}
