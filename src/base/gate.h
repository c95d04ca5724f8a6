/* SPDX-License-Identifier: Apache-2.0 */
/* A window's gate: 0 while it is open, else why it was closed first. */
#ifndef BL_BASE_GATE_H
#define BL_BASE_GATE_H

#include <stdbool.h>
#include <stdint.h>

enum { BL_GATE_CLOSED = 1 }; /* for a reason that has no code; no code has this number */

/* `code` is a belay_code, or BL_GATE_CLOSED.  Any thread. */
static inline void bl_gate_close(uint32_t *gate, uint32_t code)
{
    uint32_t open = 0;
    (void)__atomic_compare_exchange_n(gate, &open, code, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static inline uint32_t bl_gate_get(const uint32_t *gate) { return __atomic_load_n(gate, __ATOMIC_ACQUIRE); }

#endif
