/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that changes behind the library, as by a stray pointer or another library: nothing knows of it. */
#ifndef TESTS_SUPPORT_SPOIL_H
#define TESTS_SUPPORT_SPOIL_H

#include "tensor/context.h"

/* A write whose note is taken back. */
static inline belay_code spoil(belay_tensor tensor, const void *bytes, int64_t n_bytes)
{
    belay_code code = belay_tensor_write(tensor, bytes, n_bytes);
    bl_slot_get(bl_tensor_context(tensor), tensor)->storage->version--;
    return code;
}

#endif
