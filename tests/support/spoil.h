/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that changes behind the library, as by a stray pointer: no call was made, so that nothing knows of it. */
#ifndef TESTS_SUPPORT_SPOIL_H
#define TESTS_SUPPORT_SPOIL_H

#include <string.h>

#include "tensor/context.h"

/* Writes over the first bytes of a contiguous tensor on cpu. */
static inline void spoil(belay_tensor tensor, const void *bytes, int64_t n_bytes)
{
    const bl_slot *slot = bl_slot_get(bl_tensor_context(tensor), tensor);
    memcpy(bl_slot_data(slot), bytes, (size_t)n_bytes);
}

#endif
