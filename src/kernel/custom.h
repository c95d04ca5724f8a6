/* SPDX-License-Identifier: Apache-2.0 */
/* A launch of a kernel of the user's own: what stands beside its bl_launch.  Whoever may look at it later holds it: the
 * call, and the flight of a launch that runs behind the host's back.  Only the host's thread counts holders. */
#ifndef BL_KERNEL_CUSTOM_H
#define BL_KERNEL_CUSTOM_H

#include <belay/kernel.h>

struct bl_custom {
    int64_t holders;
    char name[32];
    char role[BELAY_MAX_KERNEL_OPERANDS][24];
    uint16_t journal_op; /* the kernel's name in the journal */
    void (*items)(const belay_kernel_args *args, belay_kernel_thread *thread, int64_t begin, int64_t end);
    belay_kernel_args args; /* addresses are the launch's: whoever runs it fills them in */
    char message[160];      /* of the assertion that failed, when it has run */
};

typedef struct bl_custom bl_custom;

/* NULL when memory ends. */
bl_custom *bl_custom_new(const belay_kernel *kernel);
bl_custom *bl_custom_hold(bl_custom *custom);
void bl_custom_release(bl_custom *custom);

#endif
