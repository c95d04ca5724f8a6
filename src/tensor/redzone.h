/* SPDX-License-Identifier: Apache-2.0 */
/* What a place's pool found: bytes beside a block that were overwritten, and that no mapping is left for blocks of their
 * own.  Never touches memory that a kernel may be using. */
#ifndef BL_TENSOR_REDZONE_H
#define BL_TENSOR_REDZONE_H

#include "tensor/context.h"

/* Tells (mem.redzone) the damage of blocks that were given back; with `look`, which needs an idle device, also of those
 * in use. */
void bl_redzone_tell(belay_context *context, int place, bool look);
/* The same for all places, when the host has waited for them. */
void bl_redzone_look(belay_context *context);
/* Tells (mem.mappings), once, that further blocks lie between red zones. */
void bl_redzone_tell_mappings(belay_context *context, int place);

#endif
