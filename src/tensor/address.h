/* SPDX-License-Identifier: Apache-2.0 */
/* From an address to the tensor that it belongs to, or that it missed. */
#ifndef BL_TENSOR_ADDRESS_H
#define BL_TENSOR_ADDRESS_H

#include "tensor/context.h"

/* Appends words for an address of a device (of any, for NULL), "1 byte past the end of x (48 bytes)" or "byte 8 of y (48
 * bytes), which was freed", and lines that say where the tensor was made and where it was freed, in which step and how
 * many launches earlier than `launch`, the one that met the address (0: than now).  The page beside a
 * tensor that lives is its own; else the nearest counts, and of equal ones the one that lives or died last.  What is far
 * from all is told by its number.  Returns the storage alive that was named, or NULL. */
const bl_storage *bl_address_describe(const belay_context *context, const bl_device *device, uint64_t address,
                                      uint64_t launch, bl_text *words, bl_text *facts);
/* The same of the tensor whose memory begins at `block`, whatever lies nearer. */
void bl_address_describe_beside(const belay_context *context, const bl_device *device, const void *block,
                                uint64_t address, bl_text *words, bl_text *facts);

#endif
