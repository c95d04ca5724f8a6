/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory for copies that nobody waits for.  The context knows which copies still use it: memory that is freed
 * meanwhile stays until they have ended, and bytes that are changed while a copy reads them are found by sums. */
#ifndef BL_TENSOR_HOST_H
#define BL_TENSOR_HOST_H

#include "tensor/context.h"

/* Looks at the copies that the host has waited for: what they read must be what it was (life.host). */
void bl_host_look(belay_context *context);
/* All uses of a stream that has ended are forgotten. */
void bl_host_forget_stream(belay_context *context, int stream);
/* No copy is in flight any more. */
void bl_host_close(belay_context *context);

#endif
